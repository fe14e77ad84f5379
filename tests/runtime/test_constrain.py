"""Constraints: whatever a model with random weights writes matches them."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema import validate

from tests import tiny_engine
from tests.command_line import CommandLine, mistake
from tests.imports.test_tokenizers import write_byte_pairs
from xformc.compiler.build import build_engine
from xformc.compiler.spec import load_spec
from xformc.errors import UserError
from xformc.runtime import load

SPEC = """\
extends: gpt
sizes: {layers: 1, d_model: 16, heads: 2, d_ff: 24, vocabulary: PIECES}
"""
END = 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An engine with random weights."""
    path = tmp_path_factory.mktemp("constraints")
    size = tiny_engine.train_tokenizer(path / "tokenizer.model")
    (path / "spec.yaml").write_text(SPEC.replace("PIECES", str(size)))
    build_engine(load_spec(path / "spec.yaml"), None, {"text": path / "tokenizer.model"}, "portable", path / "engine")
    return path / "engine"


def test_a_function_says_which_tokens_may_follow(folder: Path) -> None:
    with load(folder, threads=1) as engine:
        free = engine.generate(["two dogs"], max_new_tokens=6, seed=3)
        assert engine.generate(["two dogs"], max_new_tokens=6, seed=3, allowed=lambda _: range(80)) == free
        seen: list[list[int]] = []

        def even(tokens: Any) -> list[int]:
            seen.append([*tokens])
            return [*range(10, 40, 2)] if len(tokens) < 4 else [END]

        (found,) = engine.generate(["two dogs"], max_new_tokens=9, allowed=even, suppress_tokens=[10])
        *written, end = found.tokens
        assert len(written) == 4 and end == END and all(one % 2 == 0 and 10 < one < 40 for one in written)
        assert seen == [written[:count] for count in range(5)] + ([] if len(seen) == 5 else [written])
        with pytest.raises(UserError, match="no token may follow the 2 tokens"):
            engine.generate(["two"], allowed=lambda tokens: [] if len(tokens) == 2 else [9, 11])
        with pytest.raises(UserError, match="allowed must return ids from 0 to"):
            engine.generate(["two"], allowed=lambda _: [10**6])
        with pytest.raises(UserError, match="allowed and draft exclude each other"):
            engine.generate(["two"], allowed=lambda _: [9], draft="lookup")


def test_texts_match_a_regular_expression_and_a_schema(folder: Path) -> None:
    pytest.importorskip("llguidance", reason="the extra constraints is not installed")
    with load(folder, threads=1) as engine:
        for prompt in ("", "two dogs"):
            prompts: list[Any] = [prompt] * 12
            for one in engine.generate(prompts, regex="(two|hello) ?[a-m]{1,9}", max_new_tokens=16, temperature=1.5):
                assert re.fullmatch("(two|hello) ?[a-m]{1,9}", one.text), one.text
        with pytest.raises(UserError, match="the text is not complete after 3 tokens"):
            engine.generate(["two"], regex="[a-f]{40}", max_new_tokens=3)
        with pytest.raises(UserError, match="regex: "):
            engine.generate(["two"], regex="[a-f")
        with pytest.raises(UserError, match="json_schema is no JSON"):
            engine.generate(["two"], json_schema="{")
        with pytest.raises(UserError, match="no token may follow the 0 tokens"):
            engine.generate(["two"], json_schema={"type": "object"})  # the vocabulary has no braces
        stream = engine.stream_tokens("two", regex="[a-f]{40}", max_new_tokens=3)
        assert next(stream)
        with pytest.raises(UserError, match="the text is not complete after 3 tokens"):
            list(stream)


def test_the_command_line_constrains(
    folder: Path, tmp_path: Path, xformc: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    command, wanted = ("generate", folder, "--max-new-tokens", "16"), ("--regex", "(two|hello) ?[a-m]{1,9}")
    (tmp_path / "schema.json").write_bytes(b"\xff")
    assert "not valid UTF-8" in mistake(xformc(*command, "--json-schema", tmp_path / "schema.json"))
    (tmp_path / "schema.json").write_text('{"const": 1}')
    both = mistake(xformc(*command, *wanted, "--json-schema", tmp_path / "schema.json", "--draft", "lookup"))
    assert both.startswith("--regex and --json-schema and --draft exclude each other")
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "llguidance", None)
        assert "needs the package llguidance" in mistake(xformc(*command, *wanted, stdin="two dogs\n"))
    pytest.importorskip("llguidance", reason="the extra constraints is not installed")
    plain = xformc(*command, *wanted, stdin="two dogs\n\n").out
    assert xformc(*command, *wanted, "--stream", stdin="two dogs\n\n").out == plain
    assert all(re.fullmatch("(two dogs)?(two|hello) ?[a-m]{1,9}", line) for line in plain.splitlines()), plain


SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 5},
        "old": {"type": "boolean"},
        "tags": {"enum": [[], ["é"]]},
    },
    "required": ["name", "old", "tags"],
    "additionalProperties": False,
}


def test_texts_of_bytes_are_json_of_the_schema(tmp_path: Path) -> None:
    pytest.importorskip("llguidance", reason="the extra constraints is not installed")
    write_byte_pairs(tmp_path / "tokenizer.json")
    special = "special_tokens: {pad: none, unknown: none, begin: 0, end: 0}\n"
    (tmp_path / "spec.yaml").write_text(SPEC.replace("PIECES", "300") + special)
    tokenizers = {"text": tmp_path / "tokenizer.json"}
    build_engine(load_spec(tmp_path / "spec.yaml"), None, tokenizers, "portable", tmp_path / "engine")
    with load(tmp_path / "engine", threads=1) as engine:
        options: Any = {"json_schema": SCHEMA, "max_new_tokens": 400, "top_k": 60}
        found = [json.loads(one.text) for one in engine.generate(["two dogs", ""] * 4, **options)]
        for one in found:
            validate(one, SCHEMA)
        assert len({one["name"] for one in found}) > 2
        whole = engine.generate([""], **options)[0]
        stream = engine.stream_tokens("", tokens_at_once=9, **options)
        assert "".join(stream) == whole.text and stream.continuation == whole
