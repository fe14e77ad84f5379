"""The search for continuations agrees with the plain search behind the prompt, token by token and score by score."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests.compiler.test_sample import DECODERS, spec_with
from tests.programs import with_inputs
from tests.runtime.kernel_session import kernel_library
from xformc.compiler.backends.onnx.initializers import Initializers, save_models
from xformc.compiler.backends.onnx.models import beams_model
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.certify.reference_search import Found, rescore, rounds, together
from xformc.compiler.pipeline import compile_engine, run_beams, run_passes
from xformc.compiler.program import Program
from xformc.compiler.spec import load_spec
from xformc.format.manifest import SearchOptions
from xformc.format.names import BEAMS
from xformc.format.search_options import OPTIONS as ALL
from xformc.format.targets import Target
from xformc.format.tokens import SpecialTokens
from xformc.runtime.options import arrays
from xformc.runtime.session import open_model

pytestmark = pytest.mark.processor

END, ROUNDING = 3, 1e-4
OF_SOURCES = ("prefix_bias", "coverage_penalty")
ABSENT: dict[str, Any] = {one.name: one.absent for one in ALL if one.absent is not None and one.name not in OF_SOURCES}
PLAIN = SearchOptions(3, 3, 0.6, 0.0, 8, **ABSENT)
OPTIONS = {
    "plain": PLAIN,
    "greedy": replace(PLAIN, beam_size=1, n_best=1),
    "average": replace(PLAIN, length_penalty=1.0, length_penalty_kind="average", stop_rule="best"),
    "complete": replace(PLAIN, length_penalty=2.0, length_penalty_kind="average", stop_rule="complete"),
    "shrink": replace(PLAIN, beam_size=4, n_best=4, stop_rule="shrink", length_penalty=0.0),
    "long": replace(PLAIN, min_length=5, patience=2.0),
    "edits": replace(PLAIN, no_repeat_ngram_size=2, repetition_penalty=1.4, suppress_tokens=(30, 7)),
    "groups": replace(PLAIN, beam_size=4, n_best=4, beam_groups=2, diversity_penalty=0.7),
    "by prompt": replace(PLAIN, max_length_factor=0.5, max_length_offset=2),
}
PROMPTS = [[], [7], [9, 4, 30, 31], [7, END, 8], [40, 41, 42, 43, 44, 45, 46]]
"""One has an end token, which ends nothing there."""


@dataclass(frozen=True)
class LanguageModel:
    """The model that searches, of random weights with a likely end token, and its training form."""

    program: Program
    module: TorchModule
    session: Any

    @property
    def special(self) -> SpecialTokens:
        return self.program.inputs["text"].special

    def logits(self, text: NDArray[np.int64]) -> NDArray[np.float32]:
        with torch.inference_mode():
            return self.module(torch.tensor(text)).numpy()

    def expected(self, prompts: Sequence[Sequence[int]], options: SearchOptions) -> list[Found]:
        longest = self.program.longest
        searches = [rounds(len(prompt), options, longest, self.special, prompt=prompt) for prompt in prompts]
        return together(searches, lambda written: [self.logits(texts) for texts in written.values()])

    def run(
        self, prompts: Sequence[Sequence[int]], options: SearchOptions
    ) -> tuple[list[list[tuple[int, ...]]], NDArray[np.float32]]:
        array = np.zeros((len(prompts), max(map(len, prompts))), np.int64)
        for row, prompt in enumerate(prompts):
            array[row, : len(prompt)] = prompt
        given = {
            name: value if name in ("beam_size", "n_best", "beam_groups") else value[None]
            for name, value in arrays(options).items()
        }
        feeds = {"prompt": array, **given, "end_token": np.array(self.special.as_input(self.special.end), np.int64)}
        tokens, lengths, scores = map(np.asarray, self.session.run(["tokens", "lengths", "scores"], feeds))
        assert tokens.shape == (*lengths.shape, lengths.max(initial=0))
        assert (tokens[np.arange(tokens.shape[2]) >= lengths[..., None]] == 0).all()
        texts = [
            [tuple(one[:length].tolist()) for one, length in zip(*row, strict=True)]
            for row in zip(tokens, lengths, strict=True)
        ]
        return texts, scores


Make = Callable[..., LanguageModel]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def build(
        *,
        longest: int | None = None,
        target: Target = "portable",
        decoder: str = DECODERS["cache"],
        ends: tuple[int, ...] = (END,),
    ) -> LanguageModel:
        if target == "native":
            kernel_library()
        path = tmp_path / "spec.yaml"
        special = f"special_tokens: {{end: {[*ends]}}}\n" if len(ends) > 1 else ""
        path.write_text(special + spec_with(decoder), encoding="utf-8")
        program = compile_engine(load_spec(path), target)
        program = with_inputs(program, {"text": replace(program.inputs["text"], longest=longest)})
        module = TorchModule(program.graph, seed=1).eval()
        with torch.no_grad():
            module.get_parameter("logits.bias")[[*ends]] = 1.5
        weights, beams = Initializers(module.arrays()), run_beams(program)
        assert beams is not None
        save_models({BEAMS: beams_model(run_passes(program), beams, weights)}, weights, tmp_path)
        return LanguageModel(program, module, open_model(tmp_path / BEAMS, target=target))

    return build


def assert_expected(lm: LanguageModel, options: SearchOptions, prompts: Sequence[Sequence[int]] = PROMPTS) -> None:
    texts, scores = lm.run(prompts, options)
    clear = 0
    for prompt, found, row, expected in zip(prompts, texts, scores, lm.expected(prompts, options), strict=True):
        if found != [one.tokens for one in expected.hypotheses]:
            assert expected.margin < ROUNDING, f"{prompt}: {found} is not {expected}"
        clear += expected.margin >= ROUNDING
        wanted = [rescore(lm.logits, lm.special, tokens, options, prompt=prompt) for tokens in found]
        if options.beam_groups == 1:
            np.testing.assert_allclose(row, wanted, atol=ROUNDING)
    assert clear >= len(prompts) - 1


@pytest.mark.parametrize("target", ["portable", "native"])
def test_hypotheses_are_those_of_the_plain_search(make: Make, target: Target) -> None:
    lm = make(target=target)
    for options in OPTIONS.values():
        assert_expected(lm, options)


@pytest.mark.parametrize("target", ["portable", "native"])
@pytest.mark.parametrize("decoder", [name for name in DECODERS if name != "cache"])
def test_any_decoder_searches(make: Make, target: Target, decoder: str) -> None:
    assert_expected(make(target=target, decoder=DECODERS[decoder]), OPTIONS["average"])


@pytest.mark.parametrize("target", ["portable", "native"])
def test_a_text_ends_where_the_positions_do(make: Make, target: Target) -> None:
    lm = make(longest=9, target=target)
    assert_expected(lm, replace(PLAIN, min_length=8))
    texts, _ = lm.run(PROMPTS, replace(PLAIN, min_length=8))
    assert [len(row[0]) for row in texts] == [8, 8, 5, 6, 2]


@pytest.mark.parametrize("target", ["portable", "native"])
@pytest.mark.parametrize("name", ["plain", "greedy", "average", "long", "groups"])
def test_a_search_of_several_end_tokens_ends_with_any(make: Make, target: Target, name: str) -> None:
    """They are likelier than most tokens, so that a hypothesis has several continuations that end."""
    lm = make(target=target, ends=(END, 5, 8, 11))
    assert_expected(lm, OPTIONS[name])
    texts, _ = lm.run(PROMPTS, OPTIONS[name])
    assert len({text[-1] for row in texts for text in row}) > 2
    assert all(len(row) == OPTIONS[name].n_best and all(row) for row in texts)


def test_the_defaults_of_the_search_stand_beside_those_of_sampling(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    more = "{preset: huggingface, beam_size: 5, n_best: 2, suppress_tokens: [7], sample: {max_new_tokens: 30}}"
    head, _, _ = spec_with(DECODERS["cache"]).partition("decode:")
    path.write_text(f"{head}decode: {more}\n", encoding="utf-8")
    found = compile_engine(load_spec(path), "portable").beams
    changes: dict[str, Any] = {"length_penalty_kind": "average", "stop_rule": "best", "suppress_tokens": (7,)}
    assert found == replace(PLAIN, beam_size=5, n_best=2, length_penalty=1.0, max_length_offset=30, **changes)
    assert compile_engine(load_spec(path), "cuda").beams is None
    path.write_text(head.replace("vocabulary: 80", "vocabulary: 6"), encoding="utf-8")
    narrow = compile_engine(load_spec(path), "portable").beams
    assert narrow is not None and narrow.beam_size == 3, "half of the vocabulary"
