"""The stages of all tasks: ONNX Runtime against PyTorch, for whole examples and step by step."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from xformc.compiler.certify.causal import first_dependent
from xformc.compiler.certify.locate import difference, first_different_forward, first_different_step, unstack
from xformc.compiler.certify.probes import Probes
from xformc.compiler.certify.subject import Subject
from xformc.compiler.graph.graph import Node
from xformc.format.certificate import Stage

BOUND = 1e-4
"""The bound of logits, relative to the largest if that is above 1."""


def forward_stage(subject: Subject, probes: Probes, what: str) -> Stage:
    """Compare the graph's result in ONNX Runtime and in PyTorch."""
    pairs = zip(subject.forward(probes.feeds), subject.results(probes.feeds), probes.reals, strict=True)
    value = max(_on_real(found, expected, real) for found, expected, real in pairs)
    detail = _blame(value, lambda: first_different_forward(subject, probes.feeds, BOUND))
    return Stage("forward", what, value, BOUND, detail)


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


def _on_real(found: NDArray[np.float32], expected: NDArray[np.float32], real: NDArray[np.bool_]) -> float:
    return difference(found[real], expected[real]) if found.shape == expected.shape else float("inf")


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
