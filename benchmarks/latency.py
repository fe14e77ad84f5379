"""How long single sentences take, from text to text: a trained engine beside CTranslate2.

    python -m benchmarks.latency ENGINE RUN test.en [--beside ENGINE] [--lines 300] [--threads 1 2] [--rounds 3]
        [--turn 1]

Each system has the setting that is fastest on some lines: the number of threads, and for CTranslate2, which gets the
same weights and precision (float32 beside bfloat16, which it lacks on a CPU), CT2_FORCE_CPU_ISA=AVX512 or its default.
If ENGINE has a shortlist, CTranslate2 with the same lists as its vocabulary map is a system of its own, and so is
another engine, such as one of the same run that an earlier xformc built. Then the systems take turns, in a random
order. With one line in a turn, each comes after other programs, which have taken the caches; with --turn 50, each is at
work by itself. The time of a line is the median of its rounds. The lines are spread evenly over the file.
"""

import argparse
import statistics
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from itertools import product
from pathlib import Path
from random import Random

from benchmarks.decode.speed import SETTINGS
from benchmarks.text import Peer, SameModel, Setting, ours
from xformc.runtime import Engine, load
from xformc.runtime.text.lines import read_text_file

SOME = 15
"""Lines on which settings are chosen."""
BATCH_TOKENS = 512
"""More than a line has."""

Translate = Callable[[list[str]], tuple[float, list[str]]]
"""Returns the seconds that the translation of lines took, and the translations."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", type=Path)
    parser.add_argument("run", type=Path)
    parser.add_argument("source", type=Path)
    parser.add_argument("--beside", type=Path)
    parser.add_argument("--lines", type=int, default=300)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--turn", type=int, default=1, help="lines that a system translates before the next one does")
    given = parser.parse_args()
    everything = [line for line in read_text_file(given.source) if line.strip()]
    count = min(given.lines, len(everything))
    lines = [everything[place * len(everything) // count] for place in range(count)]
    with tempfile.TemporaryDirectory() as folder:
        times = measure(given, lines, Path(folder))
    print(f"{f'{len(lines)} lines':46}{'median, ms':>12}{'99th percentile, ms':>22}")
    for name, found in times.items():
        print(f"{name:46}{statistics.median(found) * 1e3:12.2f}{percentile(found) * 1e3:22.2f}")
    own, *others = times
    for other in others:
        ratios = sorted(one / mine for one, mine in zip(times[other], times[own], strict=True))
        medians = statistics.median(times[other]) / statistics.median(times[own])
        low, high = ratios[len(ratios) // 20], ratios[-1 - len(ratios) // 20]
        print(f"{other} / {own}: median {medians:.2f}, ", end="")
        print(f"99th percentile {percentile(times[other]) / percentile(times[own]):.2f}, ", end="")
        print(f"nine tenths of the lines {low:.2f} to {high:.2f}")


def measure(given: argparse.Namespace, lines: list[str], folder: Path) -> dict[str, list[float]]:
    """The seconds of each line by system, of which ENGINE is the first, in its fastest setting."""
    engines = {threads: load(given.engine, threads=threads) for threads in given.threads}
    engine = engines[given.threads[0]]
    same = SameModel.written(engine, given.engine, given.run, folder)
    peers = {threads: Peer(engine, same, threads, None) for threads in given.threads}
    systems: dict[str, dict[str, Translate]] = {"xformc": _of_engines(engines)}
    if given.beside is not None:
        systems["beside it"] = _of_engines({threads: load(given.beside, threads=threads) for threads in given.threads})
    for listed in sorted({False, same.listed}):
        systems[f"ctranslate2{' with vmap' * listed}"] = {
            f"{threads} threads, {name}": partial(peers[threads].translate, Setting(name, 1, BATCH_TOKENS, listed))
            for threads, name in product(peers, SETTINGS)
        }
    chosen = dict(fastest(name, settings, lines[:SOME]) for name, settings in systems.items())
    rounds = {name: list[list[float]]() for name in chosen}
    random = Random(0)
    for _ in range(given.rounds):
        took = {name: list[float]() for name in chosen}
        for first in range(0, len(lines), given.turn):
            for name in random.sample(list(chosen), len(chosen)):
                took[name] += [chosen[name]([line])[0] for line in lines[first : first + given.turn]]
        for name, found in took.items():
            rounds[name].append(found)
    for peer in peers.values():
        peer.close()
    return {name: [statistics.median(one) for one in zip(*found, strict=True)] for name, found in rounds.items()}


def _of_engines(engines: Mapping[int, Engine]) -> dict[str, Translate]:
    return {f"{threads} threads": partial(ours, one, workers=1, longest=None) for threads, one in engines.items()}


def fastest(name: str, settings: Mapping[str, Translate], lines: list[str]) -> tuple[str, Translate]:
    """The setting with the lowest median, with its name behind that of its system."""
    medians = dict[str, float]()
    for setting, translate in settings.items():
        translate([lines[0]])
        medians[setting] = statistics.median(translate([line])[0] for line in lines)
    best = min(medians, key=medians.__getitem__)
    return f"{name}, {best}", settings[best]


def percentile(found: list[float]) -> float:
    """The 99th percentile."""
    return sorted(found)[min(len(found) - 1, len(found) * 99 // 100)]


if __name__ == "__main__":
    main()
