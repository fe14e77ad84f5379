"""ScreenCandidates of runtime/kernels/ against the same candidates in float64, and its margins."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.runtime.kernel_session import Array, check_refused, run_node
from tests.runtime.test_kernels_vocabulary import RESULTS, random_scores
from xformc.compiler.quantize.layouts import panels
from xformc.compiler.quantize.screening import screen, unscreen
from xformc.errors import UserError

Floats = NDArray[np.float32]


pytestmark = pytest.mark.usefixtures("isa")


def screened(
    matrix: Floats, bias: Floats | None, x: Floats, scores: Floats, threads: int = 1, margins: float = 1
) -> list[Array]:
    """Scores, tokens and parents by ScreenCandidates, its margins times a number."""
    made = screen(matrix)
    inputs = [x, scores, np.array([scores.shape[1]]), made.rest, made.panels, made.scale]
    inputs += [made.largest * np.float32(margins), bias]
    return run_node("ScreenCandidates", inputs, list(RESULTS.values()), threads=threads, vocabulary=len(matrix))


def totals(matrix: Floats, bias: Floats | None, x: Floats, scores: Floats) -> NDArray[np.float64]:
    """The score of every continuation [batch, beam * vocabulary] in float64."""
    logits = x.reshape(*scores.shape, -1).astype(np.float64) @ matrix.T.astype(np.float64)
    logits += 0 if bias is None else bias
    highest = logits.max(-1, keepdims=True)
    logits -= highest + np.log(np.exp(logits - highest).sum(-1, keepdims=True))
    return (scores[..., None] + logits).reshape(len(scores), -1)


def check(found: list[Array], expected: NDArray[np.float64], size: int, tolerance: float) -> None:
    """What was found has the right scores, and nothing better was left out, up to the tolerance."""
    count = found[0].shape[1]
    picked = np.take_along_axis(expected, found[2] * size + found[1], 1)
    best = -np.sort(-expected, 1)[:, :count]
    np.testing.assert_allclose(found[0], picked, 0, tolerance)
    np.testing.assert_allclose(picked, best, 0, tolerance)
    assert all(len(set(zip(*pairs, strict=True))) == count for pairs in zip(found[1], found[2], strict=True))


def random_case(seed: int) -> tuple[Floats, Floats | None, Floats, Floats]:
    rng = np.random.default_rng(seed)
    size, depth = int(rng.choice([12, 33, 1000, 1024, 5001])), int(rng.choice([1, 5, 6, 33, 64, 200]))
    batch, beam = int(rng.choice([1, 3, 9, 40])), int(rng.integers(1, 6))
    norms = np.exp(rng.normal(0, rng.choice([0, 1]), (size, 1)))
    matrix = (norms * rng.normal(size=(size, depth))).astype(np.float32)
    bias = rng.normal(size=size).astype(np.float32) if rng.random() < 0.5 else None
    x = (rng.normal(size=(batch, beam, 1, depth)) * rng.choice([0.1, 3]) / np.sqrt(depth)).astype(np.float32)
    return matrix, bias, x, random_scores(rng, batch, beam)


@pytest.mark.parametrize("seed", range(20))
def test_it_finds_what_float64_finds(seed: int) -> None:
    matrix, bias, x, scores = random_case(seed)
    found = screened(matrix, bias, x, scores)
    check(found, totals(matrix, bias, x, scores), len(matrix), 5e-5)
    for one, two in zip(found, screened(matrix, bias, x, scores, threads=2), strict=True):
        assert one.tobytes() == two.tobytes()


def close_rows(rng: np.random.Generator) -> tuple[Floats, Floats, Floats]:
    """A vocabulary of which 200 tokens differ by less than what 16-bit integers tell apart, but not float32.

    They are the best, but none of them is so probable that the normalizer would want it in float32.
    """
    depth = 64
    x = rng.normal(size=(2, 2, 1, depth)).astype(np.float32)
    matrix = rng.normal(size=(20000, depth)) * 0.3 / np.sqrt(depth)
    close = rng.choice(len(matrix), 200, replace=False)
    unit = x[0, 0, 0] / np.linalg.norm(x[0, 0, 0])
    matrix[close] -= (matrix[close] @ unit)[:, None] * unit
    matrix[close] += 2 * unit / np.linalg.norm(x[0, 0, 0]) * (1 + 2e-4 * rng.random((200, 1)))
    return matrix.astype(np.float32), x, np.zeros((2, 2), np.float32)


def test_tokens_that_integers_cannot_tell_apart_are_told_apart() -> None:
    matrix, x, scores = close_rows(np.random.default_rng(0))
    expected = totals(matrix, None, x, scores)
    check(screened(matrix, None, x, scores), expected, len(matrix), 2e-5)
    order = np.argsort(-expected[0], kind="stable")[:4]
    assert np.array_equal(screened(matrix, None, x, scores)[1][0], order % len(matrix))


def test_without_its_margins_it_would_miss_some() -> None:
    matrix, x, scores = close_rows(np.random.default_rng(0))
    right, wrong = (screened(matrix, None, x, scores, margins=margins) for margins in (1, 0))
    assert not np.array_equal(right[1][0], wrong[1][0])


def test_a_sentence_depends_on_nothing_else() -> None:
    rng = np.random.default_rng(1)
    matrix, bias = rng.normal(size=(5000, 40)).astype(np.float32), rng.normal(size=5000).astype(np.float32)
    x, scores = rng.normal(size=(150, 4, 1, 40)).astype(np.float32), random_scores(rng, 150, 4)
    every = screened(matrix, bias, x, scores, threads=2)
    for i in (0, 70, 149):
        for one, row in zip(screened(matrix, bias, x[i : i + 1], scores[i : i + 1]), every, strict=True):
            assert one[0].tobytes() == row[i].tobytes()


@pytest.mark.parametrize("factor", [0, 1e-30, 1e-20, 1e25])
def test_rows_of_any_size(factor: float) -> None:
    rng = np.random.default_rng(3)
    matrix = (rng.normal(size=(2000, 30)) / (factor or 1)).astype(np.float32)
    x, scores = rng.normal(size=(3, 2, 1, 30)) * factor, np.zeros((3, 2), np.float32)
    found = screened(matrix, None, x.astype(np.float32), scores)
    check(found, totals(matrix, None, x.astype(np.float32), scores), 2000, 1e-5)


def test_one_large_number_in_a_row() -> None:
    """Where the largest number decides on the scale, not the norm, and most others are rounded to nothing."""
    rng = np.random.default_rng(4)
    matrix, x = rng.normal(size=(2000, 30)).astype(np.float32), rng.normal(size=(3, 2, 1, 30)).astype(np.float32)
    matrix[::7, 3] = 1e5
    x[..., 3] = 1e-4
    x[1, ..., 5], matrix[:, 5] = 1e5, 0
    scores = np.zeros((3, 2), np.float32)
    check(screened(matrix, None, x, scores), totals(matrix, None, x, scores), 2000, 5e-4)


def test_weights_that_are_not_finite_are_refused() -> None:
    matrix = np.ones((2000, 30), np.float32)
    matrix[77, 3] = -np.inf
    with pytest.raises(UserError, match="not finite"):
        screen(matrix)


def test_a_row_without_numbers_hides_no_others() -> None:
    rng = np.random.default_rng(5)
    matrix, x = rng.normal(size=(2000, 30)).astype(np.float32), rng.normal(size=(3, 2, 1, 30)).astype(np.float32)
    matrix[78], scores = 0, np.zeros((3, 2), np.float32)
    check(screened(matrix, None, x, scores), totals(matrix, None, x, scores), 2000, 1e-4)


@pytest.mark.parametrize(
    ("rows", "depth", "scale"), [(1, 1, 1), (33, 5, 1e-3), (2000, 512, 0.05), (64, 30, 1e30), (5, 8, 0)]
)
def test_the_two_parts_are_the_matrix(rows: int, depth: int, scale: float) -> None:
    matrix = (scale * np.random.default_rng(rows).normal(size=(rows, depth))).astype(np.float32)
    made = screen(matrix)
    found = unscreen(made.panels, made.scale, made.rest)
    large = np.abs(matrix) >= 256 * made.scale[:, None]
    assert np.array_equal(found[large], matrix[large])
    assert (np.abs(found.astype(np.float64) - matrix) <= made.scale[:, None] * 2.0**-16).all()
    assert (found == matrix).mean() > 0.85


@pytest.mark.parametrize("seed", range(10))
def test_products_and_rows_of_screened_weights_are_those_of_the_matrix(seed: int) -> None:
    """Project and Embed give the bits that they give with the same matrix in float32."""
    rng = np.random.default_rng(seed)
    new, depth, rows = int(rng.choice([1, 31, 33, 200])), int(rng.choice([1, 5, 64, 130])), int(rng.choice([1, 7, 70]))
    made = screen(rng.normal(size=(new, depth)).astype(np.float32))
    matrix = unscreen(made.panels, made.scale, made.rest)
    x, ids = rng.normal(size=(rows, depth)).astype(np.float32), rng.integers(0, new, rows)
    parts = [made.panels, made.scale, made.rest]
    assert np.array_equal(embed("screened", ids, parts, depth), embed("float32", ids, [matrix], depth))
    assert np.array_equal(project("screened", x, parts, new), project("float32", x, [panels(matrix)], new))


def embed(precision: str, ids: Array, weight: list[Array], width: int) -> Array:
    return run_node("Embed", [ids, *weight], [np.float32], precision=precision, width=width, factor=1.5)[0]


def project(precision: str, x: Array, weight: list[Array], new: int) -> Array:
    attributes: dict[str, Any] = {
        "depth": 1,
        "parts": 1,
        "ranks": [1],
        "sizes": [new],
        "bias": 0,
        "activation": "none",
        "norm": "none",
    }
    inputs = [x, None, None, None, *weight]
    return run_node("Project", inputs, [np.float32], precision=precision, **attributes)[0]


def test_of_rows_that_are_no_numbers_there_are_no_candidates() -> None:
    x = np.ones((2, 2, 1, 8), np.float32)
    x[1] = np.nan
    matrix = np.random.default_rng(6).normal(size=(50, 8)).astype(np.float32)
    found = screened(matrix, None, x, np.zeros((2, 2), np.float32))
    assert np.isfinite(found[0][0]).all() and np.isnan(found[0][1]).all()


def test_a_batch_may_be_empty() -> None:
    matrix = np.ones((50, 8), np.float32)
    found = screened(matrix, None, np.zeros((0, 2, 1, 8), np.float32), np.zeros((0, 2), np.float32))
    assert found[0].shape == found[1].shape == (0, 4)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"x": np.zeros((3, 1, 1, 10), np.float32)}, "x and scores do not fit"),
        ({"x": np.zeros((3, 2, 1, 0), np.float32)}, "x has no depth"),
        ({"x": np.zeros((3, 2, 1, 11), np.float32)}, "the weight does not fit"),
        ({"width": np.array([21])}, "the beam's width needs a vocabulary of 42 tokens"),
        ({"rest": np.zeros((2, 10, 32), np.int16)}, "the weight does not fit"),
        ({"rest": np.zeros((41, 10), np.int16)}, "the weight does not fit"),
        ({"rest": np.zeros((40, 9), np.int16)}, "the weight does not fit"),
        ({"rest": np.zeros((40, 10), np.float32)}, r"Type 'tensor\(float\)' of input parameter"),
        ({"screen": np.zeros((2, 6, 32, 2), np.int16)}, "panels do not fit"),
        ({"scale": np.zeros(41, np.float32)}, "scale needs one number for each token"),
        ({"largest": np.zeros(3, np.float32)}, "largest has two numbers"),
        ({"bias": np.zeros(39, np.float32)}, "bias needs one number for each token"),
    ],
)
def test_what_does_not_fit_is_refused(changed: dict[str, Array], message: str) -> None:
    right: dict[str, Array | None] = {
        "x": np.zeros((3, 2, 1, 10), np.float32),
        "scores": np.zeros((3, 2), np.float32),
        "width": np.array([2]),
        "rest": np.zeros((40, 10), np.int16),
        "screen": np.zeros((2, 5, 32, 2), np.int16),
        "scale": np.zeros(40, np.float32),
        "largest": np.zeros(2, np.float32),
        "bias": None,
    }
    check_refused("ScreenCandidates", right, changed, message, list(RESULTS.values()), vocabulary=40)


def test_candidates_of_a_projection_refuse_screened_weights() -> None:
    made = screen(np.ones((40, 8), np.float32))
    inputs = [np.zeros((1, 1, 1, 8), np.float32), np.zeros((1, 1), np.float32), np.array([2]), made.panels, made.scale]
    with pytest.raises(Exception, match="ScreenCandidates reads screened weights"):
        run_node("ProjectCandidates", inputs, list(RESULTS.values()), precision="screened", vocabulary=40)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"panels": np.zeros((2, 5, 32, 2), np.int16)}, "panels do not fit"),
        ({"scale": np.zeros(41, np.float32)}, "the rest of screened weights does not fit"),
        ({"rest": np.zeros((40, 9), np.int16)}, "the rest of screened weights does not fit"),
        ({"rest": np.zeros((40, 8), np.float32)}, r"Type 'tensor\(float\)'"),
    ],
)
def test_rows_of_screened_weights_that_do_not_fit_are_refused(changed: dict[str, Array], message: str) -> None:
    made = screen(np.ones((40, 8), np.float32))
    parts = {"panels": made.panels, "scale": made.scale, "rest": made.rest, **changed}
    with pytest.raises(Exception, match=message):
        embed("screened", np.array([3]), list(parts.values()), 8)
