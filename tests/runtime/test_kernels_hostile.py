"""Calls that the fuzzer (tests/fuzz) or a reader found to end the process, to read what is no input's, or to overflow.

Each is an error now, or runs. Where only a sanitizer sees the difference, `make test-sanitize` runs this file too.
"""

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from numpy.typing import DTypeLike

from tests.runtime.kernel_session import Array, kernel_library, run_node

FLOAT, ID = np.float32, np.int64
STATE: list[DTypeLike] = [np.bool_, ID, np.bool_, ID, FLOAT, ID, ID, FLOAT, ID, ID]
HEADS: dict[str, Any] = {"scale": 1.0, "shared": 1, "repeated": 1}


PLAIN: dict[str, Any] = {"activation": "none", "norm": "none", "epsilon": 0.0, "bias": 0}
"""Attributes of Project for the matrix product alone."""


def zeros(*shape: int, dtype: DTypeLike = FLOAT) -> Array:
    return np.zeros(shape, dtype)


@pytest.mark.parametrize(("precision", "weight"), [("float32", (33, 320, 32)), ("bfloat16", (33, 160, 32, 2))])
def test_project_of_no_rows_is_nothing(precision: str, weight: tuple[int, ...], isa: str) -> None:
    """So much weight is shared among threads, in chunks of rows: of none there were none to divide by."""
    kind = FLOAT if precision == "float32" else np.uint16
    attributes: dict[str, Any] = {**PLAIN, "precision": precision}
    inputs = [zeros(0, 320), None, None, None, zeros(*weight, dtype=kind)]
    [found] = run_node("Project", inputs, [FLOAT], depth=1, parts=1, ranks=[1], sizes=[1040], **attributes)
    assert found.shape == (0, 1040)


@pytest.mark.parametrize("kind", [np.int8, np.float16, np.float64, np.bool_])
def test_embed_refuses_a_table_of_another_type(kind: DTypeLike) -> None:
    """Its rows were read as float32: four times as much memory as a table of bytes has."""
    with pytest.raises(Exception, match="the table is not float32"):
        run_node("Embed", [np.array([6]), zeros(7, 64, dtype=kind)], [FLOAT], precision="float32", width=64, factor=1.0)


def test_attend_allocates_nothing_for_a_depth_of_values_that_is_a_lie() -> None:
    """The output was allocated before the value was checked: 64 GiB here."""
    inputs = [zeros(2**9, 2**10, 1, 1, 1), zeros(2**9, 1, 1, 1), zeros(2**15, 2**15)]
    with pytest.raises(Exception, match="the value's axes do not fit the key's"):
        run_node("Attend", inputs, [FLOAT], rank=2, causal=0, **HEADS)


def test_attend_of_no_sentence_allocates_nothing_for_its_keys() -> None:
    """A memory of no slots may have any number of keys: a list of them was filled."""
    inputs = [zeros(0, 1, 1, 8), zeros(0, 2**40, 1, 8), zeros(0, 2**40, 1, 8)]
    [found] = run_node("Attend", inputs, [FLOAT], rank=2, causal=0, **HEADS)
    assert found.shape == (0, 1, 1, 8)


def test_attend_with_a_bias_refuses_heads_whose_number_overflows() -> None:
    huge: dict[str, Any] = {"scale": 1.0, "shared": 2**32, "repeated": 2**32}
    inputs = [zeros(2, 0, 8), zeros(2, 7, 0, 8), zeros(2, 7, 0, 8), None, None, zeros(0, 1, 7)]
    with pytest.raises(Exception, match=r"the sizes are too large|do not fit `shared`|is not \[heads"):
        run_node("Attend", inputs, [FLOAT], rank=1, causal=0, **huge)


def test_a_cache_whose_size_in_bytes_overflows_is_refused() -> None:
    """A cache of no rows may have any depth: how many bytes a row has was computed unseen."""
    with pytest.raises(Exception, match="the sizes are too large"):
        run_node("Cache", [np.array([0, 2**62])], [FLOAT], label="a")


def test_a_cache_refuses_sizes_below_zero() -> None:
    for sizes in ([-1], [-1, -1], [2, -3, -4]):
        with pytest.raises(Exception, match="no sizes below 0"):
            run_node("Cache", [np.array(sizes)], [FLOAT], label="a")


def test_candidates_need_a_hypothesis_for_each_sentence() -> None:
    """Of sentences without hypotheses ScreenCandidates left the outputs as they were allocated."""
    inputs = [zeros(3, 0, 1, 8), zeros(3, 0), np.array([2])]
    screen = [zeros(33, 8, dtype=np.int16), zeros(2, 4, 32, 2, dtype=np.int16), zeros(33), zeros(2)]
    with pytest.raises(Exception, match="at least 1 hypothesis"):
        run_node("ScreenCandidates", [*inputs, *screen], [FLOAT, ID, ID], vocabulary=33)
    with pytest.raises(Exception, match="at least 1 hypothesis"):
        run_node("Candidates", inputs, [FLOAT, ID, ID])


