"""Looking up rows of a table by integer: tokens, learned positions."""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.cost import Cost, size_in_bytes
from xformc.compiler.graph.graph import Initial, Node, Op, Value
from xformc.compiler.graph.primitives import Site, primitive
from xformc.compiler.graph.rules import (
    OnnxEmitter,
    TorchNamespace,
    cost,
    mixes,
    mixes_nothing,
    require,
    to_onnx,
    to_torch,
    types,
)
from xformc.compiler.quantize.formats import FORMATS


@dataclass(frozen=True)
class Embedding(Op):
    """`table[ids]`: the table's first axis is looked up, its others are appended to those of the ids."""

    kind: ClassVar[str] = "embedding"


@types.rule(Embedding)
def _embedding_types(op: Embedding, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    ids, table = inputs
    require(ids.dtype == "int64", f"needs int64 ids, found {ids}")
    return (Type(table.dtype, (*ids.axes, *table.axes[1:])),)


mixes.rule(Embedding)(mixes_nothing)


@to_torch.rule(Embedding)
def _embedding_torch(op: Embedding, node: Node, torch: TorchNamespace) -> Callable[..., Any]:
    return torch.functional.embedding


@to_onnx.rule(Embedding)
def _embedding_onnx(op: Embedding, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    ids, table = inputs
    new, *rest = node.inputs[1].type.sizes()
    matrix = onnx.weight(table, "rows", new, prod(rest))
    rows = FORMATS[matrix.precision].emit_rows(onnx, ids, matrix)
    if len(rest) == 1:
        return (rows,)
    return (onnx.op("Reshape", rows, onnx.shape(node.outputs[0].type.axes)),)


@cost.rule(Embedding)
def _embedding_cost(op: Embedding, node: Node) -> Cost:
    """Of the table, only the rows that are looked up are read."""
    rows = size_in_bytes(node.outputs[0].type)
    return Cost(read=size_in_bytes(node.inputs[0].type) + rows, written=rows)


@primitive("embedding", on="int64", size="axis")
def _embedding(site: Site, x: Value, size: Axis) -> Value:
    """A learned vector for each token of an input. The table starts normal with deviation size^-0.5."""
    return site.emit(Embedding(), x, table(site, site.vocabulary(x), size))


def table(site: Site, *axes: Axis) -> Value:
    """A table whose rows are looked up by an integer of its first axis; normal, deviation (last size)^-0.5."""
    return site.parameter("weight", axes, Initial("normal", (axes[-1].size or 1) ** -0.5))
