"""Every engine passes its certificate, in every precision, and gives the same on both targets and in any batch."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from hypothesis import assume, example, given
from hypothesis import strategies as st
from laws.models import TOLERANCE, make_model
from laws.settings import examples
from laws.specs import Sample
from laws.test_laws import LABELLED, LANGUAGE_MODELS, TRANSLATIONS
from numpy.typing import NDArray

from tests.runtime.kernel_session import kernel_library
from xformc.compiler.build import Rounding, build_engine
from xformc.compiler.spec import Spec
from xformc.errors import UserError
from xformc.format.interfaces import SAMPLING, SEARCH, Interface
from xformc.format.manifest import SampleOptions, SearchOptions
from xformc.format.precision import Precision
from xformc.format.targets import Target
from xformc.runtime.generation.generate import Prompt, sample
from xformc.runtime.searching.search import search
from xformc.runtime.session import Session
from xformc.runtime.whole import whole_session

SHORT = SearchOptions(beam_size=3, n_best=2, length_penalty=0.6, max_length_factor=0.5, max_length_offset=3)
DRAWN = SampleOptions(temperature=1.0, top_k=5, top_p=0.9, max_new_tokens=5)
PROMPTS = [Prompt([5, 6, 7], 1), Prompt([], 2), Prompt([8, 4, 9, 10, 11], 3)]


def build(
    spec: Spec,
    weights: Mapping[str, NDArray[np.float32]],
    target: Target,
    folder: Path,
    precision: Precision = "float32",
) -> None:
    """Build an engine, certified, unless the weights make all choices of its searches a matter of rounding."""
    shutil.rmtree(folder, ignore_errors=True)
    try:
        assert build_engine(spec, weights, None, target, folder, rounding=Rounding(precision)).passed
    except UserError as error:
        assume("other weights" not in str(error.hint))
        raise


def engines(made: Sample, folder: Path, interface: Interface) -> list[Session]:
    """The engines for both targets, certified."""
    model = make_model(made, folder)
    assume(model.known(model.inputs())[1] < 2 * TOLERANCE)
    weights = model.module.arrays()
    sessions: list[Session] = []
    for target in ("portable", "cpu"):
        build(model.spec, weights, target, folder / target)
        sessions.append(whole_session(folder / target, interface, threads=1))
    return sessions


PRECISIONS: tuple[Precision, ...] = ("float32", "float16", "bfloat16", "int8", "int4")


READS_IN_A_LOOP = Sample(
    task="translation",
    steps=[
        {
            "recurrence": {
                "state": {"hidden": "d_model"},
                "cell": {
                    "do": {
                        "query": {"linear": {"from": "hidden", "to": "d_k"}},
                        "key": {"linear": {"from": "encoder", "to": "d_k"}},
                        "context": {"attend": {"query": "query", "key": "key", "value": "encoder", "width": "d_k"}},
                        "both": {"plus": {"by": "x"}},
                        "hidden": {"gru_cell": {"hidden": "hidden", "size": "d_model"}},
                    }
                },
            }
        }
    ],
    encoder=[],
    choices={"norm": "post", "positions": "none", "activation": "relu", "feature_map": "elu"},
    tied=False,
    reduction="mean",
)
"""Attention inside a recurrence is a loop in the step of several tokens alone."""


@examples(12)
@example(READS_IN_A_LOOP, "float32")
@given(TRANSLATIONS | LANGUAGE_MODELS | LABELLED, st.sampled_from(PRECISIONS))
def test_native_engines_are_certified(tmp_path: Path, made: Sample, precision: Precision) -> None:
    kernel_library()
    model, folder = make_model(made, tmp_path), tmp_path / "native"
    assume(model.known(model.inputs())[1] < 2 * TOLERANCE)
    build(model.spec, model.module.arrays(), "native", folder, precision)


@examples(4)
@given(TRANSLATIONS)
def test_translation_is_the_same_on_both_targets_and_in_any_batch(tmp_path: Path, made: Sample) -> None:
    portable, cpu = engines(made, tmp_path, SEARCH)
    sources = np.array([[5, 6, 7, 8, 9, 3], [10, 11, 3, 0, 0, 0], [12, 13, 14, 3, 0, 0]])
    expected = search(portable, {"source": sources}, SHORT)
    found = search(cpu, {"source": sources}, SHORT)
    np.testing.assert_array_equal(found.tokens, expected.tokens)
    np.testing.assert_allclose(found.scores, expected.scores, atol=TOLERANCE)
    for row, source in enumerate(sources):
        alone = search(cpu, {"source": source[None, source != 0]}, SHORT)
        length = alone.tokens.shape[-1]
        np.testing.assert_array_equal(alone.tokens[0], expected.tokens[row, :, :length])
        assert not expected.tokens[row, :, length:].any()
        np.testing.assert_allclose(alone.scores[0], expected.scores[row], atol=TOLERANCE)


@examples(4)
@given(LANGUAGE_MODELS)
def test_text_is_the_same_on_both_targets_and_in_any_batch(tmp_path: Path, made: Sample) -> None:
    portable, cpu = engines(made, tmp_path, SAMPLING)
    expected, found = sample(portable, PROMPTS, DRAWN), sample(cpu, PROMPTS, DRAWN)
    np.testing.assert_array_equal(found.tokens, expected.tokens)
    np.testing.assert_allclose(found.scores, expected.scores, atol=TOLERANCE)
    for row, prompt in enumerate(PROMPTS):
        alone = sample(cpu, [prompt], DRAWN)
        length = alone.tokens.shape[-1]
        np.testing.assert_array_equal(alone.tokens[0], expected.tokens[row, :length])
        np.testing.assert_allclose(alone.scores[0], expected.scores[row], atol=TOLERANCE)


@examples(4)
@given(LABELLED)
def test_labels_are_the_same_on_both_targets_and_in_any_batch(tmp_path: Path, made: Sample) -> None:
    portable, cpu = engines(made, tmp_path, Interface(("text",), ("probabilities",)))
    text = np.array([[5, 6, 7, 8, 9, 3], [10, 11, 3, 0, 0, 0], [12, 13, 14, 3, 0, 0]])
    (expected,), (found,) = portable.run({"text": text}), cpu.run({"text": text})
    real = text != 0 if expected.ndim == 3 else np.ones(len(text), np.bool_)
    np.testing.assert_allclose(found[real], expected[real], atol=TOLERANCE)
    for row, ids in enumerate(text):
        (alone,) = cpu.run({"text": ids[None, ids != 0]})
        np.testing.assert_allclose(
            alone[0], expected[row][real[row]] if expected.ndim == 3 else expected[row], atol=TOLERANCE
        )
