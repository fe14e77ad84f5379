"""Indices: the largest elements of an axis, the elements at given indices, and indices as one-hot vectors."""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.cost import per_result
from xformc.compiler.graph.graph import Node, Op, Value
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
from xformc.compiler.ops.layout import aligner, emit_aligned, union


@dataclass(frozen=True)
class Top(Op):
    """The indices of the `count` largest elements along `over`, the largest first, along a new last axis `to`.

    Of equal elements, the first comes first. Int64, without the axis `over`.
    """

    kind: ClassVar[str] = "top"
    over: str
    to: str
    count: int


@dataclass(frozen=True)
class Take(Op):
    """The elements of `x` at indices of its axis `over`. Inputs: x and the indices, int64; axes are matched by name.

    An index beyond the ends of the axis counts as the first or the last. The result has the axes of the indices, then
    the others of `x`.
    """

    kind: ClassVar[str] = "take"
    over: str


@dataclass(frozen=True)
class OneHot(Op):
    """1 at each index and 0 elsewhere along a new last axis `to`; all 0 for an index beyond it. Input: int64."""

    kind: ClassVar[str] = "one_hot"
    to: str
    size: int


@types.rule(Top)
def _top_types(op: Top, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    (x,) = inputs
    require(op.over in x.names, f"{x} has no axis {op.over}")
    size = x.axis(op.over).size
    require(size is not None, f"the size of the axis {op.over} of {x} must be known")
    require(1 <= op.count <= (size or 0), f"the axis {op.over} of {x} has fewer than {op.count} elements")
    require(op.to not in x.names or op.to == op.over, f"{x} already has an axis {op.to}")
    return (Type("int64", (*x.without((op.over,)), Axis(op.to, op.count))),)


@types.rule(Take)
def _take_types(op: Take, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    x, index = inputs
    require(index.dtype == "int64", f"needs int64 indices, found {index}")
    require(op.over in x.names, f"{x} has no axis {op.over}")
    require(x.axis(op.over).size is not None, f"the size of the axis {op.over} of {x} must be known")
    require(op.over not in index.names, f"the indices {index} have the axis {op.over}")
    return (Type(x.dtype, union(index.axes, x.without((op.over,)))),)


@types.rule(OneHot)
def _one_hot_types(op: OneHot, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    (index,) = inputs
    require(index.dtype == "int64", f"needs int64 indices, found {index}")
    require(op.to not in index.names, f"{index} already has an axis {op.to}")
    return (Type("float32", (*index.axes, Axis(op.to, op.size))),)


def _over(op: Top | Take, node: Node) -> frozenset[str]:
    return frozenset({op.over})


mixes.rule(Top)(_over)
mixes.rule(Take)(_over)
mixes.rule(OneHot)(mixes_nothing)
for _op in (Top, Take, OneHot):
    cost.rule(_op)(per_result(1))


@to_torch.rule(Top)
def _top_torch(op: Top, node: Node, torch: TorchNamespace) -> Callable[[Any], Any]:
    index = node.inputs[0].type.names.index(op.over)

    def apply(x: Any) -> Any:
        ordered = torch.torch.sort(x.detach(), dim=index, descending=True, stable=True).indices
        return ordered.narrow(index, 0, op.count).movedim(index, -1)

    return apply


@to_onnx.rule(Top)
def _top_onnx(op: Top, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    x = node.inputs[0].type
    last = emit_aligned(onnx, inputs[0], x, Type(x.dtype, (*x.without((op.over,)), x.axis(op.over))))
    return (onnx.ops("TopK", 2, last, [op.count], axis=-1)[1],)


@dataclass(frozen=True)
class _Plan:
    """The axis orders of a Take: x [shared.., over, others..], the indices [shared.., own..], the result with all."""

    x: Type
    index: Type
    taken: Type
    shared: int
    size: int


def _plan(op: Take, node: Node) -> _Plan:
    x, index = (value.type for value in node.inputs)
    shared = tuple(axis for axis in index.axes if axis.name in x.names)
    own, over = index.without(x.names), x.axis(op.over)
    others = x.without((*index.names, op.over))
    return _Plan(
        Type(x.dtype, (*shared, over, *others)),
        Type(index.dtype, (*shared, *own)),
        Type(x.dtype, (*shared, *own, *others)),
        len(shared),
        over.size or 0,
    )


@to_torch.rule(Take)
def _take_torch(op: Take, node: Node, torch: TorchNamespace) -> Callable[[Any, Any], Any]:
    plan = _plan(op, node)
    first, second = (
        aligner(value.type, wanted) for value, wanted in zip(node.inputs, (plan.x, plan.index), strict=True)
    )
    restore = aligner(plan.taken, node.outputs[0].type)

    def apply(x: Any, index: Any) -> Any:
        x, index = first(x), second(index).clamp(0, plan.size - 1)
        shape, rows = (*index.shape, *x.shape[plan.shared + 1 :]), prod(x.shape[: plan.shared])
        start = torch.torch.arange(rows, device=index.device) * plan.size
        places = (index.reshape(rows, prod(index.shape[plan.shared :])) + start.unsqueeze(1)).flatten()
        return restore(x.flatten(0, plan.shared).index_select(0, places).reshape(shape))

    return apply


@to_onnx.rule(Take)
def _take_onnx(op: Take, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    plan = _plan(op, node)
    x = emit_aligned(onnx, inputs[0], node.inputs[0].type, plan.x)
    index = onnx.op("Clip", emit_aligned(onnx, inputs[1], node.inputs[1].type, plan.index), 0, plan.size - 1)
    if plan.shared:
        taken = onnx.op("GatherND", x, onnx.op("Unsqueeze", index, [-1]), batch_dims=plan.shared)
    else:
        taken = onnx.op("Gather", x, index, axis=0)
    return (emit_aligned(onnx, taken, plan.taken, node.outputs[0].type),)


@to_torch.rule(OneHot)
def _one_hot_torch(op: OneHot, node: Node, torch: TorchNamespace) -> Callable[[Any], Any]:
    def apply(index: Any) -> Any:
        return (index.unsqueeze(-1) == torch.torch.arange(op.size, device=index.device)).float()

    return apply


@to_onnx.rule(OneHot)
def _one_hot_onnx(op: OneHot, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    every = onnx.outermost(f"one_hot {op.size}", lambda root: root.op("Range", 0, op.size, 1))
    return (onnx.op("Cast", onnx.op("Equal", onnx.op("Unsqueeze", *inputs, [-1]), every), to=1),)


@primitive("top", over="name", to="axis")
def _top(site: Site, x: Value, over: str, to: Axis) -> Value:
    """The indices of the largest numbers along an axis, the largest first; `to` is their axis, and its size their
    number. `take` gives the numbers.
    """
    return site.emit(Top(site.axis(x, over).name, to.name, to.size or 0), x)


@primitive("take", on=None, by="value", over="name")
def _take(site: Site, x: Value, by: Value, over: str) -> Value:
    """The elements of `x` at the indices `by` of one of its axes, such as those of `argmax` or `top`. An index beyond
    the ends counts as the first or the last. Axes that both have are matched.
    """
    return site.emit(Take(site.axis(x, over).name), x, by)


@primitive("one_hot", on="int64", to="axis")
def _one_hot(site: Site, x: Value, to: Axis) -> Value:
    """1 at each index and 0 elsewhere, along a new axis."""
    return site.emit(OneHot(to.name, to.size or 0), x)
