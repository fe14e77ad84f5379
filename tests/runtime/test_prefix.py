"""Texts that begin with given tokens, and the scores of whole texts, by engines that were built here."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.command_line import CommandLine, mistake
from tests.conformance.engines import FOLDER
from tests.runtime.kernel_session import kernel_library
from xformc.compiler.build import build_engine
from xformc.compiler.spec import load_spec
from xformc.errors import UserError
from xformc.format.targets import Target
from xformc.format.tokens import END
from xformc.runtime import Engine, load

SPEC = """\
extends: transformer_base
sizes: {layers: 1, d_model: 16, heads: 2, d_ff: 24, vocabulary: 90}
decode: {max_length: {factor: 1, offset: 6}}
"""
LARGE = SPEC.replace("vocabulary: 90", "vocabulary: 20000")
"""A vocabulary whose logits are screened."""

SOURCES = [[5, 6, 7, 8, 3], [9, 3], [12, 11, 3], [80, 41, 17, 20, 33, 21, 3]]


def padded(rows: Sequence[Sequence[int]]) -> "np.typing.NDArray[np.int64]":
    longest = max(map(len, rows))
    return np.array([[*row, *[0] * (longest - len(row))] for row in rows])


@pytest.fixture(params=["portable", "native", "screened"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Engine:
    """An engine with random weights and without a tokenizer, which takes arrays."""
    target: Target = "portable" if request.param == "portable" else "native"
    if target == "native":
        kernel_library()
    text = (LARGE if request.param == "screened" else SPEC) + "results: {target: {text: logits}}\n"
    (tmp_path / "spec.yaml").write_text(text, encoding="utf-8")
    build_engine(load_spec(tmp_path / "spec.yaml"), None, None, target, tmp_path / "engine")
    return load(tmp_path / "engine", threads=1)


def test_the_score_of_a_text_is_the_one_that_it_was_found_with(engine: Engine) -> None:
    """To the last bit with native, whatever else is in the batch."""
    given = {"source": padded(SOURCES)}
    for beam_size in (1, 4):
        found = engine.transcribe(given, beam_size=beam_size)
        scored = engine.score(given, [one[0].tokens for one in found], beam_size=beam_size)
        assert [one.tokens for one in scored] == [one[0].tokens for one in found]
        exact = engine.manifest.target == "native"
        for one, [other, *_] in zip(scored, found, strict=True):
            assert one.score == other.score if exact else one.score == pytest.approx(other.score, abs=1e-5)
        alone = engine.score({"source": padded(SOURCES[1:2])}, [found[1][0].tokens], beam_size=beam_size)
        assert not exact or alone[0].score == found[1][0].score


def test_the_scores_of_tokens_add_up_to_that_of_their_text(engine: Engine) -> None:
    """To the last bit with native, if the search's kernel rounds as that of one hypothesis does."""
    given, screened = {"source": padded(SOURCES)}, engine.manifest.inputs["target"].pieces > 10_000
    for beam_size in (1, 4):
        found = engine.transcribe(given, beam_size=beam_size, n_best=beam_size, length_penalty=0.0, token_scores=True)
        exact = engine.manifest.target == "native" and not (screened and beam_size > 1)
        for one in (one for row in found for one in row):
            assert len(one.token_scores) == len(one.tokens) > 0 not in one.tokens
            total = np.cumsum(one.token_scores, dtype=np.float32)[-1]
            assert one.score == total if exact else one.score == pytest.approx(total, abs=1e-4)
        texts = [row[0].tokens for row in found]
        scored = engine.score(given, texts, beam_size=beam_size, length_penalty=0.0, token_scores=True)
        for one, [other, *_] in zip(scored, found, strict=True):
            np.testing.assert_allclose(one.token_scores, other.token_scores, atol=0 if exact else 1e-5)


def test_texts_begin_with_their_prefixes_and_score_as_without(engine: Engine) -> None:
    """A prefix of the best text leaves it the best; other rows are as ever."""
    given, free = {"source": padded(SOURCES)}, engine.transcribe({"source": padded(SOURCES)})
    prefixes = [(), free[1][0].tokens[:3], (44, 45), (50,) * 20]
    found = engine.transcribe(given, prefixes=prefixes)
    assert found[0] == free[0]
    assert found[1][0].score >= free[1][0].score - 1e-6 and found[1][0].tokens[:3] == prefixes[1]
    assert all(one.tokens[:2] == (44, 45) for one in found[2])
    assert found[3][0].tokens == prefixes[3], "the limit is 13 tokens, or the length of the prefix"
    assert engine.transcribe(given, prefixes=[()] * 4) == free


