"""Stop strings: a text ends before the first one, wherever the borders of its tokens are."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from tests import tiny_engine
from tests.command_line import CommandLine, mistake
from tests.runtime.kernel_session import kernel_library
from xformc.compiler.build import build_engine
from xformc.compiler.spec import load_spec
from xformc.errors import UserError
from xformc.runtime import Continuation, Engine, load
from xformc.runtime.generation.stops import Stops
from xformc.runtime.generation.token_stream import GrowingText
from xformc.runtime.libxformc import CppEngine

SPEC = """\
extends: gpt
sizes: {layers: 1, d_model: 16, heads: 2, d_ff: 24, max_positions: 40, vocabulary: PIECES}
train: {max_length: 40}
"""
PROMPTS = ("two dogs play", "")
LONG: Any = {"max_new_tokens": 24, "seed": 4}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a spec, a tokenizer, and an engine for the target cpu with random weights."""
    path = tmp_path_factory.mktemp("stops")
    size = tiny_engine.train_tokenizer(path / "tokenizer.model")
    (path / "spec.yaml").write_text(SPEC.replace("PIECES", str(size)))
    return build(path, "cpu").parent


def build(folder: Path, target: Any) -> Path:
    build_engine(load_spec(folder / "spec.yaml"), None, {"text": folder / "tokenizer.model"}, target, folder / target)
    return folder / target


def check(engine: Engine, counts: Sequence[int], *, exact: bool) -> None:
    """A stopped text is what plain sampling writes up to the token that completes the stop string."""
    plain = engine.generate(PROMPTS, **LONG)
    assert engine.generate(PROMPTS, **LONG, stop=["no such text"]) == plain
    stops = [one.text[at : at + size] for one in plain for at, size in ((5, 1), (8, 2), (11, 3), (6, 7))]
    for count in counts:
        given = stops[-count:]
        found, cut = engine.generate(PROMPTS, **LONG, stop=given), 0
        refilled(engine, found, given, exact=exact)
        for seed, (prompt, one, whole) in enumerate(zip(PROMPTS, found, plain, strict=True), start=LONG["seed"]):
            places = {whole.text.find(text) + len(text): whole.text.find(text) for text in given if text in whole.text}
            assert one.text == (whole.text[: places[min(places)]] if places else whole.text)
            (same,) = engine.generate([prompt], seed=seed, max_new_tokens=len(one.tokens))
            assert one.tokens == same.tokens
            assert one.score == pytest.approx(same.score, abs=0 if exact else 1e-4)
            (less,) = engine.generate([prompt], seed=seed, max_new_tokens=max(1, len(one.tokens) - 1))
            assert len(one.tokens) == 1 or not any(text in less.text for text in given)
            cut += len(one.tokens) < len(whole.tokens)
            streamed(engine, prompt, one, {**LONG, "seed": seed, "stop": given}, exact=exact)
        assert cut


def refilled(engine: Engine, found: list[Continuation], stop: list[str], *, exact: bool) -> None:
    """Batches that refill write the same, in calls of any number of tokens."""
    ways: list[tuple[int, int | None, list[str], list[str] | None]] = [(2, 5, ["no such"], stop), (1, None, stop, None)]
    for slots, at_once, usual, own in ways:
        with engine.serve(slots=slots, tokens_at_once=at_once, max_new_tokens=24, stop=usual) as server:
            replies = [server.submit(text, seed=LONG["seed"] + row, stop=own) for row, text in enumerate(PROMPTS)]
            assert ["".join(reply) for reply in replies] == [one.text for one in found]
        for reply, one in zip(replies, found, strict=True):
            assert (reply.result().text, reply.result().tokens) == (one.text, one.tokens)
            assert reply.result().score == pytest.approx(one.score, abs=0 if exact else 1e-4)


def streamed(engine: Engine, prompt: str, whole: Continuation, options: dict[str, Any], *, exact: bool) -> None:
    """Streams write the same in pieces, also in calls of several tokens and with drafts that are right or wrong."""
    ways: list[dict[str, Any]] = [{}, {"tokens_at_once": 7}, {"draft": engine}, {"draft": "lookup"}]
    for more in ways:
        stream = engine.stream_tokens(prompt, **options, **more)
        assert "".join(stream) == whole.text == stream.continuation.text
        assert stream.continuation.tokens == whole.tokens
        assert stream.score == pytest.approx(whole.score, abs=0 if exact else 1e-4)


def test_a_text_ends_before_its_first_stop_string(folder: Path) -> None:
    with load(folder / "cpu", threads=1) as engine:
        check(engine, [7], exact=False)


@pytest.mark.processor
def test_a_stopped_text_is_the_plain_one_to_the_bit(folder: Path) -> None:
    kernel_library()
    with load(build(folder, "native"), threads=1) as engine:
        check(engine, [2, 8], exact=True)
        written_in_cpp(engine, CppEngine(folder / "native", threads=1), ["o", "e", "no such text"])


