"""Streams of tokens: the text of a language model as it is sampled."""

import asyncio
import json
import shutil
import threading
from pathlib import Path

import pytest

from tests import tiny_engine
from tests.command_line import CommandLine, mistake
from tests.runtime.kernel_session import kernel_library
from xformc.compiler.build import build_engine
from xformc.compiler.certify.certify import engine_parameters
from xformc.compiler.spec import load_spec
from xformc.errors import UserError
from xformc.runtime import Engine, load
from xformc.runtime.libxformc import CppEngine

SPEC = """\
extends: gpt
sizes: {layers: 1, d_model: 16, heads: 2, d_ff: 24, vocabulary: PIECES}
"""
PROMPT = "two dogs play in the snow"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the same engine for the targets cpu and native, with random weights and a tokenizer."""
    path = tmp_path_factory.mktemp("streams")
    size = tiny_engine.train_tokenizer(path / "tokenizer.model")
    (path / "spec.yaml").write_text(SPEC.replace("PIECES", str(size)))
    build_engine(load_spec(path / "spec.yaml"), None, {"text": path / "tokenizer.model"}, "cpu", path / "cpu")
    return path


def check(engine: Engine, cpp: CppEngine, prompt: str, at_once: int, seed: int, **options: float) -> None:
    """A stream has the tokens, the score and the text of one call, and the pieces of libxformc."""
    (whole,) = engine.generate([prompt], seed=seed, **options)  # pyright: ignore[reportArgumentType]
    stream = engine.stream_tokens(prompt, seed=seed, tokens_at_once=at_once, **options)  # pyright: ignore[reportArgumentType]
    pieces = list(stream)
    assert stream.continuation == whole and "".join(pieces) == whole.text
    other = cpp.stream_tokens(prompt, seed=seed, tokens_at_once=at_once, **options)
    assert other.continuation == whole and list(other) == pieces
    assert at_once > 1 or len(pieces) > len(whole.tokens) / 2 or len(whole.tokens) < 4


@pytest.mark.processor
def test_a_stream_is_one_call_for_any_number_of_tokens_at_once(folder: Path) -> None:
    kernel_library()
    spec = load_spec(folder / "spec.yaml")
    arrays = engine_parameters(spec.graph(), folder / "cpu" / "model.onnx")
    build_engine(spec, arrays, {"text": folder / "tokenizer.model"}, "native", folder / "native")
    for target in ("cpu", "native"):
        cpp = CppEngine(folder / target, threads=1)
        with load(folder / target, threads=1) as engine:
            for at_once in (1, 3, 100):
                check(engine, cpp, PROMPT, at_once, seed=5, max_new_tokens=12)
            check(engine, cpp, "", 2, seed=0, max_new_tokens=9, temperature=0.7, top_k=20, top_p=0.9)
            check(engine, cpp, "one", 2, seed=3, max_new_tokens=40, temperature=0.0)
            check(engine, cpp, PROMPT, 1, seed=1, max_new_tokens=1)
            check(engine, cpp, PROMPT, 3, seed=2, max_new_tokens=20, no_repeat_ngram_size=1, presence_penalty=0.5)


def test_streams_run_beside_each_other_and_asynchronously(folder: Path) -> None:
    async def read(engine: Engine, seed: int) -> str:
        async with engine.stream_tokens(PROMPT, seed=seed, max_new_tokens=10) as stream:
            return "".join([piece async for piece in stream])

    async def both(engine: Engine) -> list[str]:
        return list(await asyncio.gather(*(read(engine, seed) for seed in range(3))))

    with load(folder / "cpu", threads=1) as engine:
        found = engine.generate([PROMPT] * 3, max_new_tokens=10)
        assert asyncio.run(both(engine)) == [one.text for one in found]


def test_closing_a_stream_ends_it(folder: Path) -> None:
    """Also the call that is running: the greedy text has 1,000 tokens."""
    with load(folder / "cpu", threads=1) as engine:
        assert len(engine.generate([PROMPT], max_new_tokens=1000, temperature=0.0)[0].tokens) == 1000
        stream = engine.stream_tokens(PROMPT, max_new_tokens=10)
        assert next(stream)
        stream.close()
        assert list(stream) == [] and 1 <= len(stream.tokens) < 10
        stream = engine.stream_tokens(PROMPT, max_new_tokens=1000, tokens_at_once=1000, temperature=0.0)
        threading.Timer(0.03, stream.close).start()
        assert list(stream) == [] and stream.tokens == []

        async def cancelled() -> int:
            stream = engine.stream_tokens(PROMPT, max_new_tokens=1000, tokens_at_once=1000, temperature=0.0)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(stream), 0.03)
            return len([piece async for piece in stream])

        assert asyncio.run(cancelled()) == 0
        with engine.stream_tokens(PROMPT) as stream:
            pass
        assert list(stream) == []


def test_a_stream_that_cannot_be_is_refused(folder: Path, tmp_path: Path) -> None:
    with load(folder / "cpu", threads=1) as engine:
        with pytest.raises(UserError, match="tokens_at_once must be an integer from 1 to 1024, not 0"):
            engine.stream_tokens("a", tokens_at_once=0)
        with pytest.raises(UserError, match="line 1: a text must be a str, found list"):
            engine.stream_tokens(["a"])  # pyright: ignore[reportArgumentType]
    with pytest.raises(UserError, match="the engine is closed"):
        next(engine.stream_tokens("a"))
    older = shutil.copytree(folder / "cpu", tmp_path / "older")
    (older / "prompt.onnx").unlink()
    tiny_engine.write_manifest(older, json.loads((older / "engine.json").read_text()))
    with load(older, threads=1) as engine, pytest.raises(UserError, match="spec has no streams of tokens"):
        engine.stream_tokens("a")
    shutil.copy(older / "scores.onnx", older / "prompt.onnx")
    tiny_engine.write_manifest(older, json.loads((older / "engine.json").read_text()))
    with load(older, threads=1) as engine, pytest.raises(UserError, match="not an xformc model: it lacks prompt"):
        next(engine.stream_tokens("a"))


def test_the_command_line_streams_and_reads_json(folder: Path, tmp_path: Path, xformc: CommandLine) -> None:
    (tmp_path / "in").write_text("two dogs \n\nhello\n")
    options = ("-i", tmp_path / "in", "--max-new-tokens", "6", "--seed", "3")
    command = ("generate", folder / "cpu", *options)
    assert xformc(*command, "--stream").out == xformc(*command).out == xformc(*command, "--no-stream").out
    assert mistake(xformc(*command, "--stream", "--json")).startswith("--stream prints text")
    with load(folder / "cpu", threads=1) as engine:
        found = engine.generate(["two\ndogs", "one"], max_new_tokens=6, seed=3)
    (tmp_path / "in").write_text('"two\\ndogs"\n{"prompt": "one"}\n')
    lines = xformc(*command, "--json", "--json-input").out.splitlines()
    assert [json.loads(line)["text"] for line in lines] == [one.text for one in found]
    assert mistake(xformc(*command, "--json-input")).startswith("--json-input needs --json")
    wrong = {"1": "the line has no text", "two": "not JSON", "[" * 100_000: "not JSON"}
    for text, message in wrong.items():
        (tmp_path / "in").write_text(text + "\n")
        assert mistake(xformc(*command, "--json", "--json-input")).startswith(f"line 1: {message}")
    (tmp_path / "in").write_text("two\n" + "two dogs " * 600 + "\n")
    refused = xformc(*command, "--stream")
    assert "error: line 2: " in refused.err and "cut it with --truncate" in refused.err
