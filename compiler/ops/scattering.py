"""Scatter: elements are added up by computed indices, such as the weights of words by their tokens."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.cost import Cost, Reach, count, moving
from xformc.compiler.graph.graph import Node, Op, Value
from xformc.compiler.graph.primitives import Site, primitive
from xformc.compiler.graph.rules import (
    Hidden,
    OnnxEmitter,
    TorchNamespace,
    cost,
    hidden,
    mixes,
    mixture,
    require,
    to_onnx,
    to_torch,
    types,
)
from xformc.compiler.ops.layout import aligner, emit_aligned, union
from xformc.compiler.ops.masks import without_padding


@dataclass(frozen=True)
class Scatter(Op):
    """`y[i] = the sum of x[k] over all k of the axis over whose index is i`, along a new last axis `to`.

    Inputs: x and the indices, int64; axes are matched by name and broadcast. An index beyond the new axis counts
    nowhere. Engines add in the order of the axis `over`.
    """

    kind: ClassVar[str] = "scatter"
    over: str
    to: str
    size: int


@types.rule(Scatter)
def _scatter_types(op: Scatter, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    x, index = inputs
    require(x.dtype == "float32", f"adds numbers, found {x}")
    require(index.dtype == "int64", f"needs int64 indices, found {index}")
    for type in (x, index):
        require(op.over in type.names, f"{type} has no axis {op.over}")
    require(op.to not in (*x.names, *index.names), f"{x} or {index} already has an axis {op.to}")
    return (Type(x.dtype, (*_whole(op, x, index).axes[:-1], Axis(op.to, op.size))),)


def _whole(op: Scatter, x: Type, index: Type) -> Type:
    """All axes of both inputs, the axis `over` last."""
    axes = union(x.axes, index.axes)
    return Type(x.dtype, (*(axis for axis in axes if axis.name != op.over), x.axis(op.over)))


@mixes.rule(Scatter)
def _scatter_mixes(op: Scatter, node: Node) -> frozenset[str]:
    return frozenset({op.over})


@hidden.rule(Scatter)
def _scatter_hidden(op: Scatter, node: Node, inputs: tuple[Hidden, ...], keys: frozenset[str]) -> Hidden:
    """Zeros add nothing, whatever their indices are."""
    return "zero" if inputs[0] == "zero" else mixture(inputs[0])


@to_torch.rule(Scatter)
def _scatter_torch(op: Scatter, node: Node, torch: TorchNamespace) -> Callable[[Any, Any], Any]:
    x, index = (value.type for value in node.inputs)
    whole = _whole(op, x, index)
    first, second = aligner(x, whole), aligner(index, Type("int64", whole.axes))

    def apply(x: Any, index: Any) -> Any:
        x, index = torch.torch.broadcast_tensors(first(x), second(index))
        known = (index >= 0) & (index < op.size)
        kept, places = x.masked_fill(~known, 0.0), index.clamp(0, op.size - 1)
        return x.new_zeros(*x.shape[:-1], op.size).scatter_add(-1, places, kept)

    return apply


@to_onnx.rule(Scatter)
def _scatter_onnx(op: Scatter, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    x, index = (value.type for value in node.inputs)
    whole = _whole(op, x, index)
    shape = onnx.shape(whole.axes)
    places = emit_aligned(onnx, inputs[1], index, Type("int64", whole.axes))
    known = onnx.op("And", onnx.op("GreaterOrEqual", places, 0), onnx.op("Less", places, op.size))
    kept = onnx.op("Where", known, emit_aligned(onnx, inputs[0], x, whole), 0.0)
    places = onnx.op("Expand", onnx.op("Clip", places, 0, op.size - 1), shape)
    nothing = onnx.op("Expand", 0.0, onnx.shape(node.outputs[0].type.axes))
    added = onnx.op("ScatterElements", nothing, places, onnx.op("Expand", kept, shape), axis=-1, reduction="add")
    return (added,)


@cost.rule(Scatter)
def _scatter_cost(op: Scatter, node: Node) -> Cost:
    """One addition per element of the inputs."""
    x, index = (value.type for value in node.inputs)
    return replace(moving(node, others=count(_whole(op, x, index).axes)), reach=Reach(op.over, "all"))


@primitive("scatter", by="value", over="name", to="axis")
def _scatter(site: Site, x: Value, by: Value, over: str, to: Axis) -> Value:
    """The sums of the elements of `x` along an axis that have the same index `by`, along the new axis `to` of indices:
    the inverse of `take`. An index beyond its size counts nowhere, nor does padding.
    """
    axis = site.axis(x, over)
    x = without_padding(site, x, (axis.name,))
    return site.emit(Scatter(axis.name, to.name, to.size or 0), x, by)
