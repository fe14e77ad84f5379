"""Sampling in the engine agrees with its definition, token by token and score by score."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray

from tests.programs import with_inputs
from tests.runtime.kernel_session import kernel_library
from tests.task_specs import LANGUAGE_MODEL
from xformc.compiler.backends.onnx.emitter import Emitter, model
from xformc.compiler.backends.onnx.initializers import Initializers, save_models
from xformc.compiler.backends.onnx.models import emit_engine
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.certify.reference_sampling import Followed, draw, follow, uniform
from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.pipeline import compile_engine
from xformc.compiler.search.random_numbers import emit_stream, emit_uniform
from xformc.compiler.spec import load_spec
from xformc.format.manifest import SampleOptions
from xformc.format.names import MODEL
from xformc.format.targets import Target
from xformc.runtime.options import arrays
from xformc.runtime.session import open_model

pytestmark = pytest.mark.processor

ALL = SampleOptions(temperature=1.0, top_k=0, top_p=1.0, max_new_tokens=12)
OPTIONS = {
    "greedy": replace(ALL, temperature=0.0),
    "all": ALL,
    "warm": replace(ALL, temperature=2.5),
    "top k": replace(ALL, top_k=5),
    "top p": replace(ALL, top_p=0.6),
    "both": replace(ALL, temperature=0.7, top_k=9, top_p=0.9),
    "more than the vocabulary": replace(ALL, top_k=1000),
    "nothing but the best": replace(ALL, top_p=0.0),
    "no bigram twice": replace(ALL, temperature=0.0, no_repeat_ngram_size=2, suppress_tokens=(30, 7)),
    "penalties": replace(ALL, top_k=5, repetition_penalty=1.5, presence_penalty=0.3, frequency_penalty=-0.2),
    "all are banned": replace(ALL, suppress_tokens=tuple(range(80))),
}
PROMPTS = [[], [7], [9, 4, 30, 31], [7, 8], [40, 41, 42, 43, 44, 45, 46]]
END = 3


@dataclass(frozen=True)
class LanguageModel:
    """An engine with random weights and its training form. The end token is likely, so that texts end."""

    module: TorchModule
    session: onnxruntime.InferenceSession

    def logits(self, text: NDArray[np.int64]) -> NDArray[np.float32]:
        with torch.inference_mode():
            return self.module(torch.tensor(text)).numpy()

    def run(
        self, prompts: Sequence[Sequence[int]], seeds: Sequence[int], options: SampleOptions, end: int = END
    ) -> tuple[list[list[int]], NDArray[np.float32]]:
        array = np.zeros((len(prompts), max(map(len, prompts))), np.int64)
        for row, prompt in enumerate(prompts):
            array[row, : len(prompt)] = prompt
        feeds = {
            "prompt": array,
            "seed": np.array(seeds, np.int64),
            **{name: value[None] for name, value in arrays(options).items()},
            "end_token": np.array(end, np.int64),
        }
        tokens, lengths, scores = map(np.asarray, self.session.run(["tokens", "lengths", "scores"], feeds))
        assert tokens.shape == (len(prompts), lengths.max(initial=0))
        assert (tokens[np.arange(tokens.shape[1]) >= lengths[:, None]] == 0).all()
        return [row[:length].tolist() for row, length in zip(tokens, lengths, strict=True)], scores


Make = Callable[..., LanguageModel]


DECODERS = {"cache": "causal_self_attention", "ring": "local", "sum": "cumulative_sum", "gru": "gru", "lstm": "lstm"}
"""What carries the past in a step, and the block that does so."""

LOCAL = """
blocks:
  local:
    do:
      keys: {as_keys: {from: x, window: 3}}
      scores: {contract: {from: x, by: keys, over: d_model}}
      seen: {mask: {causal: true}}
      weights: {softmax: keys}
      mixed: {contract: {by: keys, over: keys}}
