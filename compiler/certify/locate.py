"""Finds the first node that differs, for the message of a failed build."""

from typing import Any

import numpy as np

from xformc.compiler.certify.difference import difference
from xformc.compiler.certify.subject import Feeds, Subject
from xformc.compiler.graph.graph import Graph, Node, Value
from xformc.compiler.ops.keys import AsKeys

CHUNK = 200
"""The number of values compared per run, to limit memory for deep models."""


def first_different_forward(subject: Subject, feeds: Feeds, bound: float) -> Node | None:
    """The first node of the training graph whose ONNX value differs from its PyTorch value by more than `bound`."""
    nodes = [node for node in subject.program.graph.nodes if node.outputs[0].type.dtype == "float32"]
    expected = subject.training_values(feeds)
    for start in range(0, len(nodes), CHUNK):
        part = nodes[start : start + CHUNK]
        found = subject.forward(feeds, [node.outputs[0] for node in part])[len(subject.program.graph.outputs) :]
        for node, array in zip(part, found, strict=True):
            if difference(array, expected[node.outputs[0].name]) > bound:
                return node
    return None


def first_different_step(subject: Subject, feeds: Feeds, bound: float) -> Node | None:
    """The first node of the step whose values over all steps differ from the training form by more than `bound`."""
    expected, decoder = subject.training_values(feeds), subject.program.decoder
    keys = keys_of(subject.program.graph, decoder.time)
    nodes = [
        node
        for node in decoder.step.nodes
        if _comparable(node.outputs[0], expected, decoder.time) and not keys.intersection(node.outputs[0].type.names)
    ]
    for start in range(0, len(nodes), CHUNK):
        part = nodes[start : start + CHUNK]
        _, *found = subject.stepwise(feeds, [node.outputs[0] for node in part])
        for node, stacked in zip(part, found, strict=True):
            value = node.outputs[0]
            if difference(unstack(stacked, value, decoder.time), expected[value.name]) > bound:
                return node
    return None


def keys_of(graph: Graph, time: str) -> frozenset[str]:
    """The axes of keys that are positions of `time`; in a step, a value has only those up to now."""
    return frozenset(node.op.keys for node in graph.nodes if isinstance(node.op, AsKeys) and node.op.positions == time)


def unstack(stacked: Any, value: Value, time: str) -> Any:
    """Turn values of the steps [steps, .., time=1, ..] into one value of the training form [.., time, ..]."""
    index = value.type.names.index(time)
    return np.moveaxis(np.squeeze(stacked, index + 1), 0, index)


def _comparable(value: Value, expected: dict[str, Any], time: str) -> bool:
    return value.name in expected and value.type.dtype == "float32" and time in value.type.names
