"""The highest rate at which requests may arrive so that nearly all of them are answered in time."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np

RAISE, NARROW, TRIALS = 1.5, 2, 16
"""The factor from a rate to the next one, how often the range of the highest is halved, and the most rates tried."""

Asked = TypeVar("Asked")


@dataclass(frozen=True)
class Request(Generic[Asked]):
    """What is asked for, and the seconds from the start at which it arrives."""

    what: Asked
    arrives: float


Player = Callable[[Sequence[Request[Asked]]], list[float]]
"""Plays requests as they arrive; returns the seconds from the arrival of each to its answer."""


@dataclass(frozen=True)
class Held:
    """A rate that was held, in requests a second, and the seconds of the answers at it: median and 95th percentile."""

    rate: float
    median: float
    late: float


@dataclass
class Clock(Generic[Asked]):
    """The requests in the order of their arrival, and which comes next."""

    requests: Sequence[Request[Asked]]
    began: float = field(default_factory=time.perf_counter)
    next: int = 0

    def take(self, most: int) -> Sequence[Request[Asked]]:
        """Return what waits, at most this many requests; wait for the first one. At the end, none."""
        if self.next == len(self.requests):
            return []
        time.sleep(max(0.0, self.began + self.requests[self.next].arrives - time.perf_counter()))
        now = time.perf_counter() - self.began
        waiting = [one for one in self.requests[self.next : self.next + most] if one.arrives <= now]
        self.next += len(waiting)
        return waiting

    def took(self, request: Request[Asked], now: float) -> float:
        """Return the seconds from the arrival of a request to `now`, a time of `time.perf_counter`."""
        return now - self.began - request.arrives


def arrivals(whats: Sequence[Asked], rate: float, seconds: float) -> list[Request[Asked]]:
    """Return a Poisson process of requests, `rate` a second, drawn from `whats`; always the same one."""
    random = np.random.default_rng(0)
    times = np.cumsum(random.exponential(1 / rate, int(rate * seconds) + 1))
    return [Request(whats[row], float(at)) for row, at in zip(random.integers(0, len(whats), len(times)), times)]  # noqa: B905


def highest(player: Player[Asked], whats: Sequence[Asked], *, rate: float, seconds: float, bound: float) -> Held | None:
    """Return the highest rate whose 95th percentile is within `bound` seconds, from `rate` on; None if none was.

    Each rate is played for this many seconds of arrivals. It is raised, or lowered, until one is held and one is not,
    and then narrowed down.
    """
    held, missed, narrowed = None, None, 0
    player(arrivals(whats, rate, min(seconds, 2.0)))  # a first call is slower
    for _ in range(TRIALS):
        took = player(arrivals(whats, rate, seconds))
        late = float(np.percentile(took, 95))
        if late <= bound:
            held = Held(rate, float(np.median(took)), late)
        else:
            missed = rate
        narrowed += held is not None and missed is not None
        if narrowed > NARROW:
            break
        if held is not None and missed is not None:
            rate = (held.rate + missed) / 2
        else:
            rate = rate / RAISE if held is None else rate * RAISE
    return held


def in_batches(
    batch: Callable[[Sequence[Asked]], Sequence[float]], most: int, requests: Sequence[Request[Asked]]
) -> list[float]:
    """Play with one batch after the other: of whatever waits, at most this many requests.

    `batch` answers some requests, and returns the time of `time.perf_counter` at which each was answered.
    """
    clock, took = Clock(requests), list[float]()
    while waiting := clock.take(most):
        ended = batch([one.what for one in waiting])
        took += [clock.took(one, now) for one, now in zip(waiting, ended, strict=True)]
    return took
