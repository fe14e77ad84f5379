"""Merges identical nodes (common subexpression elimination)."""

from dataclasses import replace

from xformc.compiler.graph.graph import Graph, Op, Value
from xformc.compiler.graph.graph_builder import copy_node, rebuild
from xformc.compiler.ops.positions import Positions
from xformc.compiler.ops.recurrence import Recurrence
from xformc.compiler.ops.training import RANDOM


def share(graph: Graph) -> Graph:
    """The graph with identical nodes merged, except dropout, noise and recurrences.

    Positions depend only on the size of an axis, so they read it from the first value that has the axis. Then they are
    the same for all values, and no scores are kept just for their size.
    """
    builder, values = rebuild(graph, graph.name, {})
    known: dict[tuple[Op, tuple[Value, ...]], tuple[Value, ...]] = {}
    sized: dict[str, Value] = {}
    for value in builder.inputs:
        _measure(sized, value)
    for node in graph.nodes:
        if isinstance(node.op, Positions):
            node = replace(node, inputs=(sized[node.op.axis],))  # noqa: PLW2901
        key = (node.op, tuple(values.get(value.name, value) for value in node.inputs))
        if key in known and not isinstance(node.op, (*RANDOM, Recurrence)):
            values.update({old.name: new for old, new in zip(node.outputs, known[key], strict=True)})
            continue
        copy_node(builder, values, node)
        known[key] = tuple(values[value.name] for value in node.outputs)
        for value in known[key]:
            _measure(sized, value)
    return builder.finish(values[value.name] for value in graph.outputs)


def _measure(sized: dict[str, Value], value: Value) -> None:
    for name in value.type.names:
        sized.setdefault(name, value)
