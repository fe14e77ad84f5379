"""Continuing texts with a real engine with randomly initialized weights: the runtime, and `xformc generate`."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine, mistake
from task_specs import LANGUAGE_MODEL
from tiny_engine import SENTENCES, train_tokenizer

from xformc.compiler.build import build_engine
from xformc.compiler.spec import load_spec
from xformc.errors import UserError
from xformc.runtime import Continuation, Engine, SampleArguments, load


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A language model of 24 positions, with a tokenizer."""
    path = tmp_path_factory.mktemp("language_model")
    train_tokenizer(path / "tokenizer.model")
    learned = LANGUAGE_MODEL.replace("sinusoidal", "learned").replace("heads: 2", "heads: 2, max_positions: 24")
    (path / "spec.yaml").write_text(learned + "train: {max_length: 24}\n", encoding="utf-8")
    tokenizers = {"text": path / "tokenizer.model"}
    build_engine(load_spec(path / "spec.yaml"), None, tokenizers, "portable", path / "engine")
    return path / "engine"


@pytest.fixture(scope="module")
def language_model(folder: Path) -> Engine:
    return load(folder, threads=1)


SHORT = 6


def test_generate_continues_each_prompt_whatever_the_batches(language_model: Engine) -> None:
    prompts = [*SENTENCES, "", "one", ""]
    together = language_model.generate(prompts, seed=7, max_new_tokens=SHORT)
    assert together == language_model.generate(prompts, seed=7, max_batch_tokens=1, max_new_tokens=SHORT)
    assert list(language_model.generate_stream(iter(prompts), seed=7, window=2, max_new_tokens=SHORT)) == together
    alone = [
        language_model.generate([prompt], seed=7 + row, max_new_tokens=SHORT)[0] for row, prompt in enumerate(prompts)
    ]
    assert [one.tokens for one in alone] == [one.tokens for one in together]
    assert together[-1].tokens != together[-3].tokens, "the same prompt has another seed"


def test_generate_gives_text_ids_and_log_probability(language_model: Engine) -> None:
    assert language_model.tokenizer is not None
    results = language_model.generate(["a man", ""], temperature=1.0, max_new_tokens=SHORT)
    for prompt, result in zip(("a man", ""), results, strict=True):
        ids = [*language_model.tokenizer.encode("text", prompt)[:-1], *result.tokens]
        assert prompt + result.text == language_model.tokenizer.decode("text", ids)
        assert 0 < len(result.tokens) <= 6
        assert result.score < 0


def test_generate_greedily_needs_no_seed(language_model: Engine) -> None:
    first, second = (
        language_model.generate(["hello"], temperature=0, seed=seed, max_new_tokens=SHORT) for seed in (1, 2)
    )
    assert first == second == language_model.generate(["hello"], top_k=1, seed=3, max_new_tokens=SHORT)


def test_generate_ends_where_the_positions_do(language_model: Engine) -> None:
    [found] = language_model.generate(["one two three"], max_new_tokens=1000, temperature=0)
    assert language_model.tokenizer is not None
    prompt = language_model.tokenizer.encode("text", "one two three")[:-1]
    assert len(prompt) + len(found.tokens) == 24 or found.tokens[-1] == 3


def test_generate_of_no_prompts_is_nothing(language_model: Engine) -> None:
    assert language_model.generate([]) == []


def test_generate_refuses_a_prompt_that_leaves_no_room(language_model: Engine) -> None:
    with pytest.raises(UserError, match="this engine takes at most 23") as caught:
        language_model.generate(["one", 3 * SENTENCES[5]])
    assert caught.value.place == "line 2"


def test_generate_reads_prompts_longer_than_those_of_training(tmp_path: Path) -> None:
    train_tokenizer(tmp_path / "tokenizer.model")
    (tmp_path / "spec.yaml").write_text(LANGUAGE_MODEL + "train: {max_length: 24}\n", encoding="utf-8")
    tokenizers = {"text": tmp_path / "tokenizer.model"}
    build_engine(load_spec(tmp_path / "spec.yaml"), None, tokenizers, "portable", tmp_path / "engine")
    unbounded = load(tmp_path / "engine", threads=1)
    assert unbounded.manifest.inputs["text"].longest is None
    [found] = unbounded.generate(["two dogs " * 700], max_new_tokens=2)
    assert 1 <= len(found.tokens) <= 2
    with pytest.raises(UserError, match="this engine takes at most 16,384"):
        unbounded.generate(["two dogs " * 10_000])


