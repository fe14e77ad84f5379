"""Looking up rows of a table by integer: tokens, learned positions."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from xformc.compiler.graph.axes import Type
from xformc.compiler.graph.graph import Node, Op
from xformc.compiler.graph.rules import OnnxEmitter, TorchNamespace, mixes, require, to_onnx, to_torch, types


@dataclass(frozen=True)
class Embedding(Op):
    """`table[ids]`: the table's first axis is looked up, its others are appended to those of the ids."""

    kind: ClassVar[str] = "embedding"


@types.rule(Embedding)
def _embedding_types(op: Embedding, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    ids, table = inputs
    require(ids.dtype == "int64", f"needs int64 ids, found {ids}")
    return (Type(table.dtype, (*ids.axes, *table.axes[1:])),)


@mixes.rule(Embedding)
def _embedding_mixes(op: Embedding, node: Node) -> frozenset[str]:
    return frozenset()


@to_torch.rule(Embedding)
def _embedding_torch(op: Embedding, node: Node, torch: TorchNamespace) -> Callable[..., Any]:
    return torch.functional.embedding


@to_onnx.rule(Embedding)
def _embedding_onnx(op: Embedding, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    ids, table = inputs
    return (onnx.op("Gather", table, ids, axis=0),)
