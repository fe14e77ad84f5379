"""The attention weights in an unfused graph: where they are, and which positions they belong to."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from xformc.compiler.graph.axes import Type
from xformc.compiler.graph.graph import Graph, Node, Value
from xformc.compiler.ops.contract import Contract
from xformc.compiler.ops.keys import AsKeys
from xformc.compiler.ops.recurrence import Recurrence
from xformc.compiler.ops.softmax import Softmax

ALL_POSITIONS = "/all"
"""The end of the name of weights inside a cell, for all positions."""


@dataclass(frozen=True)
class AttentionWeights:
    """A value with attention weights, and its axes of rows and keys."""

    value: Value
    rows: str | None
    keys: str


def exposed_weights(graph: Graph) -> tuple[Graph, list[AttentionWeights]]:
    """The unfused graph and its weights, in the order of the graph.

    For weights inside a cell, a node is added that returns them for all positions.
    """
    keys = positions_of_keys(graph)
    found, nodes = list(_find(graph, keys)), list(graph.nodes)
    for node in graph.nodes:
        if isinstance(node.op, Recurrence):
            for inner in _find(node.op.body, keys):
                nodes.append(_all_positions(node, node.op, inner.value))
                found.append(AttentionWeights(nodes[-1].outputs[0], node.op.positions, inner.keys))
    return replace(graph, nodes=tuple(nodes)), found


def _all_positions(node: Node, op: Recurrence, inner: Value) -> Node:
    """A copy of the recurrence that returns a value of its cell for all positions."""
    body = replace(op.body, outputs=(inner, *op.body.outputs[1:]))
    length = node.outputs[0].type.axis(op.positions)
    axes = tuple(length if axis.name == op.positions else axis for axis in inner.type.axes)
    return Node(
        replace(op, body=body), node.inputs, (Value(f"{inner.name}{ALL_POSITIONS}", Type("float32", axes)),), node.place
    )


def _find(graph: Graph, keys: Mapping[str, str]) -> Iterator[AttentionWeights]:
    """The weights of sums along an axis of keys: a softmax over it, or numbers per pair of positions."""
    producers, positions = graph.producers(), set(keys.values())
    for node in graph.nodes:
        if not isinstance(node.op, Contract) or node.op.over not in keys:
            continue
        for value in node.inputs:
            rows = [name for name in value.type.names if name in positions or name in _inputs(graph)]
            maker = producers.get(value.name)
            normal = maker is not None and isinstance(maker.op, Softmax) and maker.op.axis == node.op.over
            if len(rows) <= 1 and (normal or rows):
                yield AttentionWeights(value, rows[0] if rows else None, node.op.over)


def _inputs(graph: Graph) -> set[str]:
    return {value.name for value in graph.inputs}


def positions_of_keys(graph: Graph) -> dict[str, str]:
    """The axis of positions that each axis of keys comes from."""
    found: dict[str, str] = {}
    for node in graph.nodes:
        if isinstance(node.op, AsKeys):
            found[node.op.keys] = node.op.positions
        elif isinstance(node.op, Recurrence):
            found |= positions_of_keys(node.op.body)
    return found


def attentions_between(graph: Graph, rows: str, columns: str) -> tuple[Graph, list[AttentionWeights]]:
    """As `exposed_weights`, only those of the positions `rows` to the positions `columns`."""
    exposed, found = exposed_weights(graph)
    positions = positions_of_keys(exposed)
    return exposed, [one for one in found if one.rows == rows and positions[one.keys] == columns]


def short_names(names: Sequence[str]) -> list[str]:
    """The paths without their common ending, but at least down to the name in a stage or in a layer."""
    parts = [name.split("/") for name in names]
    least = [2 + max((at for at, part in enumerate(path) if part.isdigit()), default=0) for path in parts]
    shared = 0
    while len({tuple(path[len(path) - shared - 1 :]) for path in parts}) == 1 and all(
        len(path) - shared > kept for path, kept in zip(parts, least, strict=True)
    ):
        shared += 1
    return ["/".join(path[: len(path) - shared]) for path in parts]