"""


def spec_with(block: str) -> str:
    """The language model with this block for its attention."""
    text = LANGUAGE_MODEL.replace("causal_self_attention", block)
    if block != "causal_self_attention":
        text = text.replace("heads: 2, d_k: 4, d_v: 4, ", "")
    return text + LOCAL if block == "local" else text


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def build(
        seed: int = 0, *, longest: int | None = None, target: Target = "portable", decoder: str = "cache"
    ) -> LanguageModel:
        if target == "native":
            kernel_library()
        path = tmp_path / f"{decoder}.yaml"
        path.write_text(spec_with(DECODERS[decoder]), encoding="utf-8")
        program = compile_engine(load_spec(path), target)
        program = with_inputs(program, {"text": replace(program.inputs["text"], longest=longest)})
        module = TorchModule(program.graph, seed=seed).eval()
        with torch.no_grad():
            module.get_parameter("logits.bias")[END] = 1.0
        weights = Initializers(module.arrays())
        save_models(emit_engine(program, weights), weights, tmp_path)
        onnx.checker.check_model(str(tmp_path / MODEL), full_check=True)
        return LanguageModel(module, open_model(tmp_path / MODEL, target=target))

    return build


def followed(
    lm: LanguageModel, options: SampleOptions, seeds: Sequence[int], longest: int | None = None
) -> list[Followed]:
    tokens, scores = lm.run(PROMPTS, seeds, options)
    results = [
        follow(lm.logits, prompt, found, seed, options, longest=longest)
        for prompt, found, seed in zip(PROMPTS, tokens, seeds, strict=True)
    ]
    np.testing.assert_allclose(scores, [one.score for one in results], atol=1e-4)
    return results


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("target", ["portable", "cpu", "native"])
def test_sampling_draws_what_the_definition_draws(make: Make, name: str, target: Target) -> None:
    lm = make(5, target=target)
    seeds = (0, 100, -(2**63), 2**63 - 9)
    results = [one for seed in seeds for one in followed(lm, OPTIONS[name], range(seed, seed + len(PROMPTS)))]
    assert [one.problem for one in results] == [""] * len(results)
    assert sum(one.decided for one in results) > 0.9 * sum(one.tokens for one in results)


@pytest.mark.parametrize("target", ["portable", "native"])
@pytest.mark.parametrize("decoder", DECODERS)
def test_sampling_reads_prompts_with_any_step(make: Make, decoder: str, target: Target) -> None:
    results = followed(make(2, decoder=decoder, target=target), replace(ALL, top_k=20), range(5))
    assert [one.problem for one in results] == [""] * 5
    assert sum(one.decided for one in results) > 0.8 * sum(one.tokens for one in results)


def test_sampling_ends_texts_at_the_end_token_and_at_the_limit(make: Make) -> None:
    tokens, _ = make(1).run([[]] * 40, range(40), ALL)
    ended = [row for row in tokens if row[-1] == END]
    assert 0 < len(ended) < 40 and any(len(row) < ALL.max_new_tokens for row in ended)
    assert all(len(row) == ALL.max_new_tokens for row in tokens if row[-1] != END)


def test_sampling_takes_another_end_token(make: Make) -> None:
    tokens, _ = make(1).run(PROMPTS, range(5), ALL, end=-1)
    assert [len(row) for row in tokens] == [ALL.max_new_tokens] * 5


def test_sampling_keeps_to_the_positions_of_the_model(make: Make) -> None:
    results = followed(make(1, longest=7), replace(ALL, temperature=0.0), range(5), longest=7)
    assert [one.problem for one in results] == [""] * 5
    assert results[4].tokens == 0, "a prompt that fills the model has no continuation"


def test_sampling_does_not_depend_on_the_neighbours(make: Make) -> None:
    lm = make(2)
    together, scores = lm.run(PROMPTS, range(5), ALL)
    for row, prompt in enumerate(PROMPTS):
        alone, score = lm.run([prompt], [row], ALL)
        assert alone == [together[row]]
        np.testing.assert_allclose(score, scores[row], atol=1e-4)


def test_sampling_with_a_seed_goes_on_where_its_own_text_ends(make: Make) -> None:
    lm = make(3)
    [whole], _ = lm.run([[7, 8]], [5], ALL, end=-1)
    [rest], _ = lm.run([[7, 8, *whole[:4]]], [5], ALL, end=-1)
    assert rest[: len(whole) - 4] == whole[4:]


def test_sampling_with_other_seeds_gives_other_texts(make: Make) -> None:
    tokens, _ = make(3).run([[7]] * 8, range(8), ALL)
    assert len({tuple(row) for row in tokens}) == 8


def test_engine_has_defaults_for_all_but_prompt_and_seed(make: Make) -> None:
    session = make().session
    assert [value.name for value in session.get_inputs()] == ["prompt", "seed"]
    found = session.run(None, {"prompt": np.zeros((2, 0), np.int64), "seed": np.arange(2)})
    tokens, lengths, _ = map(np.asarray, found)
    assert tokens.shape == (2, lengths.max())


def uniforms(seeds: Sequence[int], places: Sequence[int]) -> NDArray[np.float32]:
    emitter = Emitter(Initializers({}))
    place = emitter.op("Unsqueeze", "place", [1])
    emitter.op("Identity", emit_uniform(emitter, emit_stream(emitter, "seed"), place), name="uniform")
    batch, places_axis = Axis("batch"), Axis("places")
    inputs = [("seed", Type("int64", (batch,))), ("place", Type("int64", (places_axis,)))]
    made = model(emitter, "uniform", inputs, [("uniform", Type("float32", (places_axis, batch)))])
    session = onnxruntime.InferenceSession(made.SerializeToString())
    found = session.run(None, {"seed": np.array(seeds, np.int64), "place": np.array(places, np.int64)})
    return np.asarray(found[0])


def test_uniform_of_the_engine_is_that_of_the_reference() -> None:
    seeds, places = [0, 1, -1, 2**63 - 1, -(2**63)], [0, 1, 2, 77, 10**6]
    expected = [[uniform(seed, place) for seed in seeds] for place in places]
    np.testing.assert_array_equal(uniforms(seeds, places), np.array(expected, np.float32))


def test_uniform_is_the_generator_of_its_paper() -> None:
    """From the seed 0, SplitMix64 is known to begin with these numbers; a stream begins at its first number."""
    first = 0xE220A8397B1DCDAF
    state, value = first, []
    for _ in range(2):
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        mixed = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB % 2**64
        value.append(((mixed ^ (mixed >> 31)) >> 40) / 2**24)
    assert [uniform(0, 1), uniform(0, 2)] == value


@pytest.mark.parametrize("grid", [(2000, 50), (50, 2000)])
def test_uniform_fills_its_interval_evenly(grid: tuple[int, int]) -> None:
    """Chi-square over 100 cells of 100,000 numbers (99 degrees of freedom: 160 is beyond 1 in 5,000), and no trend."""
    values = uniforms(range(grid[0]), range(1, grid[1] + 1))
    assert values.min() >= 0 and values.max() < 1
    counts = np.histogram(values, 100, (0, 1))[0]
    assert ((counts - 1000) ** 2 / 1000).sum() < 160
    for first, second in ((values[1:], values[:-1]), (values[:, 1:], values[:, :-1])):
        assert abs(np.corrcoef(first.ravel(), second.ravel())[0, 1]) < 0.015


def test_draw_follows_the_probabilities() -> None:
    logits = np.log(np.array([0.1, 0.4, 0.2, 0.3], np.float32))
    drawn = [draw(logits, uniform(seed, 1), ALL).token for seed in range(20000)]
    np.testing.assert_allclose(np.bincount(drawn) / 20000, [0.1, 0.4, 0.2, 0.3], atol=0.012)


@pytest.mark.parametrize(
    ("changes", "allowed"),
    [
        ({"top_k": 2}, {1, 3}),
        ({"top_p": 0.4}, {1}),
        ({"top_p": 0.41}, {1, 3}),
        ({"top_k": 2, "top_p": 0.6}, {1, 3}),
        ({"top_k": 2, "top_p": 0.57}, {1}),
        ({"temperature": 0.0}, {1}),
    ],
)
def test_draw_keeps_to_what_the_filters_leave(changes: dict[str, float], allowed: set[int]) -> None:
    logits = np.log(np.array([0.1, 0.4001, 0.1999, 0.3], np.float32))
    options = replace(ALL, **changes)
    assert {draw(logits, k / 64, options).token for k in range(64)} == allowed


def test_draw_goes_by_the_ids_of_tokens() -> None:
    logits = np.zeros(4, np.float32)
    assert [draw(logits, u, ALL).token for u in (0.0, 0.3, 0.5, 0.99)] == [0, 1, 2, 3]
    assert draw(logits, 0.25, ALL).margin == 0.0


def test_draw_keeps_the_equals_of_the_last_token_that_remains() -> None:
    logits = np.array([0, 1, 1, 1], np.float32)
    for options in (replace(ALL, top_k=2), replace(ALL, top_p=0.4)):
        assert {draw(logits, k / 64, options).token for k in range(64)} == {1, 2, 3}
    assert {draw(logits, k / 64, replace(ALL, temperature=0.0)).token for k in range(64)} == {1}


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        ([3, 7], "it goes on after the end token"),
        ([7, 8], "it has 2 tokens without an end, of at most 3"),
        ([7] * 4, "it has 4 tokens without an end, of at most 3"),
        ([6, 6, 6], "token 2 is 6, not 5"),
    ],
)
def test_follow_says_what_is_wrong(found: list[int], problem: str) -> None:
    def scorer(text: NDArray[np.int64]) -> NDArray[np.float32]:
        return np.broadcast_to(np.arange(9) == 5, (*text.shape, 9)).astype(np.float32)

    options = replace(ALL, temperature=0.0, max_new_tokens=3)
    assert follow(scorer, [4], found, 0, options).problem == problem
