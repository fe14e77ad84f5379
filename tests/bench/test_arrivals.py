"""The search for the highest rate of arrivals, and the play in batches, on a clock that does not wait."""

from collections.abc import Sequence

import numpy as np
import pytest

from benchmarks.arrivals import rates
from benchmarks.arrivals.generation import prompts
from benchmarks.arrivals.rates import Request, arrivals, highest, in_batches


def queue(seconds: float, requests: Sequence[Request[int]]) -> list[float]:
    """A server that answers one request after the other, each in this time."""
    free, took = 0.0, list[float]()
    for request in requests:
        free = max(free, request.arrives) + seconds
        took.append(free - request.arrives)
    return took


def test_the_highest_rate_is_that_of_the_queue() -> None:
    played = [
        at for at in (highest(lambda r, s=s: queue(s, r), [1], rate=10, seconds=100, bound=0.5) for s in (0.01, 0.02))
    ]
    fast, slow = (one.rate for one in played if one is not None)
    assert 80 < fast < 100 and 35 < slow < 50  # a queue with 95% within 0.5 s is a little below one request a service
    assert highest(lambda r: queue(1.0, r), [1], rate=10, seconds=5, bound=0.5) is None


def test_arrivals_are_a_poisson_process_of_given_things() -> None:
    requests = arrivals(["a", "b"], 50, 40)
    gaps = np.diff([one.arrives for one in requests])
    assert len(requests) == 2001 and {one.what for one in requests} == {"a", "b"}
    assert gaps.mean() == pytest.approx(1 / 50, rel=0.1) and gaps.std() == pytest.approx(1 / 50, rel=0.1)
    assert requests == arrivals(["a", "b"], 50, 40)


def test_a_batch_is_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(rates.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(rates.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    batches: list[list[int]] = []

    def batch(some: Sequence[int]) -> list[float]:
        batches.append([*some])
        now[0] += 1.0
        return [now[0]] * len(some)

    requests = [Request(number, at) for number, at in enumerate([0.5, 0.75, 1.0, 1.25, 5.0])]
    clocked = in_batches(batch, 2, requests)
    assert batches == [[0], [1, 2], [3], [4]]
    assert clocked == pytest.approx([1.0, 1.75, 1.5, 2.25, 1.0])


def test_prompts_have_the_lengths_of_lines() -> None:
    found = prompts([("one two three", "vier"), ("", "x"), ("a", "b c")])
    assert [(len(ids), tokens) for ids, tokens in found] == [(3, 1), (1, 2)]