def test_a_whole_text_is_scored_by_all_its_tokens(engine: Engine) -> None:
    """The probabilities of the texts that go on from one by a token add up to at most its own."""
    pieces = min(engine.manifest.inputs["target"].pieces, 400)
    given = {"source": padded(SOURCES[1:2] * (pieces - 1))}
    longer = [one.score for one in engine.score(given, [[44, token] for token in range(1, pieces)], length_penalty=0.0)]
    (one,) = engine.score({"source": padded(SOURCES[1:2])}, [[44]], length_penalty=0.0)
    share, total = (pieces - 1) / engine.manifest.inputs["target"].pieces, np.exp(longer).sum() / np.exp(one.score)
    assert total <= 1 + 1e-4 and total > 0.2 * share


def test_wrong_prefixes_are_refused(engine: Engine) -> None:
    given = {"source": padded(SOURCES)}
    with pytest.raises(UserError, match=r"line 2: the ids of a prefix must be from 0 to"):
        engine.transcribe(given, prefixes=[[5], [0], [5], [5]])
    with pytest.raises(UserError, match="line 3: the end token, 3, may only be the last of a prefix"):
        engine.transcribe(given, prefixes=[[5], [5, END], [5, END, 5], [5]])
    with pytest.raises(UserError, match="line 1: the engine has no tokenizer"):
        engine.transcribe(given, prefixes="hello")
    with pytest.raises(UserError, match="line 1: a prefix is a text, or token ids, not 5"):
        engine.transcribe(given, prefixes=[5, [5], [5], [5]])  # type: ignore[list-item]
    with pytest.raises(UserError, match="line 4: there is no prefix for this text"):
        engine.score(given, [[5, END]] * 3)


def test_streams_take_prefixes() -> None:
    with load(FOLDER / "judged", threads=1) as engine:
        pairs = [("two dogs", "hello"), ("hello world", "we were here")] * 3
        begun = ["hello", "two"] * 3
        every = [one.tokens for (one,) in engine.transcribe(pairs, prefixes=begun)]
        assert every[0] != every[1]
        assert [one.tokens for (one,) in engine.transcribe_stream(iter(pairs), prefixes=iter(begun), window=2)] == every
        scores = [one.score for one in engine.score(pairs, begun)]
        assert [one.score for one in engine.score_stream(iter(pairs), iter(begun))] == scores
        (impossible,) = engine.score([("", "")], ["hello"])
        assert impossible.score == -np.inf and engine.score([("", "")], [""])[0].score == 0.0
        assert np.isfinite(engine.score([("", "hello")], ["hello"])[0].score)
    with load(FOLDER / "draw", threads=1) as draws, pytest.raises(UserError, match="cannot score given texts"):
        draws.score(["hello"], ["hello"])
    with load(FOLDER / "heads", threads=1) as labels, pytest.raises(UserError, match="writes no text"):
        labels.score(["hello"], ["hello"])


def test_the_command_line_takes_controls_and_scores(xformc: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("two dogs\thello\n\t\nhello world\twe\n")
    (tmp_path / "begin").write_text("hello\n\ntwo\n")
    folder = FOLDER / "judged"
    each = xformc("transcribe", folder, "-i", tmp_path / "in", "--prefixes", tmp_path / "begin")
    same = xformc("transcribe", folder, "-i", tmp_path / "in", "--prefix", "hello")
    assert each.code == same.code == 0
    assert each.out.splitlines()[0] == same.out.splitlines()[0] != each.out.splitlines()[2]
    long = xformc("transcribe", folder, "-i", tmp_path / "in", "--min-length", "5")
    assert long.code == 0 and long.out != xformc("transcribe", folder, "-i", tmp_path / "in").out
    both = xformc("transcribe", folder, "--prefix", "a", "--prefixes", tmp_path / "begin", stdin="a\tb\n")
    assert "--prefix and --prefixes exclude each other" in mistake(both)
    scored = xformc("score", folder, tmp_path / "in", tmp_path / "begin", "--json")
    assert scored.out.splitlines()[1] == '{"line": 2, "score": 0.0, "log_probability": 0.0, "tokens": 0}'
    (tmp_path / "begin").write_text("hello\nhello\n")
    short = xformc("score", folder, tmp_path / "in", tmp_path / "begin", "--json")
    assert short.code == 2 and "line 3: there is no prefix for this text" in short.err
    assert '"score": null' in short.out, "the results of the lines before it are printed"
