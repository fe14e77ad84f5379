"""Compares the hypotheses of results by CTC with those of a reference search, alone and in a batch."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xformc.compiler.certify.probes import Probes
from xformc.compiler.certify.reference_ctc import IMPOSSIBLE, Decoded, decode
from xformc.compiler.certify.subject import Feeds, Subject
from xformc.compiler.program import Program
from xformc.compiler.results.kind import Declared
from xformc.format.certificate import Stage
from xformc.runtime.rows import stack

BOUND = 1e-4
"""The bound of scores, relative if above 1, and the margin below which rounding may decide a search."""

Outputs = Sequence[NDArray[Any]]
"""The tokens, lengths and scores of a batch."""


def by_ctc(program: Program) -> list[tuple[int, Declared]]:
    """The results by CTC, with their places among all results."""
    return [(place, item) for place, item in enumerate(program.spec.results) if item.kind == "ctc"]


def ctc_stages(subject: Subject, probes: Probes) -> Iterator[Stage]:
    """Compare each of them in the engine with the reference search for the values of the training form."""
    for place, declared in by_ctc(subject.program):
        expected = reference(subject.results(probes.feeds)[place], declared)
        outputs = engine_outputs(subject, probes.feeds, declared)
        alone = (engine_outputs(subject, stack(subject.program.inputs, [row]), declared) for row in probes.rows)
        worst = max(
            apart(outputs, expected), *(apart(found, [wanted]) for found, wanted in zip(alone, expected, strict=True))
        )
        decided = sum(item.margin >= BOUND for item in expected)
        width = declared.settings["beam_size"]
        what = f"{declared.name}: tokens and scores of the reference search, width {width}, alone and in a batch"
        yield Stage("ctc", what, worst, BOUND, f"({len(expected)} searches, {decided} beyond rounding)")


def reference(value: NDArray[Any], declared: Declared) -> list[Decoded]:
    """The hypotheses of the reference search for logits [batch, positions, tokens]."""
    return [decode(row, int(declared.settings["beam_size"])) for row in value]


def engine_outputs(subject: Subject, feeds: Feeds, declared: Declared) -> list[NDArray[Any]]:
    """The outputs of the engine for one of them."""
    found = subject.outputs(feeds)
    return [found[name] for name in subject.program.results[declared.name].outputs]


def apart(outputs: Outputs, expected: Sequence[Decoded]) -> float:
    """The largest difference of scores; infinite if tokens differ. What rounding may decide is not compared."""
    tokens, lengths, scores = outputs
    worst = 0.0
    for row, decoded in enumerate(expected):
        if decoded.margin < BOUND:
            continue
        for rank, (wanted, score) in enumerate(decoded.hypotheses):
            found = tuple(int(token) for token in tokens[row, rank, : lengths[row, rank]])
            difference = abs(float(scores[row, rank]) - score) / max(1.0, abs(score))
            worst = max(worst, difference if found == wanted and np.isfinite(difference) else float("inf"))
        rest = scores[row, len(decoded.hypotheses) :]
        worst = float("inf") if (rest > IMPOSSIBLE).any() else worst
    return worst


def best_scores(values: Sequence[NDArray[Any]], program: Program) -> list[NDArray[Any]]:
    """The score of the best hypothesis of each example, by the reference search, for each result by CTC."""
    return [
        np.array([decoded.hypotheses[0][1] for decoded in reference(values[place], declared)], np.float32)
        for place, declared in by_ctc(program)
    ]
