"""What a step carries on to the next: appending to a cache."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.graph import Node, Op
from xformc.compiler.graph.rules import OnnxEmitter, TorchNamespace, mixes, require, to_onnx, to_torch, types


@dataclass(frozen=True)
class Append(Op):
    """The cache with the new positions at its end: axis `past` of the cache and `new` of the other become `seen`."""

    kind: ClassVar[str] = "append"
    new: str
    past: str
    seen: str


@types.rule(Append)
def _append_types(op: Append, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    cache, new = inputs
    renamed = tuple(op.new if name == op.past else name for name in cache.names)
    require(renamed == new.names, f"the cache {cache} and the new positions {new} must have the same order of axes")
    axes = tuple(Axis(op.seen) if axis.name == op.past else axis for axis in cache.axes)
    return (Type(cache.dtype, axes),)


@mixes.rule(Append)
def _append_mixes(op: Append, node: Node) -> frozenset[str]:
    return frozenset({op.past, op.new})


@to_torch.rule(Append)
def _append_torch(op: Append, node: Node, torch: TorchNamespace) -> Callable[[Any, Any], Any]:
    index = node.inputs[0].type.names.index(op.past)
    return lambda cache, new: torch.torch.cat((cache, new), index)


@to_onnx.rule(Append)
def _append_onnx(op: Append, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    return (onnx.op("Concat", *inputs, axis=node.inputs[0].type.names.index(op.past)),)
