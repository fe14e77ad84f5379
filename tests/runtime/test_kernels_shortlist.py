"""Shortlist and ShortlistCandidates of runtime/kernels/ against candidates of logits that are -inf outside of lists."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.runtime.kernel_session import Array, check_refused, run_node
from tests.runtime.test_kernels_vocabulary import (
    PRECISIONS,
    RESULTS,
    Vocabulary,
    random_scores,
    random_vocabulary,
    together,
)
from xformc.compiler.quantize.screening import screen
from xformc.compiler.shortlist import NO_TOKEN
from xformc.format.precision import Precision

pytestmark = pytest.mark.usefixtures("isa")

LISTS = [np.int64, np.int8, np.float32, np.float32]
ALL_TOKENS = -2
Operands = Sequence[Array | None]


def whole(vocabulary: Vocabulary) -> Operands:
    """The numbers, scale, rest and bias."""
    return vocabulary.weight, vocabulary.scale, None, vocabulary.bias


def listed(given: Operands, weights: Operands, precision: str, size: int, depth: int, threads: int = 1) -> list[Array]:
    """The tokens, weights, scales and biases of lists; `given` are sources, likely, common, prefix, phrases, start."""
    operands = [*given, *[None] * (6 - len(given)), *weights]
    attributes: dict[str, Any] = {"precision": precision, "vocabulary": size, "depth": depth, "pad": 0}
    return run_node("Shortlist", operands, LISTS, threads=threads, **attributes)


def among(
    lists: Sequence[Array],
    weights: Operands,
    given: tuple[Array, Array],
    precision: str,
    size: int,
    rest: Operands = (),
) -> list[Array]:
    """Scores, tokens and parents by ShortlistCandidates; `given` are x and the scores."""
    inputs = [*given, np.array([given[1].shape[1]]), *lists, *weights, *rest]
    return run_node(
        "ShortlistCandidates", inputs, list(RESULTS.values()), precision=precision, vocabulary=size, threads=2
    )


def totals(logits: NDArray[np.float64], allowed: NDArray[np.bool_], scores: Array) -> NDArray[np.float64]:
    """The score of every continuation [batch, beam * vocabulary] among the allowed tokens [batch, vocabulary]."""
    logits = np.where(allowed[:, None], logits, -np.inf)
    highest = logits.max(-1, keepdims=True)
    logits = logits - (highest + np.log(np.exp(logits - highest).sum(-1, keepdims=True)))
    return (scores[..., None] + logits).reshape(len(scores), -1)


def allowed_of(tokens: Array, size: int) -> NDArray[np.bool_]:
    found = np.zeros((len(tokens), size), np.bool_)
    for row, own in zip(found, tokens, strict=True):
        row[own[own >= 0]] = True
    return found


def random_lists(rng: np.random.Generator, batch: int, size: int) -> tuple[Array, Array, Array]:
    """Sources with padding, the lists of 20 source tokens, and what every list has."""
    sources = rng.integers(0, 20, (batch, int(rng.integers(1, 6))))
    likely = rng.integers(NO_TOKEN, size, (20, int(rng.integers(1, 40))), dtype=np.int32)
    likely[0] = NO_TOKEN
    return sources, likely, rng.integers(0, size, 3, dtype=np.int32)


def test_a_list_has_what_is_common_likely_and_asked_for() -> None:
    rng = np.random.default_rng(0)
    vocabulary = random_vocabulary(rng, "float32", 50, 4)
    likely = np.full((4, 2), NO_TOKEN, np.int32)
    likely[1], likely[2, 0], likely[3] = [40, 7], 9, [7, 8]
    sources, common = np.array([[1, 2, 0], [3, 0, 0], [1, 1, 1]]), np.array([5, 3], np.int32)
    prefix, phrases, start = np.array([[44, 0], [0, 0], [0, 9]]), np.array([[[1, -1], [2, 6]]]), np.array([-1, -1, 0])
    asked = (sources, likely, common, prefix, phrases, start)
    tokens, weights, scales, biases = listed(asked, whole(vocabulary), "float32", 50, 4)
    expected = [[1, 2, 3, 5, 6, 7, 9, 40, 44], [1, 2, 3, 5, 6, 7, 8], [ALL_TOKENS]]
    assert [[token for token in row if token != NO_TOKEN] for row in tokens.tolist()] == expected
    panels = weights.view(np.float32).reshape(3, 1, 4, 32)
    matrix = vocabulary.weight.transpose(0, 2, 1).reshape(-1, 4)
    np.testing.assert_array_equal(panels[0, 0, :, :9].T, matrix[expected[0]])
    assert not panels[0, 0, :, 9:].any() and not panels[2].any() and scales.shape == (3, 0)
    assert biases.shape == (3, 0 if vocabulary.bias is None else 32)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_it_is_candidates_of_what_is_listed(precision: Precision) -> None:
    for seed in range(12):
        rng = np.random.default_rng(seed)
        size, depth = int(rng.choice([12, 33, 1000, 3001])), int(rng.choice([1, 6, 33, 64]))
        batch, beam = int(rng.choice([1, 3, 9, 20])), int(rng.integers(1, 6))
        vocabulary = random_vocabulary(rng, precision, size, depth)
        x = rng.normal(0, rng.choice([0.1, 3]), (batch, beam, 1, depth)).astype(np.float32)
        scores = random_scores(rng, batch, beam)
        lists = listed(random_lists(rng, batch, size), whole(vocabulary), vocabulary.precision, size, depth)
        found = among(lists, whole(vocabulary), (x, scores), vocabulary.precision, size)
        bias = {} if vocabulary.bias is None else {"bias": vocabulary.bias}
        weights = [vocabulary.weight, *([] if vocabulary.scale is None else [vocabulary.scale]), *bias.values()]
        plain: dict[str, Any] = {"activation": "none", "norm": "none", "epsilon": 0.0}
        [logits] = run_node(
            "Project", [x, None, None, None, *weights], [np.float32],
            depth=1, parts=1, ranks=[1], sizes=[size], bias=len(bias), precision=vocabulary.precision, **plain,
        )  # fmt: skip
        allowed = allowed_of(lists[0], size)
        expected = totals(logits[:, :, 0].astype(np.float64), allowed, scores)
        check(found, expected, size)
        assert not (np.isfinite(found[0]) & ~np.take_along_axis(allowed, found[1], 1)).any(), f"seed {seed}"


def check(found: list[Array], expected: NDArray[np.float64], size: int) -> None:
    """What was found has the right scores, -inf where there is nothing left, and nothing better was left out."""
    best = -np.sort(-expected, 1)[:, : found[0].shape[1]]
    np.testing.assert_allclose(found[0], best, 1e-5, 1e-5)
    picked = np.take_along_axis(expected, found[2] * size + found[1], 1)
    there = np.isfinite(found[0])
    np.testing.assert_allclose(picked[there], found[0][there], 1e-5, 1e-5)


@pytest.mark.parametrize("seed", range(6))
def test_screened_weights_are_listed_as_float32(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size, depth, batch, beam = int(rng.choice([33, 1000])), int(rng.choice([1, 5, 64])), 3, 4
    matrix = rng.normal(size=(size, depth)).astype(np.float32)
    made, bias = screen(matrix), rng.normal(size=size).astype(np.float32)
    weights = (made.panels, made.scale, made.rest, bias)
    x = rng.normal(size=(batch, beam, 1, depth)).astype(np.float32)
    scores, asked = random_scores(rng, batch, beam), random_lists(rng, batch, size)
    start = np.array([-1, -1, 0])
    lists = listed((*asked, None, None, start), weights, "screened", size, depth)
    assert lists[0][2, 0] == ALL_TOKENS
    lists[0][2, 1:] = NO_TOKEN
    allowed = allowed_of(lists[0], size)
    allowed[2] = True
    logits = x[:, :, 0].astype(np.float64) @ matrix.T.astype(np.float64) + bias
    check(among(lists, weights, (x, scores), "screened", size), totals(logits, allowed, scores), size)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_with_all_tokens_it_is_candidates_of_the_projection(precision: Precision) -> None:
    """To the bit, whether a list has all tokens or says so."""
    rng = np.random.default_rng(4)
    vocabulary = random_vocabulary(rng, precision, 1100, 33)
    x, scores = rng.normal(size=(3, 4, 1, 33)).astype(np.float32), random_scores(rng, 3, 4)
    expected = together(vocabulary, x, scores)
    every, sources = np.arange(1100, dtype=np.int32), np.zeros((3, 1), np.int64)
    for start in (np.array([-1, 0, -1]), np.array([0, 0, 0])):
        asked = (sources, np.full((1, 1), NO_TOKEN, np.int32), every, None, None, start)
        lists = listed(asked, whole(vocabulary), vocabulary.precision, 1100, 33, threads=2)
        found = among(lists, whole(vocabulary), (x, scores), vocabulary.precision, 1100)
        for one, right in zip(found, expected, strict=True):
            assert one.tobytes() == right.tobytes()


def test_sentences_find_their_lists_by_their_rows() -> None:
    rng = np.random.default_rng(5)
    vocabulary = random_vocabulary(rng, "int8", 300, 20)
    x, scores = rng.normal(size=(4, 2, 1, 20)).astype(np.float32), random_scores(rng, 4, 2)
    lists = listed(random_lists(rng, 4, 300), whole(vocabulary), "int8", 300, 20)
    every = among(lists, whole(vocabulary), (x, scores), "int8", 300)
    rows = np.array([3, 1])
    rest = (None, None, None, None, None, None, None, None, rows)
    some = among(lists, whole(vocabulary), (x[rows], scores[rows]), "int8", 300, rest)
    for one, all_rows in zip(some, every, strict=True):
        assert one.tobytes() == all_rows[rows].tobytes()
    lists = [part[rows] for part in lists]
    for one, other in zip(among(lists, whole(vocabulary), (x[rows], scores[rows]), "int8", 300), some, strict=True):
        assert one.tobytes() == other.tobytes()


def test_a_forced_token_that_is_not_listed_has_no_probability() -> None:
    rng = np.random.default_rng(6)
    vocabulary = random_vocabulary(rng, "float32", 40, 8)
    x, scores = rng.normal(size=(1, 2, 1, 8)).astype(np.float32), random_scores(rng, 1, 2)
    asked = (np.zeros((1, 1), np.int64), np.full((1, 1), NO_TOKEN, np.int32), np.array([3, 8], np.int32))
    lists = listed(asked, whole(vocabulary), "float32", 40, 8)
    rest = (np.array([[9, 8]]), np.array(0))
    totals_, tokens, _ = among(lists, whole(vocabulary), (x, scores), "float32", 40, rest)
    assert (totals_ == -np.inf).all() and (tokens[0] == 9).all()
    totals_, tokens, _ = among(lists, whole(vocabulary), (x, scores), "float32", 40, (rest[0], np.array(1)))
    assert np.isfinite(totals_[0, :2]).all() and (tokens[0] == 8).all()


def test_candidates_of_blocks_without_any_logit() -> None:
    """Of tokens whose logits are all -inf, a block had a sum that is no number."""
    rng = np.random.default_rng(8)
    logits, scores = np.full((2, 3, 1, 4000), -np.inf, np.float32), random_scores(rng, 2, 3)
    logits[..., [5, 9, 2500]] = rng.normal(size=(2, 3, 1, 3))
    found = run_node("Candidates", [logits, scores, np.array([3])], list(RESULTS.values()))
    allowed = np.isfinite(logits[:, 0, 0])
    check(found, totals(logits[:, :, 0].astype(np.float64), allowed, scores), 4000)


def test_batches_may_be_empty() -> None:
    vocabulary = random_vocabulary(np.random.default_rng(2), "int8", 50, 8)
    sources = np.zeros((0, 3), np.int64)
    asked = (sources, np.zeros((4, 2), np.int32), np.array([3], np.int32))
    lists = listed(asked, whole(vocabulary), "int8", 50, 8)
    x, scores = np.zeros((0, 2, 1, 8), np.float32), np.zeros((0, 2), np.float32)
    assert among(lists, whole(vocabulary), (x, scores), "int8", 50)[0].shape == (0, 4)


NOTHING: dict[str, Array] = {
    "likely": np.full((6, 2), NO_TOKEN, np.int32),
    "prefix": np.array([[0]]),
    "phrases": np.array([[[NO_TOKEN]]]),
}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"sources": np.array([[7]])}, "a token of a source has no list"),
        ({"sources": np.array([[-1]])}, "a token of a source has no list"),
        ({"sources": np.array([1])}, "no rows of tokens"),
        ({"likely": np.zeros(6, np.int32)}, "the lists are no lists"),
        ({"likely": np.full((6, 2), 40, np.int32)}, "not in the vocabulary"),
        ({"common": np.zeros((1, 1), np.int32)}, "the lists are no lists"),
        ({**NOTHING, "common": np.full(1, NO_TOKEN, np.int32)}, "a list has no token"),
        ({"prefix": np.array([[40]])}, "not in the vocabulary"),
        ({"prefix": np.array([5])}, "no rows of tokens"),
        ({"prefix": np.zeros((0, 1), np.int64)}, "lacks the row of a sentence"),
        ({"phrases": np.array([[[2**62]]])}, "not in the vocabulary"),
        ({"weight": np.zeros((1, 10, 32), np.float32)}, "panels do not fit"),
    ],
)
def test_lists_that_do_not_fit_are_refused(changed: dict[str, Array], message: str) -> None:
    right: dict[str, Array | None] = {
        "sources": np.array([[1, 5]]),
        "likely": np.full((6, 2), 9, np.int32),
        "common": np.array([3], np.int32),
        "prefix": np.array([[5, 0]]),
        "phrases": np.array([[[7, -1]]]),
        "start": np.array([-1]),
        "weight": np.zeros((2, 10, 32), np.float32),
    }
    check_refused("Shortlist", right, changed, message, LISTS, precision="float32", vocabulary=40, depth=10)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"tokens": np.array([[3, 3]])}, "not in order"),
        ({"tokens": np.array([[5, 3]])}, "not in order|of the vocabulary"),
        ({"tokens": np.array([[3, 40]])}, "of the vocabulary"),
        ({"tokens": np.array([[-3, 4]])}, "of the vocabulary"),
        ({"tokens": np.array([[NO_TOKEN, 4]])}, "of the vocabulary"),
        ({"tokens": np.zeros((1, 0), np.int64)}, "do not fit their tokens"),
        ({"tokens": np.array([3, 4])}, "no rows of tokens"),
        ({"weights": np.zeros((1, 1279), np.int8)}, "do not fit their tokens"),
        ({"scales": np.zeros((1, 32), np.float32)}, "do not fit their tokens"),
        ({"biases": np.zeros((1, 32), np.float32)}, "do not fit their tokens"),
        ({"weight": np.zeros((2, 11, 32), np.float32)}, "panels do not fit"),
        ({"bias": np.zeros(40, np.float32)}, "do not fit their tokens"),
    ],
)
def test_candidates_of_what_does_not_fit_are_refused(changed: dict[str, Array], message: str) -> None:
    right: dict[str, Array | None] = {
        "x": np.zeros((1, 2, 1, 10), np.float32),
        "scores": np.zeros((1, 2), np.float32),
        "width": np.array([2]),
        "tokens": np.array([[3, 9]]),
        "weights": np.zeros((1, 1280), np.int8),
        "scales": np.zeros((1, 0), np.float32),
        "biases": np.zeros((1, 0), np.float32),
        "weight": np.zeros((2, 10, 32), np.float32),
        "scale": None,
        "rest": None,
        "bias": None,
    }
    outputs = list(RESULTS.values())
    check_refused("ShortlistCandidates", right, changed, message, outputs, precision="float32", vocabulary=40)
