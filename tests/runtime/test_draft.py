"""Drafts: texts are those of plain sampling, whatever guesses their tokens, and come in fewer calls if it is right."""

import json
import shutil
from pathlib import Path

import pytest

from tests import tiny_engine
from tests.command_line import CommandLine, mistake
from tests.runtime.kernel_session import kernel_library
from xformc.compiler.build import build_engine
from xformc.compiler.spec import load_spec
from xformc.errors import UserError
from xformc.runtime import Engine, load
from xformc.runtime.generation.draft import LookupDrafter
from xformc.runtime.generation.sampling import PromptArguments

SPECS = {
    "attention": "extends: gpt\nsizes: {layers: 1, d_model: 16, heads: 2, d_ff: 24, max_positions: 40, PIECES}\n"
    "train: {max_length: 40}\n",
    "windows": "extends: gpt\nsizes: {layers: 1, d_model: 16, heads: 2, d_ff: 24, window: 3, PIECES}\n"
    "choices: {positions: none, reach: window}\n",
    "lstm": "extends: lstm_language_model\nsizes: {layers: 1, d_model: 8, PIECES}\n",
}
PROMPTS = ("two dogs play two dogs", "")
OPTIONS = (
    {"temperature": 0.0},
    {"temperature": 0.7, "top_k": 20, "top_p": 0.9},
    {"no_repeat_ngram_size": 2, "repetition_penalty": 1.3, "presence_penalty": 0.2},
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tokenizer and a spec for each name."""
    path = tmp_path_factory.mktemp("drafts")
    size = tiny_engine.train_tokenizer(path / "tokenizer.model")
    for name, text in SPECS.items():
        (path / f"{name}.yaml").write_text(text.replace("PIECES", f"vocabulary: {size}"))
    return path


def built(folder: Path, name: str, target: str) -> Path:
    """The engine of a spec for a target, built once, with random weights."""
    out = folder / f"{name}-{target}"
    if not out.exists():
        certificate = build_engine(
            load_spec(folder / f"{name}.yaml"),
            None,
            {"text": folder / "tokenizer.model"},
            target,  # pyright: ignore[reportArgumentType]
            out,
        )
        assert [stage.passed for stage in certificate.stages if stage.name == "draft"] == [True]
    return out


def check(engine: Engine, drafts: tuple[Engine | str, ...], *, exact: bool) -> None:
    """Drafted texts are plain ones, to the bit of their scores if they are `exact`."""
    for options in OPTIONS:
        plain = engine.generate(PROMPTS, seed=4, max_new_tokens=14, **options)  # pyright: ignore[reportArgumentType]
        for draft in drafts:
            found = engine.generate(PROMPTS, seed=4, max_new_tokens=14, draft=draft, **options)  # pyright: ignore[reportArgumentType]
            assert [one.tokens for one in found] == [one.tokens for one in plain]
            assert [one.text for one in found] == [one.text for one in plain]
            assert [one.score for one in found] == pytest.approx([one.score for one in plain], abs=0 if exact else 1e-4)


@pytest.mark.processor
@pytest.mark.parametrize("name", ["attention", "lstm"])
def test_a_drafted_text_is_the_plain_one_to_the_bit(folder: Path, name: str) -> None:
    """With drafts that are right, and mostly wrong; a recurrent model reads the right ones again."""
    kernel_library()
    with load(built(folder, name, "native"), threads=1) as engine:
        check(engine, (engine, "lookup"), exact=True)


def test_a_prompt_keeps_its_own_options(folder: Path) -> None:
    each: list[PromptArguments] = [{"temperature": 0.0, "max_new_tokens": 5}, {"top_k": 3, "seed": 9}]
    with load(built(folder, "attention", "cpu"), threads=1) as engine:
        plain = engine.generate(PROMPTS, max_new_tokens=9, each=each)
        for draft in (engine, "lookup"):
            found = engine.generate(PROMPTS, max_new_tokens=9, each=each, draft=draft)
            assert [one.tokens for one in found] == [one.tokens for one in plain]
    assert len(plain[0].tokens) <= 5 < len(plain[1].tokens)


def test_caches_that_grow_or_keep_a_window_go_back(folder: Path) -> None:
    with (
        load(built(folder, "windows", "cpu"), threads=1) as engine,
        load(built(folder, "attention", "cpu"), threads=1) as other,
    ):
        check(engine, (engine, other), exact=False)


def test_streams_are_drafted_and_positions_end(folder: Path) -> None:
    """A text may fill all positions of the model, and be longer than those of the draft."""
    with (
        load(built(folder, "windows", "cpu"), threads=1) as longer,
        load(built(folder, "attention", "cpu"), threads=1) as engine,
    ):
        for most in (60, 2, 1):
            (plain,) = engine.generate(["two dogs"], max_new_tokens=most, temperature=0.0)
            with engine.stream_tokens(
                "two dogs", max_new_tokens=most, temperature=0.0, draft=engine, draft_tokens=7
            ) as stream:
                assert "".join(stream) == plain.text and stream.continuation.tokens == plain.tokens
        (plain,) = longer.generate(["two dogs"], max_new_tokens=50, temperature=0.0)
        found = longer.stream_tokens("two dogs", max_new_tokens=50, temperature=0.0, draft=engine)
        assert "".join(found) == plain.text and 0 <= found.accepted <= found.drafted
        itself = longer.stream_tokens("two dogs", max_new_tokens=50, temperature=0.0, draft=longer)
        assert "".join(itself) == plain.text and itself.accepted == itself.drafted > 35


def test_lookup_finds_the_longest_end_and_its_last_place() -> None:
    drafter = LookupDrafter()
    assert drafter.propose([1, 2, 3, 4, 9, 2, 3, 5, 7, 2, 3], 2) == [5, 7]
    assert drafter.propose([1, 2, 3, 4, 9, 2, 3, 5, 7, 1, 2, 3], 9) == [4, 9, 2, 3, 5, 7, 1, 2, 3]
    assert drafter.propose([6, 6, 6], 3) == [6]
    assert [*drafter.propose([1, 2, 3], 3)] == [*drafter.propose([1], 3)] == [*drafter.propose([], 3)] == []


def test_a_draft_that_does_not_fit_is_refused(folder: Path, tmp_path: Path) -> None:
    with load(built(folder, "attention", "cpu"), threads=1) as engine:
        for wrong in ("lookups", 3):
            with pytest.raises(UserError, match="draft must be an engine or 'lookup', not"):
                engine.generate(["a"], draft=wrong)  # pyright: ignore[reportArgumentType]
        with pytest.raises(UserError, match="draft_tokens must be an integer from 1 to 64, not 0"):
            engine.generate(["a"], draft="lookup", draft_tokens=0)
        with pytest.raises(UserError, match="draft_tokens has no effect without a draft"):
            engine.generate(["a"], draft_tokens=2)
        with pytest.raises(UserError, match="the draft copy has no streams of tokens"):
            engine.generate(["a"], draft=load(tiny_engine.make_engine(tmp_path / "copy")))
        older = shutil.copytree(built(folder, "attention", "cpu"), tmp_path / "older")
        (older / "check.onnx").unlink()
        tiny_engine.write_manifest(older, json.loads((older / "engine.json").read_text()))
        with load(older, threads=1) as plain:
            (found,), (wanted,) = engine.generate(["a"], draft=plain), engine.generate(["a"])
            assert found.tokens == wanted.tokens
            with pytest.raises(UserError, match="attention cannot check drafts"):
                plain.generate(["a"], draft="lookup")
        vocabulary = older / "tokenizer.model"
        vocabulary.write_bytes(vocabulary.read_bytes().replace(b"\n\x01q", b"\n\x01Q"))
        tiny_engine.write_manifest(older, json.loads((older / "engine.json").read_text()))
        with load(older) as other, pytest.raises(UserError, match="attention has another vocabulary than attention"):
            engine.generate(["a"], draft=other)


def test_the_command_line_drafts(folder: Path, tmp_path: Path, xformc: CommandLine) -> None:
    (tmp_path / "in").write_text("two dogs two dogs\n\nhello\n")
    target = built(folder, "attention", "cpu")
    command = ("generate", target, "-i", tmp_path / "in", "--max-new-tokens", "6", "--seed", "3")
    plain = xformc(*command).out
    assert xformc(*command, "--draft", "lookup").out == plain
    assert xformc(*command, "--draft", target, "--draft-tokens", "2", "--stream").out == plain
    assert "has no effect without a draft" in mistake(xformc(*command, "--draft-tokens", "2"))
