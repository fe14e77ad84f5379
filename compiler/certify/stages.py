"""The stages of a certificate: the same function in PyTorch, in ONNX, step by step, and in the search."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from xformc.compiler.certify.certificate import Stage
from xformc.compiler.certify.locate import difference, first_different_forward, first_different_step, unstack
from xformc.compiler.certify.reference import Found, rescore, search
from xformc.compiler.certify.subject import Ids, Subject
from xformc.compiler.graph.graph import Node
from xformc.compiler.pipeline import Side
from xformc.runtime.options import SearchOptions
from xformc.runtime.session import SearchResult
from xformc.tokens import BEGIN, END, PAD

LOGITS_BOUND = 1e-4
SCORE_BOUND = 1e-4
"""Also the margin below which a decision of the search is left to rounding."""

BATCH_BOUND = 1e-4


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
    return Probes(pad(sources), pad([np.r_[BEGIN, target[:-1]] for target in targets]), searched)


def run_stages(subject: Subject, probes: Probes, progress: Callable[[str], None]) -> Iterator[Stage]:
    """The stages, cheapest first; those of the search only mean something after the first two have passed.

    `progress` is told of each stage before it runs.
    """
    progress("certify: forward")
    yield _forward(subject, probes)
    progress("certify: step")
    yield _step(subject, probes)
    progress("certify: greedy")
    yield _search(subject, probes, "greedy", [_expect(subject, probes, 1)])
    progress("certify: beam")
    width = subject.compiled.options.beam_width
    expected = _expect(subject, probes, width)
    yield _search(subject, probes, "beam", [expected, _expect(subject, probes, width, _likely(expected))])
    progress("certify: batch")
    yield _batch(subject, probes, expected)


@dataclass(frozen=True)
class _Expected:
    """What the reference search finds with these options when `end` ends a hypothesis, one for each probe."""

    options: SearchOptions
    end: int
    found: tuple[Found, ...]


def _expect(subject: Subject, probes: Probes, width: int, end: int = END) -> _Expected:
    options = _short(subject.compiled.options, width)
    found = (
        search(subject.logits, source, options, subject.compiled.target.longest, end) for source in probes.searched
    )
    return _Expected(options, end, tuple(found))


def _likely(expected: _Expected) -> int:
    """The token that the hypotheses have most often, so that with it as the end token many end by themselves."""
    counts = Counter(
        token
        for found in expected.found
        for hypothesis in found.hypotheses
        for token in hypothesis.tokens[:-1]
        if token != END
    )
    return counts.most_common(1)[0][0] if counts else END


def _forward(subject: Subject, probes: Probes) -> Stage:
    (found,) = subject.forward(probes.source, probes.target)
    value = _on_real(found, subject.logits(probes.source, probes.target), probes.target)
    detail = _blame(value, lambda: first_different_forward(subject, probes.source, probes.target, LOGITS_BOUND))
    return Stage("forward", "logits of ONNX and PyTorch, given the target", value, LOGITS_BOUND, detail)


def _step(subject: Subject, probes: Probes) -> Stage:
    (stacked,) = subject.stepwise(probes.source, probes.target)
    logits = subject.compiled.decoder.logits
    found = unstack(stacked, logits, subject.compiled.decoder.token.name)
    value = _on_real(found, subject.logits(probes.source, probes.target), probes.target)
    detail = _blame(value, lambda: first_different_step(subject, probes.source, probes.target, LOGITS_BOUND))
    return Stage("step", "logits of the derived step and of the training form", value, LOGITS_BOUND, detail)


def _search(subject: Subject, probes: Probes, name: str, searches: list[_Expected]) -> Stage:
    """Compare searches with the reference's. Of several the last must have hypotheses that end by themselves."""
    worst, decided, ended = 0.0, 0, 0
    for expected in searches:
        result = subject.search(pad(probes.searched), expected.options, expected.end)
        for row, (found, source) in enumerate(zip(expected.found, probes.searched, strict=True)):
            worst = max(worst, _against(subject, result, row, found, source))
        decided += sum(found.margin >= SCORE_BOUND for found in expected.found)
        ended = sum(h.tokens[-1] == expected.end for found in expected.found for h in found.hypotheses)
    if decided == 0 or (len(searches) > 1 and ended == 0):
        worst = float("inf")
    count = len(searches) * len(probes.searched)
    what = f"tokens and scores of the reference search, width {searches[0].options.beam_width}"
    return Stage(name, what, worst, SCORE_BOUND, f"({count} searches, {decided} beyond rounding, {ended} ends)")


def _batch(subject: Subject, probes: Probes, expected: _Expected) -> Stage:
    together = subject.search(pad(probes.searched), expected.options)
    differences: list[float] = []
    for row, (source, found) in enumerate(zip(probes.searched, expected.found, strict=True)):
        alone = subject.search(source[None], expected.options)
        differences.append(_between(together, row, alone, 0, found.margin))
    count = len(probes.searched)
    backwards = subject.search(pad(probes.searched[:0:-1]), expected.options)
    for row in range(count - 1):
        other = count - 1 - row
        differences.append(_between(together, other, backwards, row, expected.found[other].margin))
    return Stage("batch", "the same sentences alone and among other neighbours", max(differences), BATCH_BOUND)


def _against(subject: Subject, result: SearchResult, row: int, found: Found, source: Ids) -> float:
    """The largest difference of scores, infinite where the tokens differ.

    Where rounding decides, other tokens are as right if they are worth, to the training form, what the engine says.
    """
    differences: list[float] = []
    for rank, hypothesis in enumerate(found.hypotheses):
        tokens = tuple(int(token) for token in result.tokens[row, rank, : result.lengths[row, rank]])
        expected = hypothesis.score
        if tokens != hypothesis.tokens:
            if found.margin >= SCORE_BOUND or not tokens:
                return float("inf")
            expected = rescore(subject.logits, source, tokens, subject.compiled.options)
        differences.append(_finite(abs(float(result.scores[row, rank]) - expected)))
    return max(differences)


def _between(first: SearchResult, row: int, second: SearchResult, other: int, margin: float) -> float:
    length = int(first.lengths[row].max())
    same = np.array_equal(first.lengths[row], second.lengths[other])
    if not same or not np.array_equal(first.tokens[row, :, :length], second.tokens[other, :, :length]):
        return 0.0 if margin < SCORE_BOUND else float("inf")
    return _finite(float(np.abs(first.scores[row] - second.scores[other]).max()))


def _finite(difference: float) -> float:
    return difference if np.isfinite(difference) else float("inf")


def _short(options: SearchOptions, width: int) -> SearchOptions:
    """The engine's options with all hypotheses returned and an output short enough for the reference search."""
    return replace(options, beam_width=width, n_best=width, max_length_factor=0.5, max_length_offset=4)


def _on_real(found: np.ndarray, expected: np.ndarray, target: Ids) -> float:
    if found.shape != expected.shape:
        return float("inf")
    real = target != PAD
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
    return np.r_[random.integers(4, side.vocabulary, length), END].astype(np.int64)
