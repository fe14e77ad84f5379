"""Calibration: histograms of fixed size, scales of least error, and one scale per weight in all its uses."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from tests.calibration import probe_examples
from tests.small_specs import small
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.ops.roundable import linear_weights
from xformc.compiler.pipeline import compile_engine
from xformc.compiler.quantize.calibration import BINS, Histogram, calibrate, calibrated_weights, scale_of
from xformc.compiler.quantize.formats import FORMATS
from xformc.compiler.quantize.number_format import Grid
from xformc.compiler.spec import Spec, load_spec
from xformc.errors import UserError
from xformc.format.precision import Precision

EIGHTS: tuple[Precision, ...] = ("int8", "float8")


def histogram(*numbers: torch.Tensor) -> Histogram:
    counted = Histogram()
    for part in numbers:
        counted.add(part)
    return counted


def grid(precision: Precision) -> Grid:
    found = FORMATS[precision].grid
    assert found is not None
    return found


def scales(spec: Spec, precision: Precision = "int8", *, seed: int = 0) -> dict[str, float]:
    """The scales of a spec with randomly initialized weights, from the examples of a certificate."""
    graph = compile_engine(spec, "tensorrt").graph
    weights = calibrated_weights(spec.precisions(precision), linear_weights(graph), examples=True)
    return calibrate(TorchModule(graph, seed=seed), weights, probe_examples(spec))


@given(
    sizes=st.lists(st.lists(st.floats(-1e6, 1e6, width=32), max_size=9), min_size=1, max_size=6),
    backwards=st.booleans(),
)
@example(sizes=[[0.0], [1.0], [2.0, 1e-30]], backwards=False)
def test_a_histogram_does_not_depend_on_the_order_of_what_it_counts(sizes: list[list[float]], backwards: bool) -> None:
    parts = [torch.tensor(part, dtype=torch.float32) for part in sizes]
    whole, found = histogram(torch.cat(parts)), histogram(*(reversed(parts) if backwards else parts))
    assert torch.equal(found.counts, whole.counts) and torch.equal(found.middles(), whole.middles())
    assert int(found.counts.sum()) == sum(map(len, sizes)) and len(found.counts) == BINS


def test_a_number_is_in_the_bin_that_it_is_near() -> None:
    numbers = torch.tensor([0.001, 0.3, -2.5, 7.99])
    counted = histogram(*numbers)
    middles = counted.middles()[counted.counts > 0]
    np.testing.assert_allclose(middles, numbers.abs(), atol=8 / BINS / 2 + 1e-9)


def test_the_scale_of_normal_numbers_is_the_known_one() -> None:
    """Banner et al. 2019, Post training 4-bit quantization: at 8 bits, 3.92 deviations of a normal are not cut off."""
    numbers = torch.randn(200_000, generator=torch.Generator().manual_seed(0))
    assert scale_of(histogram(numbers), grid("int8")) * 127 == pytest.approx(3.92, rel=0.06)


@pytest.mark.parametrize("precision", EIGHTS)
@pytest.mark.parametrize("size", [1e-20, 1e-3, 1.0, 1e12])
def test_a_scale_has_the_size_of_what_is_rounded(precision: Precision, size: float) -> None:
    numbers = torch.randn(5_000, generator=torch.Generator().manual_seed(0))
    scale, unit = (scale_of(histogram(numbers * factor), grid(precision)) for factor in (size, 1.0))
    assert scale == pytest.approx(unit * size, rel=0.1) and 0 < scale * grid(precision).largest <= 1.001 * size * 5
    assert scale == float(np.float32(scale))


def test_a_scale_takes_the_largest_number_where_all_are_equal() -> None:
    assert scale_of(histogram(torch.full((99,), 5.08)), grid("int8")) * 127 == pytest.approx(5.08, rel=1e-4)


@pytest.mark.parametrize("numbers", [torch.zeros(7), torch.zeros(0)])
def test_where_there_is_nothing_to_round_the_scale_is_1(numbers: torch.Tensor) -> None:
    assert scale_of(histogram(numbers), grid("int8")) == 1.0


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_what_is_not_finite_is_refused(wrong: float) -> None:
    with pytest.raises(UserError, match="not finite"):
        Histogram().add(torch.tensor([1.0, wrong]))


def test_products_of_one_value_have_one_scale(tiny_spec: Spec) -> None:
    found = scales(tiny_spec)
    attention = {found[f"decoder/0/causal_self_attention/{name}/weight"] for name in ("query", "key", "value")}
    assert len(attention) == 1
    assert found["decoder/0/feed_forward/inner/weight"] != found["decoder/0/feed_forward/output/weight"]
    assert scales(tiny_spec) == found, "the same examples give the same scales"


def test_a_tied_table_has_the_scale_of_its_product(tiny_spec: Spec) -> None:
    table = "encoder/embed/embedding/weight"
    assert table in linear_weights(compile_engine(tiny_spec, "tensorrt").graph), "logits are tied to it"
    assert 0 < scales(tiny_spec)[table] < 1


@pytest.mark.parametrize("name", ["lstm_language_model", "seq2seq_attention"])
def test_weights_inside_a_recurrence_are_calibrated(name: str) -> None:
    spec = small(name)
    found = scales(spec)
    assert found and not any(scale == 1.0 for scale in found.values()), found


SHARED = """
extends: transformer_base
sizes: {layers: 3, d_model: 16, d_ff: 24, heads: 2, vocabulary: 40}
tie:
  - [encoder/embed/embedding/weight, decoder/embed/embedding/weight, logits/weight]
  - [encoder/0/feed_forward/inner/weight, encoder/1/feed_forward/inner/weight, encoder/2/feed_forward/inner/weight]
"""


def test_a_weight_that_several_layers_share_has_one_scale(tmp_path: Path) -> None:
    path = tmp_path / "shared.yaml"
    path.write_text(SHARED)
    found = [name for name in scales(load_spec(path)) if name.startswith("encoder") and "inner" in name]
    assert found == ["encoder/0/feed_forward/inner/weight"]
