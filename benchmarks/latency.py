"""How long single sentences take, from text to text: a trained engine beside CTranslate2.

    python -m benchmarks.latency ENGINE RUN test.en [--lines 300] [--threads 2] [--rounds 3]

The systems take turns line by line, each with one line at a time on all threads; CTranslate2 with the same weights and
precision (float32 beside bfloat16, which it lacks on a CPU), in its default setting and with CT2_FORCE_CPU_ISA=AVX512.
The time of a line is the median of its rounds. The lines are spread evenly over the file. Of CTranslate2's settings the
one with the lower median counts.
"""

import argparse
import statistics
import tempfile
from collections import defaultdict
from pathlib import Path

from benchmarks.decode.engines import write_peer
from benchmarks.decode.speed import SETTINGS
from benchmarks.text import Peer, Setting, one_tokenizer, ours, pieces_of
from xformc.compiler import compile_spec
from xformc.compiler.spec import load_spec
from xformc.compiler.weight_files import load_weights
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
    parser.add_argument("--lines", type=int, default=300)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    everything = [line for line in read_text_file(given.source) if line.strip()]
    lines = everything[:: max(1, len(everything) // given.lines)][: given.lines]
    with tempfile.TemporaryDirectory() as folder:
        times = measure(given, lines, Path(folder))
    peer = min(SETTINGS, key=lambda name: statistics.median(times[name]))
    rows = {"xformc": times["xformc"], f"ctranslate2 ({peer})": times[peer]}
    print(f"{len(lines)} lines{'':26} median, ms   99th percentile, ms")
    for name, found in rows.items():
        print(f"{name:32}{statistics.median(found) * 1e3:16.2f}{percentile(found) * 1e3:22.2f}")
    pairs = list(zip(times[peer], times["xformc"], strict=True))
    ratios = sorted(other / own for other, own in pairs)
    low, high = ratios[len(ratios) // 20], ratios[-1 - len(ratios) // 20]
    print(f"ratio of single lines: median {statistics.median(ratios):.2f}, nine tenths of them {low:.2f} to {high:.2f}")


def measure(given: argparse.Namespace, lines: list[str], folder: Path) -> dict[str, list[float]]:
    """The seconds of each line, by system."""
    engine = load(given.engine, threads=given.threads)
    tokenizer = one_tokenizer(engine, given.engine)
    spec = load_spec(given.engine / "spec.yaml")
    weights = load_weights(given.run, compile_spec(spec))
    write_peer(spec, weights, engine.manifest.precision, folder / "peer", pieces_of(tokenizer, engine))
    peer = Peer(engine, folder / "peer", tokenizer, given.threads, None)
    rounds = defaultdict[str, list[list[float]]](list)
    for turn in range(-1, given.rounds):
        took = defaultdict[str, list[float]](list)
        for line in lines if turn >= 0 else lines[:WARM_UP]:
            took["xformc"].append(ours(engine, [line], 1, None)[0])
            for name in SETTINGS:
                took[name].append(peer.translate(Setting(name, 1, BATCH_TOKENS), [line])[0])
        for name, found in took.items() if turn >= 0 else ():
            rounds[name].append(found)
    peer.close()
    return {name: [statistics.median(one) for one in zip(*found, strict=True)] for name, found in rounds.items()}


def percentile(found: list[float]) -> float:
    """The 99th percentile."""
    return sorted(found)[min(len(found) - 1, len(found) * 99 // 100)]


if __name__ == "__main__":
    main()