def test_candidates_allocate_nothing_for_a_vocabulary_that_is_a_lie() -> None:
    """The outputs were allocated before the weight was checked: 64 GiB here."""
    inputs = [zeros(2**10, 1, 1, 8), zeros(2**10, 1), np.array([2**22]), zeros(2, 8, 32)]
    with pytest.raises(Exception, match="panels do not fit"):
        run_node("ProjectCandidates", inputs, [FLOAT, ID, ID], precision="float32", vocabulary=2**24)


@pytest.mark.parametrize("position", [2**63 - 1, 2**41])
def test_advance_refuses_positions_without_end(position: int) -> None:
    pairs = [zeros(0, 4), zeros(0, 4, dtype=ID), zeros(0, 4, dtype=ID)]
    tokens, ancestors = zeros(0, 2, 1, dtype=ID), zeros(0, 2, 0, dtype=ID)
    state = [*pairs, tokens, ancestors, tokens, zeros(0, 2, dtype=ID), zeros(0, 2), zeros(0, dtype=ID)]
    first = [np.array([2]), np.array(3), np.array(0.6, FLOAT), np.array(position), zeros(0, dtype=np.bool_)]
    with pytest.raises(Exception, match="too many positions"):
        run_node("Advance", [*first, zeros(0, dtype=ID), *state], STATE)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf, 3e38])
@pytest.mark.parametrize("precision", ["int8", "int4"])
def test_integers_take_any_floats(precision: str, wrong: float, isa: str) -> None:
    """Sums of what is no number wrap around, by every kind of instructions."""
    x = np.ones((3, 64), FLOAT)
    x[1, 5] = wrong
    weight = np.full((1, 16, 32, 4) if precision == "int8" else (1, 2, 4, 32, 4), 255, np.uint8)
    scale = zeros(32) if precision == "int8" else zeros(1, 2, 32)
    attributes: dict[str, Any] = {**PLAIN, "precision": precision}
    inputs = [x, None, None, None, weight, scale + 1]
    [found] = run_node("Project", inputs, [FLOAT], depth=1, parts=1, ranks=[1], sizes=[32], **attributes)
    alone = run_node("Project", [x[:1], *inputs[1:]], [FLOAT], depth=1, parts=1, ranks=[1], sizes=[32], **attributes)
    assert np.array_equal(found[0], alone[0][0]), "the other rows are as they are alone"


def test_quantize_rows_allocates_nothing_for_rows_of_no_numbers() -> None:
    """Their scales alone would take 4 TiB; and an axis may be as long as it likes where another one is empty."""
    for shape in ((2**40, 0), (0, 2**60)):
        with pytest.raises(Exception, match="rows to quantize have 1 to"):
            run_node("QuantizeRows", [zeros(*shape)], [np.int8])


@pytest.mark.parametrize("kind", [FLOAT, np.float16])
def test_attention_takes_scores_that_are_no_numbers(kind: DTypeLike, isa: str) -> None:
    query = np.full((2, 3, 1, 1, 8), np.nan, FLOAT)
    query[1] = 0
    memory = np.ones((2, 5, 1, 8), kind)
    [found] = run_node("Attend", [query, memory, memory], [FLOAT], rank=2, causal=0, **HEADS)
    np.testing.assert_allclose(found[1], 1, rtol=1e-6)


def test_a_screen_of_integers_that_are_too_large_wraps_around(isa: str) -> None:
    inputs = [np.full((1, 1, 1, 64), 1, FLOAT), zeros(1, 1), np.array([2]), np.full((33, 64), -32768, np.int16)]
    screen = [np.full((2, 32, 32, 2), -32768, np.int16), zeros(33), zeros(2)]
    _, tokens, _ = run_node("ScreenCandidates", [*inputs, *screen], [FLOAT, ID, ID], vocabulary=33)
    assert ((tokens >= 0) & (tokens < 33)).all()


WANTS_TOO_MUCH = """
import resource, sys
import numpy as np
from tests.fuzz.cases import Buffer, Case, Tensor

def run(position, batch):
    new = Tensor(np.zeros((batch, 1, 1, 1), np.float32))
    caches = [Buffer((batch, 2**23, 1, 1), "float32") for _ in range(2)]
    attributes = {"scale": 1.0, "shared": 1, "repeated": 1, "window": 0}
    Case("AttendCached", [new, new, new, *caches, Tensor(np.array(position))], [np.float32], attributes, 3).run()

run(3, 9)
used = int(open("/proc/self/statm").read().split()[0]) * 4096
resource.setrlimit(resource.RLIMIT_AS, (used + (896 << 20),) * 2)
try:
    run(2**23 - 1, 9)
except Exception as error:
    print("refused:", error)
"""


def test_no_memory_on_a_thread_is_an_error() -> None:
    """What work threw, on a thread of ONNX Runtime's, ended the process, or it waited for that thread for ever.

    There is memory for the caches, and not for the scores of each thread.
    """
    kernel_library()
    if "libasan" in os.environ.get("LD_PRELOAD", ""):
        pytest.skip("with AddressSanitizer, address space cannot be limited")
    done = subprocess.run(
        [sys.executable, "-c", WANTS_TOO_MUCH], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("refused:")