def written_in_cpp(engine: Engine, cpp: CppEngine, stop: list[str]) -> None:
    """libxformc writes the same, at once, token by token, and in streams of several tokens."""
    found = engine.generate(PROMPTS, **LONG, stop=stop, token_scores=True)
    assert cpp.generate(PROMPTS, **LONG, stop=stop, token_scores=True) == found
    assert any(len(one.tokens) < LONG["max_new_tokens"] for one in found)
    for at_once in (1, 7):
        stream = engine.stream_tokens(PROMPTS[0], **LONG, stop=stop, tokens_at_once=at_once)
        other = cpp.stream_tokens(PROMPTS[0], **LONG, stop=stop, tokens_at_once=at_once)
        assert list(other) == list(stream) and other.continuation == stream.continuation
    for wrong in ("", "a" * 1001, "a\ufffd"):
        with pytest.raises(UserError) as expected:
            engine.generate(["a"], stop=["b", wrong])
        with pytest.raises(UserError) as refused:
            cpp.generate(["a"], stop=["b", wrong])
        assert str(refused.value) == str(expected.value)
    with pytest.raises(UserError, match="there are 65 stop strings; at most 64 are allowed"):
        cpp.generate(["a"], stop=["a"] * 65)


STRINGS = some.lists(some.text("ab ", min_size=1, max_size=4), max_size=3)


@settings(max_examples=60, deadline=None)
@given(some.text("ab \ufffd", max_size=20), STRINGS, some.data())
def test_pieces_are_the_text_before_the_first_stop_string(text: str, stops: list[str], data: some.DataObject) -> None:
    chosen, size, shown = Stops(tuple(stops)), 0, ""
    growing = GrowingText(lambda tokens: text[: len(tokens)], chosen)
    while size < len(text) and not chosen.found(text[:size]):
        size = data.draw(some.integers(size + 1, len(text)))
        shown += growing.grown([0] * size, last=False)
    assert shown + growing.grown([0] * size, last=True) == chosen.cut(text[:size]) == chosen.cut(text)[:size]
    assert not chosen.found(shown)


def test_what_cannot_stop_a_text_is_refused(folder: Path) -> None:
    wrong = {"END": "stop takes a list of texts, not 'END'", 3: "stop takes a list of texts, not 3"}
    entries: dict[Any, str] = {"": "not ''", 4: "not 4", "a" * 1001: "not 'aaa"}
    with load(folder / "cpu", threads=1) as engine:
        for given, message in wrong.items():
            with pytest.raises(UserError, match=message):
                engine.generate(["a"], stop=given)  # pyright: ignore[reportArgumentType]
        for given, message in entries.items():
            with pytest.raises(UserError, match=f"a stop string must be a text of 1 to 1,000 characters, {message}"):
                engine.stream_tokens("a", stop=["b", given])
        with pytest.raises(UserError, match="a stop string cannot have U\\+FFFD"):
            engine.generate(["a"], stop=["a\ufffd"])
        with pytest.raises(UserError, match="there are 65 stop strings; at most 64"):
            engine.generate_stream(["a"], stop=["a"] * 65)
        with pytest.raises(UserError, match="regex and stop exclude each other"):
            engine.generate(["a"], stop=["b"], regex="a")
        with engine.serve() as server, pytest.raises(UserError, match="stop takes a list of texts, not 'END'"):
            server.submit("a", stop="END")
        (free,) = engine.generate(["two"], max_new_tokens=8, stop=["o"], allowed=lambda _: range(5, 60))
        assert "o" not in free.text
        stream = engine.stream_tokens("two", max_new_tokens=8, stop=["o"], allowed=lambda _: range(5, 60))
        assert "".join(stream) == free.text and stream.continuation == free


def test_the_command_line_stops(folder: Path, tmp_path: Path, xformc: CommandLine) -> None:
    (tmp_path / "in").write_text("two dogs play\n\n")
    command = ("generate", folder / "cpu", "-i", tmp_path / "in", "--max-new-tokens", "24", "--seed", "4")
    with load(folder / "cpu", threads=1) as engine:
        found = engine.generate(PROMPTS, **LONG, stop=["o", "e"])
    lines = [one.after(prompt) for prompt, one in zip(PROMPTS, found, strict=True)]
    for more in ((), ("--stream", "--draft", "lookup"), ("--slots", "2")):
        assert xformc(*command, "--stop", "o", "--stop", "e", *more).out.split("\n")[:-1] == lines
    assert mistake(xformc(*command, "--stop", "")).startswith("a stop string must be a text")
    assert "No such file" in mistake(xformc(*command, "--json-schema", tmp_path / "none"))
