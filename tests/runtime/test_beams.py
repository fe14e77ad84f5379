"""Continuations that a language model searches for: the certificate compares the search, these tests the rest."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.command_line import CommandLine, mistake
from tests.runtime.small_engines import TEXTS, SmallEngines
from xformc.errors import UserError
from xformc.runtime import Continuation, Engine, load

BEAMS: dict[str, Any] = {"beam_size": 4, "n_best": 3, "max_new_tokens": 9}
PROMPTS = [*TEXTS, "", "one two three"]


@pytest.fixture(scope="module")
def folder(small_engines: SmallEngines) -> Path:
    return small_engines("sample", "portable")


@pytest.fixture(scope="module")
def engine(folder: Path) -> Engine:
    return load(folder, threads=1)


def several(one: Continuation) -> tuple[Continuation, ...]:
    return (one, *one.others)


def tokens(found: list[Continuation]) -> list[list[tuple[int, ...]]]:
    return [[other.tokens for other in several(one)] for one in found]


@pytest.mark.processor
def test_a_prompt_has_the_continuations_that_it_has_alone(small_engines: SmallEngines) -> None:
    engine = load(small_engines("sample", "native"), threads=1)
    options: dict[str, Any] = {
        "length_penalty": [0.0, 1.0, 0.6, 2.0, None, 1.5, 0.3, 1.0],
        "max_new_tokens": [4, 9, 6, 1, 8, 7, 5, 3],
        "suppress_tokens": [[], [5, 9, 11], None, [7], [40], [3], [], None],
    }
    beams: dict[str, Any] = {**BEAMS, "preset": "huggingface"}
    together = engine.generate(PROMPTS, **beams | options)
    assert {len(one.others) for one in together} == {2}
    for row, prompt in enumerate(PROMPTS):
        own = {name: values[row] for name, values in options.items() if values[row] is not None}
        assert engine.generate([prompt], **{**beams, **own})[0] == together[row], "to the bit"
        assert all(len(one.tokens) <= own.get("max_new_tokens", 9) for one in several(together[row]))


def test_scores_are_those_of_the_tokens(engine: Engine) -> None:
    found = engine.generate(PROMPTS, **BEAMS, length_penalty=0.0, token_scores=True)
    for one in found:
        assert [other.score for other in several(one)] == sorted((other.score for other in several(one)), reverse=True)
        for other in several(one):
            assert other.score == pytest.approx(sum(other.token_scores), abs=1e-4)
            assert len(other.token_scores) == len(other.tokens)


def test_a_beam_of_one_is_greedy(engine: Engine) -> None:
    found = engine.generate(PROMPTS, beam_size=1, max_new_tokens=9)
    assert tokens(found) == tokens(engine.generate(PROMPTS, temperature=0.0, max_new_tokens=9))
    assert list(engine.generate_stream(iter(PROMPTS), beam_size=1, max_new_tokens=9, window=3)) == found


def test_a_text_has_no_token_that_is_suppressed_and_its_least_length(engine: Engine) -> None:
    free = engine.generate(PROMPTS, **BEAMS)
    first = [one.tokens[0] for one in free]
    each: Any = [{"suppress_tokens": [token], "min_length": 4} for token in first]
    found = engine.generate(PROMPTS, **BEAMS, each=each)
    for token, one in zip(first, found, strict=True):
        assert all(token not in other.tokens and len(other.tokens) >= 4 for other in several(one))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_best": 2}, "n_best: no effect on sampling"),
        ({"length_penalty": [1.0, 2.0]}, "length_penalty: no effect on sampling"),
        ({"each": [{"stop_rule": "best"}, {}]}, "line 1: stop_rule: no effect on sampling"),
        ({"beam_size": 2, "temperature": 0.5}, "temperature: no effect on a search"),
        ({"beam_size": 2, "seed": 3}, "seed: no effect on a search"),
        ({"beam_size": 2, "each": [{"seed": 3}, {}]}, "line 1: seed: no effect on a search"),
        ({"beam_size": 2, "each": [{"top_k": 3}, {}]}, "line 1: top_k: no effect on a search"),
        ({"beam_size": 2, "draft": "lookup"}, "draft has no effect on a search"),
        ({"beam_size": 2, "stop": ["x"]}, "stop has no effect on a search"),
        ({"beam_size": 2, "slots": 2}, "slots has no effect on a search"),
        ({"beam_size": 2, "n_best": 3}, "n_best must be at most beam_size"),
        ({"beam_size": 10**6}, "beam_size must be an integer from 1 to"),
        ({"beam_size": 2, "max_new_tokens": 0}, "max_new_tokens must be an integer from 1"),
        ({"beam_size": 4, "beam_groups": 3}, "beam_groups must divide beam_size"),
    ],
)
def test_options_without_effect_and_wrong_ones_are_refused(
    engine: Engine, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError) as caught:
        engine.generate(["one", "two"], **options)
    assert message in str(caught.value)


def test_a_misspelled_option_of_a_search_is_named(engine: Engine) -> None:
    with pytest.raises(TypeError, match=r"unknown generation options: beam; .*; did you mean 'beam_size'"):
        engine.generate(["one"], beam=4)  # type: ignore[call-arg]


def test_engines_without_the_model_say_so(engine: Engine) -> None:
    files = {name: record for name, record in engine.manifest.files.items() if name != "beams.onnx"}
    other = replace(engine, manifest=replace(engine.manifest, files=files))
    with pytest.raises(UserError, match="has no beam search") as caught:
        other.generate(["one"], beam_size=2)
    assert caught.value.hint == "build with --target native, cpu or portable"


def test_the_command_prints_the_best_texts(xformc: CommandLine, folder: Path, engine: Engine, tmp_path: Path) -> None:
    given = tmp_path / "prompts.txt"
    given.write_text("one\na man\n")
    found = engine.generate(["one", "a man"], **BEAMS)
    options = ("--beam-size", "4", "--max-new-tokens", "9")
    texts = xformc("generate", folder, "-i", given, *options)
    assert texts.out.splitlines() == [one.after(prompt) for one, prompt in zip(found, ("one", "a man"), strict=True)]
    lines = xformc("generate", folder, "-i", given, *options, "--n-best", "3").out.splitlines()
    wanted = [(row, other) for row, one in enumerate(found) for other in several(one)]
    for line, (row, one) in zip(lines, wanted, strict=True):
        index, text, features, score = line.split(" ||| ")
        assert (int(index), text) == (row, one.after(("one", "a man")[row]))
        assert float(score) == pytest.approx(one.score, abs=1e-4) and f"length= {len(one.tokens)}" in features
    told = xformc("generate", folder, "-i", given, *options, "--n-best", "3", "--json").out.splitlines()
    first = json.loads(told[0])
    assert [first["text"], *(one["text"] for one in first["others"])] == [one.text for one in several(found[0])]
    assert np.isclose(first["others"][1]["score"], found[0].others[1].score, atol=1e-5)
    assert "no effect on sampling" in mistake(xformc("generate", folder, "-i", given, "--n-best", "2"))
    assert "--stream has no effect" in mistake(xformc("generate", folder, "-i", given, "--stream", "--beam-size", "2"))
