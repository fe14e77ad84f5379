"""Embedding tables: token embeddings and learned positions."""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.cost import Cost, size_in_bytes
from xformc.compiler.graph.graph import Initial, Node, Op, Value
from xformc.compiler.graph.initialization import Initialization
from xformc.compiler.graph.primitives import Site, optional, primitive
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
from xformc.compiler.ops.indexing import Take
from xformc.compiler.quantize.formats import FORMATS


@dataclass(frozen=True)
class Embedding(Op):
    """`table[ids]`: the ids index the first axis of the table; its other axes are appended to those of the ids."""

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
    """Only the rows that are looked up are read from the table."""
    rows = size_in_bytes(node.outputs[0].type)
    return Cost(read=size_in_bytes(node.inputs[0].type) + rows, written=rows)


@primitive("embedding", on="int64", size="axis", entries=optional("axis"), initial=optional("initial"))
def _embedding(
    site: Site, x: Value, size: Axis, entries: Axis | None = None, initial: Initialization | None = None
) -> Value:
    """A learned vector for each token of an input, or for each index below the size of `entries`. It starts normal
    with deviation size^-0.5, or as `initial`.
    """
    if entries is not None:
        return site.emit(Take(entries.name), table(site, entries, size, initial=initial), x)
    return site.emit(Embedding(), x, table(site, site.vocabulary(x), size, initial=initial))


def table(site: Site, *axes: Axis, initial: Initialization | None = None) -> Value:
    """Declare an embedding table, indexed by its first axis; normal, deviation (last size)^-0.5, or as `initial`."""
    return site.parameter("weight", axes, initial or Initial("normal", (axes[-1].size or 1) ** -0.5), outputs=1)
