"""How much faster a search is among a few hundred tokens: an engine with a shortlist beside the same one without.

python -m benchmarks.shortlists [--model base] [--precision int8 float32] [--batch 1 8 32] [--best 16]

Weights and lists are random: 100 common tokens, and --best of each source token. Sources have 25 random tokens, outputs
30. Both engines take turns; times are medians.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.decode.cases import MODELS, VOCABULARY
from benchmarks.decode.engines import fresh_weights, make_spec, write_engine
from xformc.compiler.shortlist import Shortlist
from xformc.format.names import MODEL
from xformc.runtime.session import open_model

SOURCE_TOKENS, LENGTH, COMMON, FIRST = 25, 30, 100, 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="base")
    parser.add_argument("--precision", nargs="+", default=("int8", "float32"))
    parser.add_argument("--batch", nargs="+", type=int, default=(1, 8, 32))
    parser.add_argument("--best", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    random = np.random.default_rng(0)
    likely = random.integers(FIRST, VOCABULARY, (VOCABULARY, given.best), dtype=np.int32)
    shortlist = Shortlist(np.arange(FIRST - 1, FIRST + COMMON, dtype=np.int32), likely)
    print(f"{'':8} {'batch':>5} {'all tokens, ms':>15} {'listed, ms':>11} {'ratio':>6}  tokens of a list")
    for precision in given.precision:
        with tempfile.TemporaryDirectory() as name:
            spec = make_spec(given.model, Path(name))
            weights = fresh_weights(spec, "native")
            sessions: list[Any] = []
            for lists in (None, shortlist):
                folder = Path(name) / f"engine-{lists is not None}"
                write_engine(spec, weights, precision, "native", folder, shortlist=lists)
                sessions.append(open_model(folder / MODEL, target="native", threads=given.threads))
            for batch in given.batch:
                source = random.integers(FIRST, VOCABULARY, (batch, SOURCE_TOKENS))
                whole, listed = take_turns(sessions, source, given.rounds)
                mean = np.mean([shortlist.allowed(row, (), VOCABULARY).sum() for row in source])
                numbers = f"{whole * 1e3:15.1f} {listed * 1e3:11.1f} {whole / listed:6.2f}"
                print(f"{precision:8} {batch:5} {numbers}  {mean:.0f}", flush=True)


def take_turns(sessions: list[Any], source: np.ndarray, rounds: int) -> list[float]:
    """The median seconds of each session."""
    feeds = {
        "source": source,
        "max_length_factor": np.array([0], np.float32),
        "max_length_offset": np.array([LENGTH]),
        "min_length": np.array([LENGTH]),
    }
    times: list[list[float]] = [[] for _ in sessions]
    for turn in range(rounds + 1):
        for session, own in zip(sessions, times, strict=True):
            began = time.perf_counter()
            session.run(None, feeds)
            if turn:
                own.append(time.perf_counter() - began)
    return [statistics.median(own) for own in times]


if __name__ == "__main__":
    main()
