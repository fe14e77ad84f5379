"""Batch invariance: how many translations of a file change with their batches, in tokens and in bits of the scores.

    python -m benchmarks.invariance ENGINE test.en [--lines 1000] [--n-best 4]

Every line is translated alone, then with all others: in batches of several sizes, with one and two workers, in the
order of the file and in random order. The table counts the lines whose hypotheses differ from those of the line alone.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from xformc.runtime import Engine, Hypothesis, load
from xformc.runtime.lines import read_text_file

ALONE = 1
BATCH_TOKENS = (2048, 16_384, 131_072)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", type=Path)
    parser.add_argument("source", type=Path)
    parser.add_argument("--lines", type=int, help="number of lines to use, from the start of the file")
    parser.add_argument("--n-best", type=int, default=1)
    arguments = parser.parse_args()
    engine, lines = load(arguments.engine), read_text_file(arguments.source)[: arguments.lines]
    manifest = engine.manifest
    print(f"{manifest.name}, {manifest.target}, {manifest.precision}, {len(lines):,} lines")
    print(f"{'batch tokens':>18} {'workers':>8} {'order':>7} {'tokens differ':>13} {'score bits differ':>17}")
    for one in changes(engine, lines, arguments.n_best):
        place = f"{one.max_batch_tokens:18,} {one.workers:8} {one.order:>7}"
        print(f"{place} {one.tokens:13,} {one.scores:17,}", flush=True)


@dataclass(frozen=True)
class Change:
    """The numbers of lines whose tokens and whose scores differ between these batches and the line alone."""

    max_batch_tokens: int
    workers: int
    order: str
    tokens: int
    scores: int


def changes(engine: Engine, lines: Sequence[str], n_best: int = 1) -> Iterator[Change]:
    """Yield the changes of each batching."""
    alone = engine.translate(lines, max_batch_tokens=ALONE, n_best=n_best, truncate=True)
    shuffled = np.random.default_rng(0).permutation(len(lines)).tolist()
    for tokens in BATCH_TOKENS:
        for workers, name, order in ((1, "file", range(len(lines))), (2, "random", shuffled)):
            texts = [lines[index] for index in order]
            together = engine.translate(texts, max_batch_tokens=tokens, workers=workers, n_best=n_best, truncate=True)
            pairs = [(alone[index], other) for index, other in zip(order, together, strict=True)]
            yield Change(
                tokens,
                workers,
                name,
                sum(_tokens(one) != _tokens(other) for one, other in pairs),
                sum(_bits(one) != _bits(other) for one, other in pairs),
            )


def _tokens(hypotheses: Sequence[Hypothesis]) -> list[tuple[int, ...]]:
    return [one.tokens for one in hypotheses]


def _bits(hypotheses: Sequence[Hypothesis]) -> bytes:
    return np.array([one.score for one in hypotheses], np.float32).tobytes()


if __name__ == "__main__":
    main()
