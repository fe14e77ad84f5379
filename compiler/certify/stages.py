"""The stages of a certificate: the same function in PyTorch, in ONNX, step by step, and in the search."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from xformc.compiler.certify.certificate import Stage
from xformc.compiler.certify.locate import difference, first_different_forward, first_different_step, unstack
from xformc.compiler.certify.reference import Found, search
from xformc.compiler.certify.subject import Ids, Subject
from xformc.compiler.graph.graph import Node
from xformc.runtime.options import SearchOptions
from xformc.runtime.session import SearchResult

LOGITS_BOUND = 1e-4
SCORE_BOUND = 1e-4
"""Also the margin below which a decision of the search is left to rounding."""

BATCH_BOUND = 1e-4


@dataclass(frozen=True)
class Side:
    """What sentences a model can take on one side: ids below `vocabulary`, at most `longest` of them if not None."""

    vocabulary: int
    longest: int | None


@dataclass(frozen=True)
class Probes:
    """What the stages are run on: padded sources and targets for the logits, sources alone for the search."""

    source: Ids
    target: Ids
    searched: tuple[Ids, ...]


def make_probes(source: Side, target: Side, seed: int = 0) -> Probes:
    """Random sentences of many lengths, ended by the end token, with ids of real pieces only."""
    random = np.random.default_rng(seed)
    sources = [_sentence(random, length, source) for length in (1, 4, 9, 17)]
    targets = [_sentence(random, length, target) for length in (5, 2, 11, 7)]
    searched = tuple(_sentence(random, length, source) for length in (1, 3, 6, 10))
    return Probes(pad(sources), pad([np.r_[2, target[:-1]] for target in targets]), searched)


def run_stages(subject: Subject, probes: Probes, progress: Callable[[str], None]) -> Iterator[Stage]:
    """The stages, cheapest first; those of the search only mean something after the first two have passed.

    `progress` is told of each stage before it runs.
    """
    progress("certify: forward")
    yield _forward(subject, probes)
    progress("certify: step")
    yield _step(subject, probes)
    found: dict[int, list[Found]] = {}
    for name, width in (("greedy", 1), ("beam", subject.options.beam_width)):
        progress(f"certify: {name}")
        options = _short(subject.options, width)
        found[width] = [search(subject.logits, source, options, subject.longest) for source in probes.searched]
        yield _search(subject, probes, options, name, found[width])
    progress("certify: batch")
    yield _batch(subject, probes, _short(subject.options, subject.options.beam_width), [*found.values()][-1])


def _forward(subject: Subject, probes: Probes) -> Stage:
    (found,) = subject.forward(probes.source, probes.target)
    value = _on_real(found, subject.logits(probes.source, probes.target), probes.target)
    detail = _blame(value, lambda: first_different_forward(subject, probes.source, probes.target, LOGITS_BOUND))
    return Stage("forward", "logits of ONNX and PyTorch, given the target", value, LOGITS_BOUND, detail)


def _step(subject: Subject, probes: Probes) -> Stage:
    (stacked,) = subject.stepwise(probes.source, probes.target)
    logits = subject.decoder.logits
    found = unstack(stacked, logits, subject.decoder.token.name)
    value = _on_real(found, subject.logits(probes.source, probes.target), probes.target)
    detail = _blame(value, lambda: first_different_step(subject, probes.source, probes.target, LOGITS_BOUND))
    return Stage("step", "logits of the derived step and of the training form", value, LOGITS_BOUND, detail)


def _search(subject: Subject, probes: Probes, options: SearchOptions, name: str, expected: list[Found]) -> Stage:
    result = subject.search(pad(probes.searched), options)
    differences = [_against(result, row, found) for row, found in enumerate(expected)]
    what = f"tokens and scores of {len(expected)} sentences and of the reference search, width {options.beam_width}"
    return Stage(name, what, max(differences), SCORE_BOUND, _undecided(expected))


def _batch(subject: Subject, probes: Probes, options: SearchOptions, expected: list[Found]) -> Stage:
    together = subject.search(pad(probes.searched), options)
    worst = 0.0
    for row, source in enumerate(probes.searched):
        alone = subject.search(source[None], options)
        worst = max(worst, _between(together, row, alone, 0, expected[row].margin))
    reversed_rows = subject.search(pad(probes.searched[:0:-1]), options)
    count = len(probes.searched)
    for row in range(count - 1):
        other = count - 1 - row
        worst = max(worst, _between(together, other, reversed_rows, row, expected[other].margin))
    return Stage("batch", "the same sentences alone and among other neighbours", worst, BATCH_BOUND)


def _against(result: SearchResult, row: int, found: Found) -> float:
    """The largest difference of scores; infinite where the tokens differ and no near tie explains it."""
    worst = 0.0
    for rank, hypothesis in enumerate(found.hypotheses):
        tokens = tuple(int(token) for token in result.tokens[row, rank, : result.lengths[row, rank]])
        if tokens != hypothesis.tokens:
            return 0.0 if found.margin < SCORE_BOUND else float("inf")
        worst = max(worst, abs(float(result.scores[row, rank]) - hypothesis.score))
    return worst if np.isfinite(worst) else float("inf")


def _between(first: SearchResult, row: int, second: SearchResult, other: int, margin: float) -> float:
    length = int(first.lengths[row].max())
    same = np.array_equal(first.lengths[row], second.lengths[other])
    if not same or not np.array_equal(first.tokens[row, :, :length], second.tokens[other, :, :length]):
        return 0.0 if margin < SCORE_BOUND else float("inf")
    return float(np.abs(first.scores[row] - second.scores[other]).max())


def _undecided(expected: list[Found]) -> str:
    close = sum(found.margin < SCORE_BOUND for found in expected)
    return f"({close} decided by less than {SCORE_BOUND:.0e})" if close else ""


def _short(options: SearchOptions, width: int) -> SearchOptions:
    """The engine's options with all hypotheses returned and an output short enough for the reference search."""
    return replace(options, beam_width=width, n_best=width, max_length_factor=0.5, max_length_offset=4)


def _on_real(found: np.ndarray, expected: np.ndarray, target: Ids) -> float:
    real = target != 0
    return difference(found[real], expected[real])


def _blame(value: float, locate: Callable[[], Node | None]) -> str:
    if value <= LOGITS_BOUND:
        return ""
    node = locate()
    if node is None:
        return "first difference: only in how the last values are put together"
    place = f" ({node.place})" if node.place else ""
    return f"first difference: {node.op.kind} -> {node.outputs[0].name}{place}"


def pad(rows: tuple[Ids, ...] | list[Ids]) -> Ids:
    """Rows of ids as one array [batch, length], padded with 0 at the end."""
    padded = np.zeros((len(rows), max(len(row) for row in rows)), np.int64)
    for index, row in enumerate(rows):
        padded[index, : len(row)] = row
    return padded


def _sentence(random: np.random.Generator, length: int, side: Side) -> Ids:
    length = length if side.longest is None else min(length, side.longest - 1)
    return np.r_[random.integers(4, side.vocabulary, length), 3].astype(np.int64)
