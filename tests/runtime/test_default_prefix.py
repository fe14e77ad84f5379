"""A default prefix of the spec: what texts begin with, whichever way they are written, unless a call says otherwise."""

from pathlib import Path
from typing import Any

import pytest

from tests.command_line import CommandLine
from tests.runtime.test_translation_server import build_with
from xformc.runtime import Engine, load
from xformc.runtime.libxformc import CppEngine

TEXTS = ["one two dogs", "a man rides", "dogs", "play two one two"]
EXACT: dict[str, Any] = {"length_penalty": 0.0, "n_best": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A native engine with random weights, whose texts begin with the tokens 7 and 9; skips without kernels."""
    path = tmp_path_factory.mktemp("prefix")
    certificate = build_with(lambda _: "prefix: [7, 9]", path)
    assert {"beam", "refill", "samples"} <= {stage.name for stage in certificate.stages}
    return path / "engine"


@pytest.fixture(scope="module")
def engine(folder: Path) -> Engine:
    return load(folder, threads=1)


@pytest.mark.processor
def test_texts_begin_with_the_default_prefix_which_is_not_scored(engine: Engine) -> None:
    free = engine.translate(TEXTS, token_scores=True, **EXACT)
    assert free == engine.translate(TEXTS, prefixes=[[7, 9]] * len(TEXTS), token_scores=True, **EXACT)
    for [one, *_] in free:
        assert one.tokens[:2] == (7, 9) and one.token_scores[:2] == (0.0, 0.0)
        assert all(score < 0 for score in one.token_scores[2:])
        assert one.score == pytest.approx(sum(one.token_scores), abs=1e-4)
    [[short, *_]] = engine.translate(TEXTS[:1], max_length_factor=0.0, max_length_offset=1)
    assert short.tokens == (7,), "the limit holds for what was not asked for"


@pytest.mark.processor
def test_a_call_gives_another_prefix(engine: Engine, folder: Path, xformc: CommandLine, tmp_path: Path) -> None:
    found = engine.translate(TEXTS, prefixes=[[8], [8, 9, 10], [], [7]], token_scores=True, **EXACT)
    begun = [one.tokens for [one, *_] in found]
    assert [begun[0][:1], begun[1][:3], begun[2][:2], begun[3][:1]] == [(8,), (8, 9, 10), (7, 9), (7,)]
    scored = [one.token_scores for [one, *_] in found]
    assert found[0][0].score < sum(scored[0]) - 0.1, "the search counts a token that was a choice"
    assert scored[1][:2] == (0, 0) and scored[1][2] < 0
    assert found[2] == engine.translate([TEXTS[2]], token_scores=True, **EXACT)[0]
    (tmp_path / "texts").write_text(TEXTS[0])
    printed = xformc("translate", folder, "--input", tmp_path / "texts", "--prefix", "one two", "--threads", "1")
    [[asked]] = engine.translate(TEXTS[:1], prefixes="one two")
    assert printed.out == asked.text + "\n" and asked.tokens[:2] != (7, 9)
    assert "prefix 7 9" in xformc("inspect", folder).out


@pytest.mark.processor
def test_all_ways_to_write_begin_with_it(engine: Engine, folder: Path) -> None:
    prefixes = [[], [8, 9, 10], [8], []]
    expected = engine.translate(TEXTS, prefixes=prefixes, **EXACT)
    assert engine.translate(TEXTS, prefixes=prefixes, slots=2, **EXACT) == expected
    with_phrases = engine.translate(
        TEXTS, phrases=[[[20, 21]]] * len(TEXTS), max_length_factor=0.0, max_length_offset=1, **EXACT
    )
    for [one, *_] in with_phrases:
        assert one.tokens[:2] == (7, 9) and (20, 21) in zip(one.tokens[2:], one.tokens[3:], strict=False)
    for [one] in engine.translate(TEXTS, samples=1, token_scores=True, max_length_factor=0.0, max_length_offset=9):
        assert one.tokens[:2] == (7, 9) and len(one.tokens) <= 9
        assert one.score == pytest.approx(sum(one.token_scores), abs=1e-4)
    assert engine.translate_stream(TEXTS).__next__()[0].tokens[:2] == (7, 9)
    cpp = CppEngine(folder, threads=1)
    assert cpp.translate(TEXTS, **EXACT) == engine.translate(TEXTS, **EXACT)
    assert cpp.translate(TEXTS, prefixes=["one"] * 4, **EXACT) == engine.translate(TEXTS, prefixes="one", **EXACT)
