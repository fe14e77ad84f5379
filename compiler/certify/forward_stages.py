"""The stages of an engine that computes its results in one forward pass."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xformc.compiler.certify.ctc_stages import ctc_stages
from xformc.compiler.certify.difference import difference
from xformc.compiler.certify.forward import forward_stage
from xformc.compiler.certify.probes import Probes, make_probes
from xformc.compiler.certify.subject import Subject
from xformc.compiler.program import Program
from xformc.compiler.results.kind import KINDS, Declared
from xformc.format.certificate import Stage
from xformc.runtime.rows import stack

BOUND = 1e-4
"""The bound of results."""

Found = Mapping[str, NDArray[Any]]
"""Outputs of the engine's model by name."""


def forward_stages(subject: Subject, progress: Callable[[str], None]) -> Iterator[Stage]:
    """Compare values of PyTorch and ONNX, results of engine and PyTorch, and examples alone and in a batch."""
    probes, word = make_probes(subject.program), word_of(subject.program)
    progress("certify: forward")
    yield forward_stage(subject, probes, "logits of ONNX and PyTorch" if word == "labels" else "ONNX and PyTorch")
    if plain_results(subject.program):
        progress(f"certify: {word}")
        yield _results(subject, probes, word)
        progress("certify: batch")
        yield _batch(subject, probes)
    progress("certify: ctc")
    yield from ctc_stages(subject, probes)


def word_of(program: Program) -> str:
    """The name of the stage that compares results: labels, if there are no others."""
    return "labels" if {item.kind for item in program.spec.results} == {"labels"} else "results"


def plain_results(program: Program) -> list[Declared]:
    """The results that no search makes: those that an engine returns are functions of the values."""
    return [item for item in program.spec.results if not KINDS[item.kind].decoded]


def expected_results(program: Program, values: Sequence[NDArray[Any]]) -> Found:
    """What an engine must return for these values of the training form, which are those of all results.

    Results that a search makes are left out.
    """
    return {
        name: array
        for item, value in zip(program.spec.results, values, strict=True)
        if not KINDS[item.kind].decoded
        for name, array in zip(
            program.results[item.name].outputs, KINDS[item.kind].expected(value, item.settings), strict=True
        )
    }


def real_results(program: Program, probes: Probes, found: Found) -> dict[str, NDArray[Any]]:
    """Results without those of padding, by output: [examples or positions, ..]."""
    reals = zip(program.spec.results, program.results.values(), probes.reals, strict=True)
    return {
        name: found[name][real]
        for item, result, real in reals
        if not KINDS[item.kind].decoded
        for name in result.outputs
    }


def expected_at(subject: Subject, probes: Probes) -> dict[str, NDArray[Any]]:
    """The results of the training form, without those of padding, by output."""
    program = subject.program
    return real_results(program, probes, expected_results(program, subject.results(probes.feeds)))


def _results(subject: Subject, probes: Probes, word: str) -> Stage:
    expected = expected_at(subject, probes)
    found = real_results(subject.program, probes, subject.outputs(probes.feeds))
    least = _least(subject.program)
    worst = max(difference(found[name], array, least(name, array)) for name, array in expected.items())
    what = "probabilities" if word == "labels" else "results"
    return Stage(word, f"{what} of the engine and of PyTorch", worst, BOUND)


def _least(program: Program) -> Callable[[str, NDArray[Any]], float]:
    """The smallest scale of differences: of probabilities that sum to 1, that of equal ones."""
    softmax = {
        name
        for item in program.spec.results
        if item.kind == "labels" and not item.settings["several"]
        for name in program.results[item.name].outputs
    }
    return lambda name, array: 1 / array.shape[-1] if name in softmax else 1.0


def _batch(subject: Subject, probes: Probes) -> Stage:
    worst = max(alone_and_together(subject, probes))
    return Stage("batch", "the same examples alone and among longer ones", worst, BOUND)


def alone_and_together(subject: Subject, probes: Probes) -> Iterator[float]:
    """The difference of each example's results, alone and in the batch."""
    program, together = subject.program, subject.outputs(probes.feeds)
    plain = [program.results[item.name] for item in plain_results(program)]
    for index, row in enumerate(probes.rows):
        alone = subject.outputs(stack(program.inputs, [row]))
        for result in plain:
            for name in result.outputs:
                one = alone[name][0]
                yield difference(together[name][index][: len(one)] if result.positions else together[name][index], one)


def flat(results: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
    """All results as one vector."""
    return np.concatenate([array.reshape(-1) for array in results.values()])
