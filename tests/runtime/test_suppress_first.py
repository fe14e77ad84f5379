"""Tokens that are never the first one after the prefix of a text, whichever way it is written."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import CommandLine, mistake
from tests.runtime.test_translation_server import build_with
from xformc.compiler.build import build_engine
from xformc.compiler.spec import load_spec
from xformc.errors import UserError
from xformc.runtime import Engine, load
from xformc.runtime.libxformc import CppEngine
from xformc.runtime.searching.translate import Hypothesis

TEXTS = ["one two dogs", "a man rides", "dogs", "play two one two"]
PREFIXES: list[Sequence[int]] = [[], [8, 9], [11], []]
EXACT: dict[str, Any] = {"length_penalty": 0.0, "n_best": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A native engine with random weights, which the certificate compares with the reference search, as its samples;
    skips without kernels."""
    path = tmp_path_factory.mktemp("first")
    assert build_with(lambda size: f"suppress_first: {[*range(4, size, 2)]}", path).passed
    return path / "engine"


@pytest.fixture(scope="module")
def engine(folder: Path) -> Engine:
    return load(folder, threads=1)


@pytest.mark.processor
def test_a_token_is_suppressed_right_after_the_prefix_only(engine: Engine) -> None:
    banned, later = set(engine.manifest.suppress_first), set[int]()
    found = engine.translate(TEXTS, prefixes=PREFIXES, **EXACT)
    for hypotheses, prefix in zip(found, PREFIXES, strict=True):
        for one in hypotheses:
            assert one.tokens[: len(prefix)] == tuple(prefix) and one.tokens[len(prefix)] not in banned
            later.update(one.tokens[len(prefix) + 1 :])
    assert banned & later
    alone = [engine.translate([text], prefixes=[own], **EXACT)[0] for text, own in zip(TEXTS, PREFIXES, strict=True)]
    tokens, scores = ([[read(one) for one in several] for several in (*found, *alone)] for read in (_tokens, _score))
    assert tokens[:4] == tokens[4:] and scores[:4] == [pytest.approx(one, abs=1e-5) for one in scores[4:]]


def _tokens(one: Hypothesis) -> tuple[int, ...]:
    return tuple(one.tokens)


def _score(one: Hypothesis) -> float:
    return one.score


@pytest.mark.processor
def test_all_ways_to_write_suppress_it(engine: Engine, folder: Path) -> None:
    banned = set(engine.manifest.suppress_first)
    with_edits: dict[str, Any] = {**EXACT, "suppress_tokens": [20, 21], "repetition_penalty": 1.2}
    edited = engine.translate(TEXTS, prefixes=PREFIXES, **with_edits)
    drawn = engine.translate(TEXTS * 3, prefixes=PREFIXES * 3, samples=1, seed=3)
    for several, prefix in zip([*edited, *drawn], PREFIXES * 4, strict=True):
        assert not banned & {one.tokens[len(prefix)] for one in several}
    for options in (EXACT, with_edits):
        expected = engine.translate(TEXTS, prefixes=PREFIXES, **options)
        assert engine.translate(TEXTS, prefixes=PREFIXES, slots=2, **options) == expected
    assert CppEngine(folder, threads=1).translate(TEXTS, **EXACT) == engine.translate(TEXTS, **EXACT)


def test_what_has_none_is_refused(engine: Engine, folder: Path, xformc: CommandLine, tmp_path: Path) -> None:
    assert f"suppress_first {engine.manifest.suppress_first[0]}" in xformc("inspect", folder).out
    with pytest.raises(UserError, match="alternatives would move them by one place"):
        engine.translate(TEXTS, alternatives=2)
    spec = folder.parent / "spec.yaml"
    with pytest.raises(UserError, match=r"--target cuda has no search with decode\.suppress_first"):
        build_engine(load_spec(spec), None, None, "cuda", tmp_path / "cuda")
    (tmp_path / "wrong.yaml").write_text(spec.read_text().replace("suppress_first: [", "suppress_first: [70000, "))
    assert "70000 is no token" in mistake(xformc("check", tmp_path / "wrong.yaml"))
