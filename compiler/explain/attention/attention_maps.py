"""The attention weights of a model for one example, from its unfused graph."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.graph.axes import Type
from xformc.compiler.graph.graph import Graph, Node, Value
from xformc.compiler.ops.contract import Contract
from xformc.compiler.ops.keys import AsKeys
from xformc.compiler.ops.recurrence import Recurrence
from xformc.compiler.ops.softmax import Softmax
from xformc.errors import UserError


@dataclass(frozen=True)
class AttentionMap:
    """The weights of positions `columns` for each position `rows` (an axis of positions, or None for a single vector).

    `name` is the path of the attention; `weights` is [heads, rows, columns].
    """

    name: str
    rows: str | None
    columns: str
    weights: npt.NDArray[np.float32]

    @property
    def group(self) -> str:
        """The name without layer numbers: `decoder/cross_attention`."""
        return "/".join(part for part in self.name.split("/") if not part.isdigit())

    @property
    def layer(self) -> str:
        """The number of its layer, from 1, such as `3`; empty if it is not in a repeat."""
        return ".".join(str(int(part) + 1) for part in self.name.split("/") if part.isdigit())


@dataclass(frozen=True)
class _Found:
    """A value with attention weights, and its axes of rows and keys."""

    value: Value
    rows: str | None
    keys: str


def attention_maps(graph: Graph, weights: Mapping[str, Any], inputs: Sequence[torch.Tensor]) -> list[AttentionMap]:
    """The maps of a graph, without dropout or fused attention, for one example, in the order of the graph.

    `inputs` are the graph's, with a batch of 1. Raises: UserError if the model has no attention weights.
    """
    exposed, found = _expose(graph)
    if not found:
        raise UserError(
            f"{graph.name} has no attention weights", hint="attention maps need a weight per pair of positions"
        )
    module = TorchModule(exposed).eval()
    module.load_arrays(weights)
    with torch.no_grad():
        values = module.all_values(*inputs)
    positions = _positions_of_keys(exposed)
    names = short_names([one.value.name for one in found])
    return [
        AttentionMap(name, one.rows, positions[one.keys], _ordered(values[one.value.name], one))
        for name, one in zip(names, found, strict=True)
    ]


def _expose(graph: Graph) -> tuple[Graph, list[_Found]]:
    """The graph and its weights; for weights inside a cell, a node is added that returns them for all positions."""
    keys = _positions_of_keys(graph)
    found, nodes = list(_find(graph, keys)), list(graph.nodes)
    for node in graph.nodes:
        if isinstance(node.op, Recurrence):
            for inner in _find(node.op.body, keys):
                nodes.append(_all_positions(node, node.op, inner.value))
                found.append(_Found(nodes[-1].outputs[0], node.op.positions, inner.keys))
    return replace(graph, nodes=tuple(nodes)), found


def _all_positions(node: Node, op: Recurrence, inner: Value) -> Node:
    """A copy of the recurrence that returns a value of its cell for all positions."""
    body = replace(op.body, outputs=(inner, *op.body.outputs[1:]))
    length = node.outputs[0].type.axis(op.positions)
    axes = tuple(length if axis.name == op.positions else axis for axis in inner.type.axes)
    return Node(replace(op, body=body), node.inputs, (Value(f"{inner.name}/all", Type("float32", axes)),), node.place)


def _find(graph: Graph, keys: Mapping[str, str]) -> Iterator[_Found]:
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
                yield _Found(value, rows[0] if rows else None, node.op.over)


def _inputs(graph: Graph) -> set[str]:
    return {value.name for value in graph.inputs}


def _positions_of_keys(graph: Graph) -> dict[str, str]:
    """The axis of positions that each axis of keys comes from."""
    found: dict[str, str] = {}
    for node in graph.nodes:
        if isinstance(node.op, AsKeys):
            found[node.op.keys] = node.op.positions
        elif isinstance(node.op, Recurrence):
            found |= _positions_of_keys(node.op.body)
    return found


def _ordered(weights: torch.Tensor, found: _Found) -> npt.NDArray[np.float32]:
    """The weights of the first example as [heads, rows, keys]."""
    names = list(found.value.type.names)
    last = [name for name in (found.rows, found.keys) if name is not None]
    heads = [name for name in names if name not in ("batch", *last)]
    order = [names.index(name) for name in ("batch", *heads, *last)]
    first = weights.permute(order)[0]
    rows = first.shape[len(heads)] if found.rows else 1
    return first.reshape(-1, rows, first.shape[-1]).numpy()


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
