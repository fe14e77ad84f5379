"""Plain, slow implementations of the decoding of CTC (docs/search.md), in float64 and for one example."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from xformc.compiler.ops.ctc import BLANK

Prefix = tuple[int, ...]
Scores = NDArray[np.float64]
IMPOSSIBLE = -1e8
"""Prefixes of a lower log probability need a token at padding."""


@dataclass(frozen=True)
class Decoded:
    """The tokens and the score of each hypothesis, best first.

    margin: the smallest difference of scores that decided the result, relative to the score if that is above 1.
    """

    hypotheses: tuple[tuple[Prefix, float], ...]
    margin: float


def decode(logits: NDArray[np.float32], width: int) -> Decoded:
    """The hypotheses for logits [positions, tokens]."""
    scores = logits.astype(np.float64)
    scores -= scores.max(-1, keepdims=True)
    scores -= np.log(np.exp(scores).sum(-1, keepdims=True))
    return best_path(scores) if width == 1 else prefix_search(scores, width)


def best_path(scores: Scores) -> Decoded:
    """The most likely token of each position, repeats merged and blanks removed."""
    path = [int(token) for token in scores.argmax(-1)]
    merged = [token for before, token in pairwise([BLANK, *path]) if token not in (before, BLANK)]
    highest = -np.sort(-scores, -1)
    return Decoded(((tuple(merged), float(highest[:, 0].sum())),), float((highest[:, 0] - highest[:, 1]).min()))


def prefix_search(scores: Scores, width: int) -> Decoded:
    """See `compiler.results.prefix_search`. A prefix has the log probabilities of a blank at its end, and of none."""
    beam: dict[Prefix, tuple[float, float]] = {(): (0.0, -np.inf)}
    margin = np.inf
    for row in scores:
        candidates: dict[Prefix, list[float]] = {prefix: [-np.inf, -np.inf] for prefix in beam}
        for prefix, (blank, token) in beam.items():
            for end, following, score in _continued(prefix, blank, token, row):
                known = candidates.setdefault(following, [-np.inf, -np.inf])
                known[end] = float(np.logaddexp(known[end], score))
        ranked = sorted(candidates.items(), key=lambda item: -_sum(item[1]))
        possible = [item for item in ranked if _sum(item[1]) > IMPOSSIBLE]
        margin = min(margin, _gap([_sum(ends) for _, ends in possible[width - 1 : width + 1]]))
        beam = {prefix: (ends[0], ends[1]) for prefix, ends in possible[:width]}
    found = [(prefix, _sum(ends)) for prefix, ends in beam.items()]
    return Decoded(tuple(found), min(margin, _gap([score for _, score in found])))


def _continued(prefix: Prefix, blank: float, token: float, row: Scores) -> Iterator[tuple[int, Prefix, float]]:
    """The prefixes after a position: whether they end in a token, and the log probability of getting there."""
    both, last = np.logaddexp(blank, token), prefix[-1] if prefix else BLANK
    yield 0, prefix, both + row[BLANK]
    if prefix:
        yield 1, prefix, token + row[last]
    for one in range(1, len(row)):
        yield 1, (*prefix, one), (blank if one == last else both) + row[one]


def _sum(ends: Sequence[float]) -> float:
    return float(np.logaddexp(ends[0], ends[1]))


def _gap(ordered: list[float]) -> float:
    gaps = [(better - worse) / max(1.0, abs(worse)) for better, worse in pairwise(ordered)]
    return min(gaps, default=np.inf)
