"""The processor's time of whole batches and of batches that refill, for the same lines.

    python -m benchmarks.slots ENGINE test.en [--lines 1000] [--threads 2] [--slots 8 32 64] [--workers 1 2]

The lines are translated in sorted whole batches, and in slots with calls of 2 tokens and of 20 ms. All ways take turns.
Shown are the lowest and highest seconds of the processor, over all threads, and the lowest of the clock. The first ones
also tell on a machine that others use; threads that spin count, although they do nothing.
"""

import argparse
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path

from xformc.runtime import Engine, TranslationServer, load
from xformc.runtime.text.lines import read_text_file

Way = Callable[[Sequence[str]], None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", type=Path)
    parser.add_argument("source", type=Path)
    parser.add_argument("--lines", type=int, default=1000, help="number of lines to use, from the start of the file")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--slots", type=int, nargs="+", default=[8, 32, 64])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    lines = read_text_file(arguments.source)[: arguments.lines]
    engine, spent = load(arguments.engine, threads=arguments.threads), defaultdict[str, list[tuple[float, float]]](list)
    every = ways(engine, arguments.slots, arguments.workers)
    for _ in range(arguments.rounds):
        for name, way in every.items():
            processor, clock = time.process_time(), time.perf_counter()
            way(lines)
            spent[name].append((time.process_time() - processor, time.perf_counter() - clock))
    print(f"{engine.manifest.name}, {engine.manifest.precision}, {len(lines):,} lines, {arguments.threads} threads")
    print(f"{'':44}{'processor':>15}{'clock':>9}")
    for name, times in spent.items():
        low, high = min(one for one, _ in times), max(one for one, _ in times)
        print(f"{name:44}{low:6.2f} to {high:.2f} s{min(one for _, one in times):7.2f} s", flush=True)


def ways(engine: Engine, slots: Sequence[int], workers: Sequence[int]) -> dict[str, Way]:
    """Return the ways to translate lines, by name."""
    found: dict[str, Way] = {}
    for count in workers:
        found[f"whole batches, {count} workers"] = partial(_whole, engine, count)
    for size, count, tokens in product(slots, workers, (2, None)):
        name = f"{size} slots, {count} workers, {'calls of 20 ms' if tokens is None else f'{tokens} tokens a call'}"
        found[name] = partial(_refilled, engine, size, count, tokens)
    return found


def _whole(engine: Engine, workers: int, lines: Sequence[str]) -> None:
    engine.translate(lines, workers=workers)


def _refilled(engine: Engine, slots: int, workers: int, tokens: int | None, lines: Sequence[str]) -> None:
    with engine.serve(slots=slots, workers=workers, tokens_at_once=tokens) as server:
        assert isinstance(server, TranslationServer)
        for reply in [server.submit(line) for line in lines]:
            reply.result()


if __name__ == "__main__":
    main()
