"""`xformc evaluate` of a language model on texts that are longer than its windows."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests import tiny_engine
from tests.command_line import CommandLine, mistake
from xformc.compiler.build import build_engine
from xformc.compiler.spec import load_spec
from xformc.runtime import Engine, load

TEXT = "two dogs play in the snow\n\ntwenty-one hello world\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("windows")
    size = tiny_engine.train_tokenizer(path / "tokenizer.model")
    sizes = f"sizes: {{layers: 1, d_model: 16, heads: 2, d_ff: 24, max_positions: 64, vocabulary: {size}}}"
    (path / "spec.yaml").write_text(f"extends: gpt\n{sizes}\ntrain: {{max_length: 16}}\n")
    build_engine(load_spec(path / "spec.yaml"), None, {"text": path / "tokenizer.model"}, "cpu", path / "engine")
    (path / "text.txt").write_text(TEXT)
    return path


def loss(engine: Engine, ids: list[int], context: int, stride: int) -> float:
    """The negative log likelihood of ids, each scored after at most `context` tokens by the sampling of its window."""
    found, done = 0.0, 0
    while done < len(ids):
        end = min(len(ids), done + (context if done == 0 else stride))
        start = 0 if done == 0 else done + stride - context
        if start == 0:
            (one,) = engine.score([ids[:end]])
            found -= sum(one.token_scores[done:])
        else:
            row = {"first": np.array(ids[start - 1]), "prefix": np.array(ids[start:end])}
            found -= sum(next(engine.score_rows([row])).token_scores[done - start :])
        done = end
    return found


def test_windows_and_documents_are_as_the_page_says(folder: Path, xformc: CommandLine) -> None:
    text, command = TEXT.removesuffix("\n"), ("evaluate", folder / "engine", folder / "text.txt", "--json")
    with load(folder / "engine", threads=1) as engine:
        ids = engine.tokenizer_of("text").encode("text", text)
        assert len(ids) > 20
        for options, context, stride in (
            (("--context", "8"), 8, 8),
            (("--context", "8", "--stride", "3"), 8, 3),
            (("--context", "64"), 64, 64),
            ((), 16, 16),
        ):
            found = json.loads(xformc(*command, "--document", *options).out)
            wanted = loss(engine, ids, context, stride)
            assert found["perplexity"] == pytest.approx(np.exp(wanted / len(ids)), rel=1e-4)
            assert found["bits_per_byte"] == pytest.approx(wanted / np.log(2) / len(text.encode()), rel=1e-4)
            assert found["texts"] == 1
        (whole,) = engine.score([text])
        assert loss(engine, ids, 64, 64) == pytest.approx(-whole.score, rel=1e-5)
    lines = xformc(*command[:3], "--document", "--context", "8", "--stride", "4").out.splitlines()
    assert lines[0].endswith(
        f"over {len(ids)} tokens with end tokens; computed by the engine, in windows of 8 tokens, 4 apart"
    )
    assert lines[1].endswith(f"over {len(text)} bytes of text")
    assert json.loads(xformc(*command).out)["texts"] == 2


def test_windows_that_cannot_be_are_refused(folder: Path, copy_engine: Path, xformc: CommandLine) -> None:
    command = ("evaluate", folder / "engine", folder / "text.txt")
    found = mistake(xformc(*command, "--context", "65"))
    assert found.startswith("--context must be an integer from 1 to 64, not 65")
    assert mistake(xformc(*command, "--stride", "17")).startswith("--stride must be an integer from 1 to 16, not 17")
    found = mistake(xformc("evaluate", copy_engine, "a", "b", "--document", "--stride", "4"))
    assert found.startswith("--stride and --document do not apply to a translation engine")
