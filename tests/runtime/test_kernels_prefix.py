"""Candidates, ProjectCandidates and ScreenCandidates of runtime/kernels/ with tokens that a text must begin with."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.runtime.kernel_session import Array, run_node
from tests.runtime.test_kernels_vocabulary import RESULTS, random_scores, random_vocabulary
from xformc.compiler.quantize.screening import screen

pytestmark = pytest.mark.usefixtures("isa")

Run = Callable[..., list[Array]]
"""Candidates of x [batch, beam, 1, depth] and scores, with a prefix and a position or None."""

SIZE, DEPTH = 3001, 24


def candidates(rng: np.random.Generator) -> Run:
    table = rng.normal(size=(DEPTH, SIZE)).astype(np.float32)

    def run(x: Array, scores: Array, *given: Array | None) -> list[Array]:
        width = np.array([scores.shape[1]])
        return run_node("Candidates", [x @ table, scores, width, *given], list(RESULTS.values()))

    return run


def project(rng: np.random.Generator) -> Run:
    vocabulary = random_vocabulary(rng, "int8", SIZE, DEPTH)
    attributes: dict[str, Any] = {"precision": "int8", "vocabulary": SIZE}

    def run(x: Array, scores: Array, *given: Array | None) -> list[Array]:
        inputs = [x, scores, np.array([scores.shape[1]]), vocabulary.weight, vocabulary.scale, vocabulary.bias]
        return run_node("ProjectCandidates", [*inputs, *given], list(RESULTS.values()), **attributes)

    return run


def screened(rng: np.random.Generator) -> Run:
    matrix = rng.normal(size=(SIZE, DEPTH)).astype(np.float32)
    bias, made = rng.normal(size=SIZE).astype(np.float32), screen(matrix)

    def run(x: Array, scores: Array, *given: Array | None) -> list[Array]:
        inputs = [x, scores, np.array([scores.shape[1]]), made.rest, made.panels, made.scale, made.largest, bias]
        return run_node("ScreenCandidates", [*inputs, *given], list(RESULTS.values()), vocabulary=SIZE)

    return run


@pytest.mark.parametrize("make", [candidates, project, screened])
@pytest.mark.parametrize("batch", [3, 20])
def test_a_forced_token_has_the_bits_that_it_has_when_it_is_free(make: Callable[..., Run], batch: int) -> None:
    """Sentences without a token at this position choose as ever."""
    rng, beam = np.random.default_rng(batch), 3
    run, x = make(rng), rng.normal(size=(batch, beam, 1, DEPTH)).astype(np.float32)
    scores = random_scores(rng, batch, beam)
    free = run(x, scores)
    prefix = np.zeros((batch, 2), np.int64)
    taken = rng.integers(0, 2 * beam, batch)
    prefix[::2, 1] = free[1][np.arange(batch), taken][::2]
    forced = run(x, scores, prefix, np.array(1))
    for row in range(batch):
        if row % 2:
            assert all(one[row].tobytes() == other[row].tobytes() for one, other in zip(forced, free, strict=True))
            continue
        token, parent, total = prefix[row, 1], free[2][row, taken[row]], free[0][row, taken[row]]
        assert (forced[1][row] == token).all()
        place = list(forced[2][row, :beam]).index(parent)
        assert forced[0][row, place].tobytes() == total.tobytes()
        assert sorted(forced[2][row, :beam]) == list(range(beam)) and np.isneginf(forced[0][row, beam:]).all()
        assert (np.diff(forced[0][row, :beam]) <= 0).all()
    for given in ((None, None), (prefix, np.array(0)), (prefix, np.array(2)), (prefix[:, :0], np.array(0))):
        again = run(x, scores, *given)
        assert all(one.tobytes() == other.tobytes() for one, other in zip(again, free, strict=True))


@pytest.mark.parametrize("make", [candidates, project, screened])
def test_any_token_may_be_forced(make: Callable[..., Run]) -> None:
    """Also one that is not among the best, and one of the last block; logits that are no numbers give none."""
    rng = np.random.default_rng(0)
    run, x = make(rng), rng.normal(size=(2, 1, 1, DEPTH)).astype(np.float32)
    scores = np.zeros((2, 1), np.float32)
    tokens = np.arange(1, SIZE)[:, None]
    rows = np.repeat(x[:1], len(tokens), 0)
    every = run(rows, np.zeros((len(tokens), 1), np.float32), tokens, np.array(0))[0][:, 0]
    assert 0.9 < np.exp(every.astype(np.float64)).sum() <= 1 + 1e-5
    x[1] = np.nan
    found = run(x, scores, np.full((2, 1), SIZE - 1), np.array(0))[0]
    assert found[0, 0] == every[-1] and np.isnan(found[1]).all()


@pytest.mark.parametrize("make", [candidates, project, screened])
def test_a_prefix_that_does_not_fit_is_refused(make: Callable[..., Run]) -> None:
    rng = np.random.default_rng(0)
    run, x, scores = make(rng), np.zeros((2, 1, 1, DEPTH), np.float32), np.zeros((2, 1), np.float32)
    for prefix, position, message in (
        (np.full((2, 1), SIZE), 0, "not in the vocabulary"),
        (np.full((2, 1), -1), 0, "not in the vocabulary"),
        (np.ones((3, 1), np.int64), 0, "prefix and scores do not fit"),
        (np.ones(2, np.int64), 0, "prefix and scores do not fit"),
        (np.ones((2, 1), np.int64), -1, "position is below 0"),
    ):
        with pytest.raises(Exception, match=message):
            run(x, scores, prefix, np.array(position))


def automaton_inputs(batch: int, beam: int, table: Array, start: Array, suppressed: Array, left: int = 9) -> list[Any]:
    """The inputs from the prefix on, for hypotheses of a begin token; every state is an end of texts."""
    texts, none = np.full((batch, beam, 1), 2), np.zeros((batch, 0), np.int64)
    edits = [suppressed, np.array([0]), *(np.array([one], np.float32) for one in (1, 0, 0)), np.arange(batch)]
    needs = np.arange(len(table)) % 2
    states = [np.array([0], np.float32), table.astype(np.int32), needs, start, np.full(batch, 1 + left)]
    return [none, np.array(0), texts, *edits, None, *states]


@pytest.mark.parametrize("make", [candidates, project, screened])
def test_an_automaton_leaves_what_it_would_if_the_other_tokens_were_suppressed(make: Callable[..., Run]) -> None:
    rng, batch, beam = np.random.default_rng(7), 9, 3
    run, x = make(rng), rng.normal(size=(batch, beam, 1, DEPTH)).astype(np.float32)
    scores, nothing = random_scores(rng, batch, beam), np.full((1, 0), -1)
    free = run(x, scores)
    for share in (0.001, 0.5, 0.999):
        allowed = rng.random(SIZE) < share
        table = np.where(allowed, 0, -1)[None]
        banned = np.flatnonzero(~allowed)[None]
        start = np.where(np.arange(batch) % 2 == 0, 0, -1)
        found = run(x, scores, *automaton_inputs(batch, beam, table, start, nothing))
        expected = run(x, scores, *automaton_inputs(batch, beam, table[:0], start, banned))
        for row in range(batch):
            theirs = expected if start[row] == 0 else free
            there = np.isfinite(theirs[0][row])
            assert np.array_equal(np.isfinite(found[0][row]), there) and (found[0][row][~there] == -np.inf).all()
            assert all(np.array_equal(found[i][row][there], theirs[i][row][there]) for i in (1, 2))
            assert np.allclose(found[0][row][there], theirs[0][row][there], rtol=0, atol=1e-5)
    table = np.where(np.arange(SIZE) < 5, 1, np.where(np.arange(SIZE) < 9, 99, 0))[None].repeat(2, 0)
    last = run(x, scores, *automaton_inputs(batch, beam, table, np.array([0]), nothing, left=1))
    assert (last[1][np.isfinite(last[0])] >= 9).all(), "state 1 needs a token more than is left, and there is no 99"
    lost = run(x, scores, *automaton_inputs(batch, beam, table, np.array([99]), nothing))
    assert (lost[0] == -np.inf).all()


@pytest.mark.parametrize("make", [candidates, project, screened])
def test_a_sentence_does_not_depend_on_how_many_tokens_others_edit(make: Callable[..., Run]) -> None:
    """To the bit: more tokens are kept of each row, but no more of them correct a screened normalizer."""
    rng, batch, beam, most = np.random.default_rng(11), 6, 3, 400
    run, x = make(rng), rng.normal(size=(batch, beam, 1, DEPTH)).astype(np.float32)
    scores, table = random_scores(rng, batch, beam), np.zeros((0, SIZE))
    banned = np.full((batch, most), -1)
    for row, count in enumerate((0, 1, 5, 20, 100, most)):
        banned[row, :count] = rng.choice(SIZE, count, replace=False)
    none = np.full(batch, -1)
    together = run(x, scores, *automaton_inputs(batch, beam, table, none, banned))
    for row in range(batch):
        own = slice(row, row + 1)
        alone = run(
            x[own], scores[own], *automaton_inputs(1, beam, table, none[own], banned[own, : (banned[row] >= 0).sum()])
        )
        assert [one[row].tobytes() for one in together] == [one[0].tobytes() for one in alone]


def test_automata_that_do_not_fit_are_refused() -> None:
    rng, batch, beam = np.random.default_rng(7), 2, 2
    run, x = candidates(rng), rng.normal(size=(batch, beam, 1, DEPTH)).astype(np.float32)
    scores, nothing = random_scores(rng, batch, beam), np.full((1, 0), -1)
    right = automaton_inputs(batch, beam, np.zeros((1, SIZE)), np.array([0]), nothing)
    run(x, scores, *right)
    for place, wrong, message in (
        (11, np.zeros((1, SIZE - 1), np.int32), "the automaton has another vocabulary"),
        (11, np.zeros(SIZE, np.int32), "the automaton is no table"),
        (12, np.zeros(2, np.int64), "the automaton lacks the needs of its states"),
        (13, np.zeros(0, np.int64), "an option lacks the row of a sentence"),
        (14, np.zeros(3, np.int64), "there must be a limit for each sentence"),
        (0, np.zeros((3, 0), np.int64), "prefix and scores do not fit"),
        (0, None, "an automaton needs a prefix and its states"),
        (2, None, "edits need texts and lists"),
        (3, None, "edits need texts and lists"),
        (11, None, "an automaton needs a prefix and its states"),
    ):
        with pytest.raises(Exception, match=message):
            run(x, scores, *right[:place], wrong, *right[place + 1 :])
