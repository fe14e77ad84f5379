"""The stages of all tasks: ONNX Runtime against PyTorch, for whole examples and step by step."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from xformc.compiler.certify.causal import first_dependent
from xformc.compiler.certify.difference import difference, largest
from xformc.compiler.certify.locate import first_different_forward, first_different_step, unstack
from xformc.compiler.certify.probes import Probes
from xformc.compiler.certify.seen import seen_weights
from xformc.compiler.certify.subject import Subject
from xformc.compiler.graph.graph import Node
from xformc.format.certificate import Stage
from xformc.format.names import SCORES

BOUND = 1e-4
"""The bound of logits, relative to the largest if that is above 1."""


def forward_stage(subject: Subject, probes: Probes, what: str) -> Stage:
    """Compare the graph's result in ONNX Runtime and in PyTorch."""
    pairs = zip(subject.forward(probes.feeds), subject.results(probes.feeds), probes.reals, strict=True)
    value = max(_on_real(found, expected, real) for found, expected, real in pairs)
    if value <= BOUND:
        return Stage("forward", what, value, BOUND, seen=seen_weights(subject.module, probes, BOUND))
    infinite = first_infinite(subject, probes)
    if infinite is not None:
        return replace(infinite, what=what)
    detail = _blame(value, lambda: first_different_forward(subject, probes.feeds, BOUND))
    return Stage("forward", what, value, BOUND, detail)


def first_infinite(subject: Subject, probes: Probes) -> Stage | None:
    """The failed stage of a training form with weights or results that are not finite in PyTorch itself, or None."""
    for name, array in subject.module.arrays().items():
        if not np.isfinite(array).all():
            return Stage("forward", "", float("inf"), BOUND, f"the weight {name} is not finite", fault="weights")
    if all(np.isfinite(found[real]).all() for found, real in _real_results(subject, probes)):
        return None
    values = subject.training_values(probes.feeds)
    for node in subject.program.graph.nodes:
        found = values[node.outputs[0].name]
        if found.dtype == np.float32 and not np.isfinite(found).all():
            detail = f"first value that is not finite, in PyTorch too: {_described(node)}"
            return Stage("forward", "", float("inf"), BOUND, detail, fault="spec")
    return None


def _real_results(subject: Subject, probes: Probes) -> Iterator[tuple[NDArray[np.float32], NDArray[np.bool_]]]:
    return zip(subject.results(probes.feeds), probes.reals, strict=True)


def step_stage(subject: Subject, probes: Probes) -> Stage:
    """Compare the logits of the derived step, one token at a time, with the training form."""
    (stacked,) = subject.stepwise(probes.feeds)
    decoder = subject.program.decoder
    found = unstack(stacked, decoder.logits, decoder.time)
    value = _on_real(found, subject.logits(probes.feeds), probes.real)
    detail = _blame(value, lambda: first_different_step(subject, probes.feeds, BOUND))
    changed, node = first_dependent(subject.module, decoder.time, probes.feeds, BOUND)
    if node is not None:
        value, detail = changed, f"first value that depends on later positions: {_described(node)}"
    return Stage("step", "logits of the derived step and of the training form", max(value, changed), BOUND, detail)


def kept_logits(subject: Subject, probes: Probes) -> NDArray[np.float32]:
    """The logits of the derived step for the texts of the probes, in two parts if it takes several tokens."""
    decoder = subject.program.decoder
    if decoder.extend is None:
        (stacked,) = subject.stepwise(probes.feeds)
        return unstack(stacked, decoder.logits, decoder.time)
    (found,) = subject.extended(probes.feeds, [(probes.real.shape[1] + 1) // 2])
    return found


def extend_stage(subject: Subject, probes: Probes) -> Stage:
    """Compare the logits of the derived step of several tokens, for texts in two parts, with the training form."""
    expected, length = subject.logits(probes.feeds), probes.real.shape[1]
    found = subject.extended(probes.feeds, {1, (length + 1) // 2} - {length})
    value = max((_on_real(logits, expected, probes.real) for logits in found), default=0.0)
    what = "logits of the derived step of several tokens and of the training form"
    return Stage("extend", what, value, BOUND)


def scores_stages(subject: Subject, probes: Probes, progress: Callable[[str], None]) -> Iterator[Stage]:
    """Compare the log probabilities of the tokens of given texts with those of the training form, if the engine gives
    them: engines of fixed shapes and older ones do not."""
    session = subject.session.beside(SCORES)
    if session is None:
        return
    progress("certify: scores")
    time, logits = str(subject.program.written), subject.logits(probes.feeds)[:, :-1].astype(np.float64)
    tokens = probes.feeds[time][:, 1:]
    below = logits - logits.max(-1, keepdims=True)
    expected = np.take_along_axis(below, tokens[..., None], -1)[..., 0] - np.log(np.exp(below).sum(-1))
    expected[:, : len(subject.program.prefix)] = 0
    (found,) = session.run(probes.feeds)
    real = probes.real[:, 1:]
    size = float(largest(logits)[real].max(initial=1.0))
    value = _on_real(found[..., None], expected[..., None], real, size)
    yield Stage("scores", "scores of the tokens of given texts, and of the training form", value, BOUND)


def _on_real(
    found: NDArray[np.float32], expected: NDArray[np.float32], real: NDArray[np.bool_], least: float = 1.0
) -> float:
    return difference(found[real], expected[real], least) if found.shape == expected.shape else float("inf")


def _blame(value: float, locate: Callable[[], Node | None]) -> str:
    if value <= BOUND:
        return ""
    node = locate()
    if node is None:
        return "first difference: none in a node, only in the assembly of the results"
    return f"first difference: {_described(node)}"


def _described(node: Node) -> str:
    place = f" ({node.place})" if node.place else ""
    return f"{node.op.kind} -> {node.outputs[0].name}{place}"
