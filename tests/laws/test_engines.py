"""Every engine passes its certificate, and gives the same on both targets and in any batch."""

import shutil
from pathlib import Path

import numpy as np
from hypothesis import assume, given
from laws.models import TOLERANCE, make_model
from laws.settings import examples
from laws.specs import Sample
from laws.test_laws import LABELLED, LANGUAGE_MODELS, TRANSLATIONS

from xformc.compiler.build import build_engine
from xformc.format.interfaces import SAMPLING, SEARCH, Interface
from xformc.format.manifest import SampleOptions, SearchOptions
from xformc.runtime.generation.generate import Prompt, sample
from xformc.runtime.searching.search import search
from xformc.runtime.session import Session
from xformc.runtime.whole import whole_session

SHORT = SearchOptions(beam_size=3, n_best=2, length_penalty=0.6, max_length_factor=0.5, max_length_offset=3)
DRAWN = SampleOptions(temperature=1.0, top_k=5, top_p=0.9, max_new_tokens=5)
PROMPTS = [Prompt([5, 6, 7], 1), Prompt([], 2), Prompt([8, 4, 9, 10, 11], 3)]


def engines(made: Sample, folder: Path, interface: Interface) -> list[Session]:
    """The engines for both targets, certified."""
    model = make_model(made, folder)
    assume(model.known(model.inputs())[1] < 2 * TOLERANCE)
    weights = model.module.arrays()
    sessions: list[Session] = []
    for target in ("portable", "cpu"):
        shutil.rmtree(folder / target, ignore_errors=True)
        assert build_engine(model.spec, weights, None, target, folder / target).passed
        sessions.append(whole_session(folder / target, interface, threads=1))
    return sessions


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
