"""Chooses among hypotheses after the search: by the scores of a second engine."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from xformc.errors import UserError
from xformc.format.interfaces import PREFIX
from xformc.runtime.job import Job
from xformc.runtime.options import checked_number
from xformc.runtime.prefix import Prefix
from xformc.runtime.rows import Row
from xformc.runtime.session import Session
from xformc.runtime.translate import Hypothesis

Item = TypeVar("Item")

SEARCH, RERANK = "search", "rerank"
"""The features of a hypothesis: the score of the search that found it, and the second engine's."""

WEIGHT = 0.5
"""Default weight of the second engine."""


@dataclass(frozen=True)
class Pool:
    """The hypotheses of one example, and a row of the second engine for each: the example with the whole text."""

    hypotheses: Sequence[Hypothesis]
    rows: Sequence[Row]


def reranking(
    scoring: Job[Item, Row, Hypothesis], encode: Callable[[int, Prefix], NDArray[np.int64]], weight: float
) -> Job[tuple[Item, Sequence[Hypothesis]], Pool, list[Hypothesis]]:
    """Return the job that reranks the hypotheses of examples; an example's hypotheses share a batch.

    scoring: scores the whole texts of rows. encode: returns the ids of a whole text, given its line.

    Raises: UserError unless the weight is from 0 to 1.
    """
    share = checked_number("weight", weight, WEIGHT, 0.0, 1.0)

    def pool(line: int, item: tuple[Item, Sequence[Hypothesis]]) -> Pool:
        example, hypotheses = item
        row = scoring.encode(line, example)
        return Pool(hypotheses, [{**row, PREFIX: encode(line, one.text)} for one in hypotheses])

    def size(pool: Pool) -> int:
        return sum(map(scoring.size, pool.rows))

    def run(session: Session, pools: Sequence[Pool]) -> list[list[Hypothesis]]:
        found = iter(scoring.run(session, [row for pool in pools for row in pool.rows]))
        return [_mixed(pool.hypotheses, [next(found).score for _ in pool.hypotheses], share) for pool in pools]

    return Job(pool, size, run)


def with_hypotheses(
    items: Iterable[Item], hypotheses: Iterable[Sequence[Hypothesis]]
) -> Iterator[tuple[Item, Sequence[Hypothesis]]]:
    """Yield each item with its hypotheses. Raises: UserError at the first item or list that is alone."""
    rest, line = iter(hypotheses), 0
    for line, item in enumerate(items, start=1):
        found = next(rest, None)
        if found is None:
            raise UserError("there are no hypotheses for this text", place=f"line {line}", hint="give a list for each")
        yield item, found
    if next(rest, None) is not None:
        message = f"there are more lists of hypotheses than texts, which are {line:,}"
        raise UserError(message, hint="give a list for each text")


def _mixed(hypotheses: Sequence[Hypothesis], scores: Sequence[float], weight: float) -> list[Hypothesis]:
    """Return the hypotheses by (1 - weight) * own score + weight * second score; equal ones keep their order."""
    pairs = zip(hypotheses, scores, strict=True)
    return best_first(
        replace(one, score=_mean(one.score, second, weight), features={SEARCH: one.score, RERANK: second})
        for one, second in pairs
    )


def best_first(hypotheses: Iterable[Hypothesis]) -> list[Hypothesis]:
    """Return the hypotheses by descending score; equal ones keep their order."""
    return sorted(hypotheses, key=lambda one: -one.score)


def _mean(first: float, second: float, weight: float) -> float:
    """Return the weighted mean; a score without weight may be infinite."""
    return sum(share * score for share, score in ((1 - weight, first), (weight, second)) if share)
