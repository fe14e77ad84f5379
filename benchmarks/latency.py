"""How long single sentences take, from text to text: a trained engine beside CTranslate2.

    python -m benchmarks.latency ENGINE RUN test.en [--beside ENGINE] [--lines 300] [--threads 1 2] [--rounds 3]

The systems take turns line by line, each with one line at a time, on each number of threads; CTranslate2 with the same
weights and precision (float32 beside bfloat16, which it lacks on a CPU), in its default setting and with
CT2_FORCE_CPU_ISA=AVX512, and if ENGINE has a shortlist also with the same lists as its vocabulary map. The time of a
line is the median of its rounds. The lines are spread evenly over the file. Of each system the setting with the lowest
median counts. Another engine, such as one of the same run that an earlier xformc built, is measured beside it.
"""

import argparse
import statistics
import tempfile
from collections import defaultdict
from functools import partial
from itertools import product
from pathlib import Path

from benchmarks.decode.engines import write_peer
from benchmarks.decode.speed import SETTINGS
from benchmarks.text import Peer, Setting, one_tokenizer, ours, pieces_of
from xformc.compiler import compile_spec
from xformc.compiler.certify.certify import engine_shortlist
from xformc.compiler.spec import load_spec
from xformc.compiler.weight_files import load_weights
from xformc.format.names import MODEL
from xformc.runtime import load
from xformc.runtime.text.lines import read_text_file

WARM_UP = 5
BATCH_TOKENS = 512
"""More than a line has."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", type=Path)
    parser.add_argument("run", type=Path)
    parser.add_argument("source", type=Path)
    parser.add_argument("--beside", type=Path)
    parser.add_argument("--lines", type=int, default=300)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    everything = [line for line in read_text_file(given.source) if line.strip()]
    count = min(given.lines, len(everything))
    lines = [everything[place * len(everything) // count] for place in range(count)]
    with tempfile.TemporaryDirectory() as folder:
        times = measure(given, lines, Path(folder))
    print(f"{f'{len(lines)} lines':46}{'median, ms':>12}{'99th percentile, ms':>22}")
    for name, found in times.items():
        print(f"{name:46}{statistics.median(found) * 1e3:12.2f}{percentile(found) * 1e3:22.2f}")
    own, peer = (fastest({name: one for name, one in times.items() if name.startswith(system)}) for system in SYSTEMS)
    ratios = sorted(other / one for other, one in zip(times[peer], times[own], strict=True))
    low, high = ratios[len(ratios) // 20], ratios[-1 - len(ratios) // 20]
    print(f"{peer} / {own}: median {statistics.median(times[peer]) / statistics.median(times[own]):.2f}, ", end="")
    print(f"99th percentile {percentile(times[peer]) / percentile(times[own]):.2f}, ", end="")
    print(f"nine tenths of the lines {low:.2f} to {high:.2f}")


SYSTEMS = ("xformc", "ctranslate2")
LISTED = " with vmap"


def measure(given: argparse.Namespace, lines: list[str], folder: Path) -> dict[str, list[float]]:
    """The seconds of each line, by system and setting."""
    engines = {threads: load(given.engine, threads=threads) for threads in given.threads}
    engine = engines[given.threads[0]]
    tokenizer = one_tokenizer(engine, given.engine)
    spec = load_spec(given.engine / "spec.yaml")
    weights = load_weights(given.run, compile_spec(spec))
    own, pieces = engine.manifest, pieces_of(tokenizer, engine)
    shortlist = engine_shortlist(given.engine / MODEL, own.inputs, own.written)
    write_peer(spec, weights, engine.manifest.precision, folder / "peer", pieces, shortlist)
    peers = {threads: Peer(engine, folder / "peer", tokenizer, threads, None) for threads in given.threads}
    systems = {
        f"xformc, {threads} threads": partial(ours, one, workers=1, longest=None) for threads, one in engines.items()
    }
    if given.beside is not None:
        for threads in given.threads:
            other = load(given.beside, threads=threads)
            systems[f"beside it, {threads} threads"] = partial(ours, other, workers=1, longest=None)
    systems |= {
        f"ctranslate2{LISTED * listed}, {threads} threads, {name}": partial(
            peers[threads].translate, Setting(name, 1, BATCH_TOKENS, listed)
        )
        for threads, name, listed in product(peers, SETTINGS, {False, shortlist is not None})
    }
    rounds = defaultdict[str, list[list[float]]](list)
    for turn in range(-1, given.rounds):
        took = defaultdict[str, list[float]](list)
        for line in lines if turn >= 0 else lines[:WARM_UP]:
            for name, translate in systems.items():
                took[name].append(translate([line])[0])
        for name, found in took.items() if turn >= 0 else ():
            rounds[name].append(found)
    for peer in peers.values():
        peer.close()
    return {name: [statistics.median(one) for one in zip(*found, strict=True)] for name, found in rounds.items()}


def fastest(times: dict[str, list[float]]) -> str:
    """The setting with the lowest median."""
    return min(times, key=lambda name: statistics.median(times[name]))


def percentile(found: list[float]) -> float:
    """The 99th percentile."""
    return sorted(found)[min(len(found) - 1, len(found) * 99 // 100)]


if __name__ == "__main__":
    main()
