"""Chooses among hypotheses after the search: by the scores of a second engine, or by minimum Bayes risk."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from xformc.errors import UserError
from xformc.extras import explain_missing
from xformc.format.interfaces import PREFIX
from xformc.runtime.job import Job, paired
from xformc.runtime.options import checked_number
from xformc.runtime.rows import Row
from xformc.runtime.searching.prefix import Prefix
from xformc.runtime.searching.search import length_divisor
from xformc.runtime.searching.translate import SEED, Hypothesis
from xformc.runtime.session import Session

Item = TypeVar("Item")
Result = TypeVar("Result")

OWN, RERANK = "own", "rerank"
"""The features of a hypothesis: the score of the engine that found it, and the second engine's."""

Utility = Literal["chrf", "bleu"] | Callable[[str, str], float]
"""How good a text is (the first argument) if another one is right: sacreBLEU's of a sentence, or a function."""

UTILITIES = ("chrf", "bleu")

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
        found = _run_lists(scoring.run, session, [pool.rows for pool in pools])
        return [_mixed(pool.hypotheses, some, share) for pool, some in zip(pools, found, strict=True)]

    return Job(pool, size, run)


def with_hypotheses(
    items: Iterable[Item], hypotheses: Iterable[Sequence[Hypothesis]]
) -> Iterator[tuple[Item, Sequence[Hypothesis]]]:
    """Yield each item with its hypotheses; see `paired`."""
    return paired(items, hypotheses, none="are no hypotheses", several="lists of hypotheses", one="a list")


def minimum_bayes_risk(
    hypotheses: Sequence[Hypothesis],
    utility: Utility = "chrf",
    *,
    length_penalty: float | None = None,
    length_penalty_kind: str | None = None,
) -> list[Hypothesis]:
    """Return the hypotheses of one text by their expected utility, best first; equal ones keep their order.

    The new score is the mean utility against all hypotheses, itself included. Samples have the same weight each, and a
    text that was sampled twice counts twice (Eikema and Aziz 2020, "Is MAP Decoding All You Need?", section 6).
    Hypotheses of a search weigh as their probabilities (Kumar and Byrne 2004, "Minimum Bayes-Risk Decoding for
    Statistical Machine Translation"). `features` has the old score as `own`.

    utility: chrF or BLEU of a sentence, from 0 to 100, by sacreBLEU; or a function of a hypothesis and a reference.
    length_penalty: that of the search which found the hypotheses; None for samples. length_penalty_kind: the same; None
        is gnmt.

    Raises: UserError for another utility; ModuleNotFoundError without sacreBLEU.
    """
    measure = _utility(utility)
    shares = defaultdict[str, float](float)
    for one, share in zip(hypotheses, _shares(hypotheses, length_penalty, length_penalty_kind), strict=True):
        shares[one.text] += share
    means = {text: sum(share * measure(text, other) for other, share in shares.items()) for text in shares}
    changed = (replace(one, score=means[one.text], features=one.features or {OWN: one.score}) for one in hypotheses)
    return best_first(changed)


def _shares(hypotheses: Sequence[Hypothesis], length_penalty: float | None, kind: str | None) -> list[float]:
    """Return the weights of the hypotheses as references, whose sum is 1."""
    if length_penalty is None:
        return [1 / len(hypotheses) for _ in hypotheses]
    found = [
        one.features.get(OWN, one.score) * length_divisor(len(one.tokens), length_penalty, kind) for one in hypotheses
    ]
    most = max(found, default=0.0)
    weights = [1.0 if one == most else math.exp(one - most) for one in found]  # of two infinite ones no difference
    return [weight / sum(weights) for weight in weights]


def sampling(job: Job[Item, Row, list[Hypothesis]], samples: int) -> Job[Item, list[Row], list[Hypothesis]]:
    """Return the job that samples several texts for each item, each with a seed of its own, in this order.

    The seeds of the second item follow those of the first, and so on.
    """

    def encode(line: int, item: Item) -> list[Row]:
        row = job.encode(line, item)
        first = row[SEED] + (line - 1) * (samples - 1)
        return [{**row, SEED: np.array(first + number, np.int64)} for number in range(samples)]

    def run(session: Session, rows: Sequence[list[Row]]) -> list[list[Hypothesis]]:
        return [[one for (one,) in several] for several in _run_lists(job.run, session, rows)]

    return Job(encode, lambda rows: sum(map(job.size, rows)), run)


def _run_lists(
    run: Callable[[Session, Sequence[Row]], Sequence[Result]], session: Session, lists: Sequence[Sequence[Row]]
) -> list[list[Result]]:
    """Return the results of the rows of all lists, run as one batch, as lists."""
    found = iter(run(session, [row for rows in lists for row in rows]))
    return [[next(found) for _ in rows] for rows in lists]


def _utility(utility: Utility) -> Callable[[str, str], float]:
    if callable(utility):
        return utility
    if utility not in UTILITIES:
        raise UserError(f"the utility must be {' or '.join(UTILITIES)}, or a function, not {utility!r}")
    try:
        import sacrebleu  # noqa: PLC0415 (it is an extra)
    except ModuleNotFoundError as error:
        raise explain_missing(error) from error
    metric: Any = sacrebleu.CHRF() if utility == "chrf" else sacrebleu.BLEU(effective_order=True)
    return lambda text, reference: float(metric.sentence_score(text, [reference]).score)


def _mixed(hypotheses: Sequence[Hypothesis], scored: Sequence[Hypothesis], weight: float) -> list[Hypothesis]:
    """Return the hypotheses by (1 - weight) * own score + weight * second score; equal ones keep their order."""
    pairs = zip(hypotheses, scored, strict=True)
    return best_first(
        replace(one, score=_mean(one.score, other.score, weight), features={OWN: one.score, RERANK: other.score})
        for one, other in pairs
    )


def best_first(hypotheses: Iterable[Hypothesis]) -> list[Hypothesis]:
    """Return the hypotheses by descending score; equal ones keep their order."""
    return sorted(hypotheses, key=lambda one: -one.score)


def _mean(first: float, second: float, weight: float) -> float:
    """Return the weighted mean; a score without weight may be infinite."""
    return sum(share * score for share, score in ((1 - weight, first), (weight, second)) if share)