def test_generate_can_read_the_end_of_a_long_prompt(language_model: Engine, caplog: pytest.LogCaptureFixture) -> None:
    assert language_model.tokenizer is not None
    with caplog.at_level(logging.WARNING):
        [found] = language_model.generate([3 * SENTENCES[5]], truncate=True, temperature=0)
    assert "line 1: cut from" in caplog.text
    assert len(found.tokens) == 1


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"temperature": -0.1}, "temperature must be a number from 0 to 100, not -0.1"),
    ({"temperature": float("nan")}, "temperature must be a number"),
    ({"top_k": -1}, "top_k must be an integer from 0 to 1000000, not -1"),
    ({"top_k": 2.0}, "top_k must be an integer"),
    ({"top_p": 1.5}, "top_p must be a number from 0 to 1, not 1.5"),
    ({"max_new_tokens": 0}, "max_new_tokens must be an integer from 1 to 100000, not 0"),
    ({"seed": -1}, "seed must be an integer from 0 to 4611686018427387904, not -1"),
    ({"seed": True}, "seed must be an integer"),
    ({"max_batch_tokens": 0}, "max_batch_tokens must be 1 or more, not 0"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG, ids=[str(arguments) for arguments, _ in WRONG])
def test_generate_refuses_options_out_of_range(language_model: Engine, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as caught:
        language_model.generate(["one"], **arguments)
    assert message in caught.value.message


def test_generate_refuses_an_unknown_option(language_model: Engine) -> None:
    with pytest.raises(TypeError, match=r"unknown generation options: temprature; .*; did you mean 'temperature'"):
        language_model.generate(["one"], temprature=4)  # pyright: ignore[reportCallIssue]


def test_generate_refuses_one_text_in_place_of_a_list(language_model: Engine) -> None:
    with pytest.raises(UserError, match="generate takes a list of texts"):
        language_model.generate("one")


def test_each_task_has_its_own_method(language_model: Engine, engine: Engine) -> None:
    with pytest.raises(UserError, match="is a language_model engine; translate needs a translation engine") as caught:
        language_model.translate(["one"])
    assert "xformc generate" in (caught.value.hint or "")
    with pytest.raises(UserError, match="is a translation engine; generate needs a language_model engine"):
        engine.generate(["one"])


def test_generate_writes_each_line_continued(xformc: CommandLine, folder: Path, language_model: Engine) -> None:
    options = ("--max-new-tokens", "5", "--temperature", "0.9", "--top-k", "30", "--top-p", "0.95", "--seed", "4")
    result = xformc("generate", folder, *options, stdin="one two \n\n")
    arguments: SampleArguments = {"max_new_tokens": 5, "temperature": 0.9, "top_k": 30, "top_p": 0.95}
    first, second = language_model.generate(["one two ", ""], seed=4, **arguments)
    assert (result.code, result.err) == (0, "")
    assert result.out in (f"one two{first.text}\n{second.text}\n", f"one two {first.text}\n{second.text}\n")


def test_generate_json_is_an_object_a_line(xformc: CommandLine, folder: Path, language_model: Engine) -> None:
    result = xformc("generate", folder, "--json", "--max-new-tokens", "5", "--window", "1", stdin="one\nwords\n")
    found: list[Continuation] = language_model.generate(["one", "words"], max_new_tokens=5)
    assert [json.loads(line) for line in result.out.splitlines()] == [
        {"line": line, "text": one.text, "score": round(one.score, 6), "tokens": len(one.tokens)}
        for line, one in enumerate(found, start=1)
    ]


def test_generate_says_a_mistake_in_one_line(xformc: CommandLine, folder: Path) -> None:
    assert "--top-p must be a number from 0 to 1, not 2.0" in mistake(xformc("generate", folder, "--top-p", "2"))
