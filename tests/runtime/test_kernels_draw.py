"""DrawToken of runtime/kernels/ beside its definition in docs/kernels.md, in float64."""

from typing import Any

import numpy as np
import pytest

from tests.runtime.kernel_session import Array, check_refused, run_node

NEVER = -np.inf
SIZES = [1, 3, 16, 1000, 1024, 5000]

pytestmark = pytest.mark.usefixtures("isa")


def draw(
    logits: Array,
    uniform: Any = 0.0,
    temperature: Any = 0.0,
    least: Any = NEVER,
    scores: Array | None = None,
    threads: int = 1,
) -> tuple[Array, Array]:
    """The tokens, and their log probabilities; options are a number for all texts, or one for each."""
    options = [np.array(value, np.float32).reshape(-1) for value in (temperature, least)]
    drawn = np.broadcast_to(np.array(uniform, np.float32), len(logits)).copy()
    inputs = [logits[:, None, :], drawn, *options, *([] if scores is None else [scores])]
    tokens, gains = run_node("DrawToken", inputs, [np.int64, np.float32], threads=threads)
    return tokens, gains


def random_logits(batch: int, vocabulary: int, seed: int = 0) -> Array:
    return (3 * np.random.default_rng(seed).normal(size=(batch, vocabulary))).astype(np.float32)


def log_probabilities(logits: Array) -> Array:
    wide = logits.astype(np.float64)
    below = wide - wide.max(axis=1, keepdims=True)
    return below - np.log(np.exp(below).sum(axis=1, keepdims=True))


@pytest.mark.parametrize("vocabulary", SIZES)
@pytest.mark.parametrize("batch", [0, 1, 2, 9])
def test_at_temperature_0_the_likeliest_token_is_drawn(batch: int, vocabulary: int) -> None:
    logits = random_logits(batch, vocabulary)
    tokens, gains = draw(logits, threads=2)
    assert tokens.tolist() == logits.argmax(axis=1).tolist()
    np.testing.assert_allclose(gains, log_probabilities(logits)[np.arange(batch), tokens], rtol=0, atol=2e-6)


def test_of_equal_logits_the_first_token_is_drawn() -> None:
    logits = np.zeros((1, 3000), np.float32)
    logits[0, [1500, 2900]] = 1
    assert draw(logits)[0].tolist() == [1500]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("vocabulary", SIZES)
def test_a_random_number_draws_the_token_in_whose_share_it_falls(vocabulary: int, temperature: float) -> None:
    logits = random_logits(1, vocabulary)
    weights = np.exp(log_probabilities(logits / np.float32(temperature)))[0]
    ends = np.cumsum(weights)
    likely = np.argsort(-weights)[:50]
    likely = likely[weights[likely] > 1e-5]  # a random number has 24 bits
    rows = np.repeat(logits, len(likely), axis=0)
    tokens, gains = draw(rows, ends[likely] - weights[likely] / 2, temperature)
    assert tokens.tolist() == likely.tolist()
    np.testing.assert_allclose(gains, log_probabilities(logits)[0, likely], rtol=0, atol=4e-6)


def test_no_token_below_the_threshold_is_drawn() -> None:
    logits = np.array([[2.0, 1.0, 0.0, 1.5]], np.float32)
    for uniform in (0.0, 0.3, 0.62, 0.7, 0.9999999):
        assert draw(logits, uniform, 1.0, least=-0.5)[0] in (0, 3)
    assert draw(logits, 0.9, 1.0, least=-0.4)[0] == 0


def test_a_banned_token_is_never_drawn() -> None:
    scores = np.array([[NEVER, 0.0, NEVER, 0.0, NEVER]], np.float32)
    for temperature in (0.0, 1.0, 1e30, 3e38):
        for uniform in (0.0, 0.4, 0.6, 0.9999999):
            assert draw(scores, uniform, temperature)[0] in (1, 3)


def test_by_edited_scores_the_probability_is_that_of_the_logits() -> None:
    logits = random_logits(4, 2000)
    scores = logits.copy()
    scores[np.arange(4), logits.argmax(axis=1)] = NEVER
    tokens, gains = draw(logits, scores=scores)
    assert tokens.tolist() == scores.argmax(axis=1).tolist()
    np.testing.assert_allclose(gains, log_probabilities(logits)[np.arange(4), tokens], rtol=0, atol=2e-6)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_text_has_the_same_token_and_bits_in_any_batch(threads: int) -> None:
    random, logits = np.random.default_rng(1), random_logits(20, 3001)
    uniform = random.random(20)
    temperature, least = random.choice([0.0, 0.7, 1.0], 20), random.choice([NEVER, -2.0], 20)
    together = draw(logits, uniform, temperature, least, threads=threads)
    for row in range(20):
        options = (uniform[row], temperature[row], least[row])
        tokens, gains = draw(logits[row : row + 1], *options, threads=threads)
        assert (tokens[0], gains[0]) == (together[0][row], together[1][row])


def test_of_logits_that_are_no_numbers_the_probability_is_none() -> None:
    logits = random_logits(2, 100)
    logits[1, 7] = np.nan
    _, gains = draw(logits)
    assert np.isfinite(gains[0]) and np.isnan(gains[1])


def test_what_does_not_fit_is_refused() -> None:
    right = {
        "logits": random_logits(3, 10)[:, None, :],
        "uniform": np.zeros(3, np.float32),
        "temperature": np.zeros(1, np.float32),
        "least": np.zeros((3, 1), np.float32),
        "scores": random_logits(3, 10),
    }
    for name, message in {"uniform": "row of a text", "temperature": "row of a text", "least": "row of a text"}.items():
        check_refused("DrawToken", right, {name: np.zeros(2, np.float32)}, message, [np.int64, np.float32])
    for wrong in (random_logits(3, 11), random_logits(2, 10)):
        check_refused("DrawToken", right, {"scores": wrong}, "do not fit", [np.int64, np.float32])
    for wrong in (np.zeros((3, 1, 0), np.float32), np.zeros(3, np.float32)):
        check_refused("DrawToken", right, {"logits": wrong}, "there are no logits", [np.int64, np.float32])
