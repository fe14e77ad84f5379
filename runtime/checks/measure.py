"""Measures an engine: load time, latency of single examples, throughput in batches, and memory."""

import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from xformc.format.manifest import Manifest, check_files
from xformc.format.reader import read_manifest
from xformc.runtime.checks.workload import Workload
from xformc.runtime.devices.device import DeviceName
from xformc.runtime.engine import Engine, load
from xformc.runtime.predict import MAX_BATCH_POSITIONS
from xformc.runtime.session import thread_count
from xformc.runtime.stream import MAX_BATCH_TOKENS, Batching

PARTS = (1 / 16, 1 / 4, 1, 4)
"""The batch sizes to try, as fractions of the default."""

FEWEST = 8
"""The minimum number of examples of a measurement."""

ROUNDS = 3
"""How often each plan is measured, in turns with the others: other programs slow down some of the time."""


@dataclass(frozen=True)
class Loading:
    """Seconds to check the hashes of the files, and seconds to open the engine."""

    check: float
    open: float


@dataclass(frozen=True)
class Latency:
    """Seconds from an example to its result, one at a time: of the first one, and quantiles of `count` others.

    `tokens` is the mean number of tokens of their results.
    """

    first: float
    p50: float
    p90: float
    p99: float
    count: int
    tokens: float


@dataclass(frozen=True)
class Throughput:
    """Examples and tokens per second over `count` examples in batches: those of the round in the middle.

    `lowest` and `highest` are the examples per second of the slowest and the fastest round. `peak` is the process's
    peak memory in bytes after the first.
    """

    workers: int
    max_batch_tokens: int
    examples_per_second: float
    tokens_per_second: float
    lowest: float
    highest: float
    count: int
    peak: int


@dataclass(frozen=True)
class Report:
    """All measurements. `memory` is in bytes: before the engine was loaded, and at the peak."""

    size: int
    loading: Loading
    latency: Latency
    throughput: Sequence[Throughput]
    memory: tuple[int, int]


def make_plans(
    manifest: Manifest, workers: Sequence[int] | None, max_batch_tokens: Sequence[int] | None, threads: int | None
) -> list[Batching]:
    """Return every combination of workers and batch size.

    By default, workers are 1 and one per core (or per thread of `threads`), and batch sizes are PARTS of the default.
    """
    usual = MAX_BATCH_POSITIONS if manifest.labels else MAX_BATCH_TOKENS
    return [
        Batching(number, tokens)
        for number in workers or sorted({1, thread_count(threads)})
        for tokens in max_batch_tokens or [int(part * usual) for part in PARTS]
    ]


def timed_load(directory: Path, threads: int | None, device: DeviceName | None = None) -> tuple[Engine, Loading]:
    """Load the engine for one worker, and return it with the time that took. Raises: UserError as `load`."""
    began = time.perf_counter()
    check_files(directory, read_manifest(directory))
    checked = time.perf_counter()
    engine = load(directory, threads=threads, verify_hashes=False, device=device)
    return engine, Loading(checked - began, time.perf_counter() - checked)


def measure_latency(work: Workload, seconds: float) -> Latency:
    """Run examples one at a time, in a cycle, for `seconds`."""
    first, _ = _timed(work, work.items[0])
    times, tokens, began = list[float](), 0, time.perf_counter()
    for item in cycle(work.items):
        elapsed, found = _timed(work, item)
        times.append(elapsed)
        tokens += found
        if time.perf_counter() - began > seconds and len(times) >= FEWEST:
            break
    p50, p90, p99 = (quantile(times, share) for share in (0.5, 0.9, 0.99))
    return Latency(first, p50, p90, p99, len(times), tokens / len(times))


@dataclass(frozen=True)
class Turn:
    """A measurement of `plan` in one round: seconds, examples and tokens; `peak` as in Throughput."""

    plan: Batching
    seconds: float
    count: int
    tokens: int
    peak: int


def measure_turns(work: Workload, plans: Sequence[Batching], first_rate: float, seconds: float) -> Iterator[Turn]:
    """Measure each plan in each of ROUNDS rounds, about `seconds` in all.

    `first_rate` is an estimate of the first plan's examples per second.
    """
    rate, rates = first_rate, dict[Batching, float]()
    for plan in [*plans] * ROUNDS:
        if plan not in rates:
            list(work.run(work.items[:1], plan))
        elapsed, tokens, count, rate = 0.0, 0, 0, rates.get(plan, rate)
        while elapsed < seconds / ROUNDS / 2:  # the rate of the first plan is an estimate
            count = max(FEWEST, int(rate * seconds / ROUNDS))
            items = list(islice(cycle(work.items), count))
            began = time.perf_counter()
            tokens = sum(work.run(items, plan))
            elapsed = time.perf_counter() - began
            rate = count / elapsed
        rates[plan] = rate
        yield Turn(plan, elapsed, count, tokens, peak_memory())


def throughputs(turns: Sequence[Turn]) -> list[Throughput]:
    """What the turns say of each plan, in order."""
    return [_throughput([turn for turn in turns if turn.plan == plan]) for plan in dict.fromkeys(t.plan for t in turns)]


def _throughput(turns: Sequence[Turn]) -> Throughput:
    ordered = sorted(turns, key=lambda turn: turn.count / turn.seconds)
    middle, plan = ordered[len(ordered) // 2], turns[0].plan
    assert plan.workers is not None
    return Throughput(
        plan.workers,
        plan.max_batch_tokens,
        middle.count / middle.seconds,
        middle.tokens / middle.seconds,
        ordered[0].count / ordered[0].seconds,
        ordered[-1].count / ordered[-1].seconds,
        sum(turn.count for turn in turns),
        turns[0].peak,
    )


def quantile(values: Sequence[float], share: float) -> float:
    """Return the quantile of one or more values, interpolated linearly; `share` is from 0 to 1."""
    if len(values) == 1:
        return values[0]
    return statistics.quantiles(values, n=1000, method="inclusive")[min(998, int(share * 1000) - 1)]


def peak_memory() -> int:
    """Return the peak resident memory of this process in bytes.

    On Linux it is read from /proc/self/status, because getrusage, used elsewhere, also counts the process before exec.
    """
    status = Path("/proc/self/status")
    if status.exists():
        fields = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
        return int(fields["VmHWM"].split()[0]) * 1024
    import resource  # noqa: PLC0415  # Windows has none

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _timed(work: Workload, item: Any) -> tuple[float, int]:
    """Return the seconds from the item to its result, and the tokens of the result."""
    start = time.perf_counter()
    [tokens] = work.run([item], Batching(1, window=1))
    return time.perf_counter() - start, tokens
