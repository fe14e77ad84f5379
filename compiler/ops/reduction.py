"""Reductions along an axis, ignoring padding, and cumulative sums."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.cost import Cost, Reach, count, moving, per_result
from xformc.compiler.graph.graph import Node, Op, Value
from xformc.compiler.graph.primitives import Site, optional, primitive
from xformc.compiler.graph.rules import (
    HIDING,
    Hidden,
    OnnxEmitter,
    Stepper,
    TorchNamespace,
    cost,
    hidden,
    mixes,
    mixture,
    require,
    to_onnx,
    to_step,
    to_torch,
    types,
)
from xformc.compiler.ops.elementwise import Add
from xformc.compiler.ops.keys import Append
from xformc.compiler.ops.layout import aligner, emit_aligned
from xformc.compiler.ops.masks import MASKED, Fill, PaddingMask, Select, spread


@dataclass(frozen=True)
class Reduce(Op):
    """The mean, sum, max, first or last along `axis`; the functions are in FUNCTIONS.

    Inputs: x, and optionally a mask with some of its axes; only elements where it is true count. If it is false
    everywhere, the mean, sum and last are zero and the max is MASKED. If `ordered`, an engine adds one element
    after the other, so that zeros for padding never change a sum.
    """

    kind: ClassVar[str] = "reduce"
    function: str
    axis: str
    ordered: bool = False


@dataclass(frozen=True)
class CumulativeSum(Op):
    """The cumulative sum along `axis`: `y[t] = x[0] + .. + x[t]`, or the sum of x[t] and all after it (`reverse`)."""

    kind: ClassVar[str] = "cumulative_sum"
    axis: str
    reverse: bool = False


@types.rule(Reduce)
def _reduce_types(op: Reduce, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    x = inputs[0]
    require(op.axis in x.names, f"{x} has no axis {op.axis}")
    for mask in inputs[1:]:
        fits = mask.dtype == "bool" and op.axis in mask.names and set(mask.axes) <= set(x.axes)
        require(fits, f"the mask {mask} must be bool, with the axis {op.axis} and others of {x}")
    return (Type(x.dtype, x.without((op.axis,))),)


@types.rule(CumulativeSum)
def _cumulative_sum_types(op: CumulativeSum, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    (x,) = inputs
    require(op.axis in x.names, f"{x} has no axis {op.axis}")
    return (x,)


def _mixed(op: Reduce | CumulativeSum, node: Node) -> frozenset[str]:
    return frozenset({op.axis})


mixes.rule(Reduce)(_mixed)
mixes.rule(CumulativeSum)(_mixed)


@hidden.rule(Reduce)
def _reduce_hidden(op: Reduce, node: Node, inputs: tuple[Hidden, ...], keys: frozenset[str]) -> Hidden:
    """Over keys, zeros do not change a sum, nor MASKED a maximum; over another axis, hidden keys stay hidden."""
    held = inputs[0]
    if op.axis in keys:
        kept = held == "zero" if op.function == "sum" else op.function == "max" and held in HIDING
        return held if kept else "open"
    if op.function == "sum" and held not in ("open", "zero"):
        return "low" if held in HIDING else "large"
    return held


@hidden.rule(CumulativeSum)
def _cumulative_sum_hidden(op: CumulativeSum, node: Node, inputs: tuple[Hidden, ...], keys: frozenset[str]) -> Hidden:
    """Zeros at later keys change no sum. A sum over keys has others there, or before a window."""
    if inputs[0] != "zero":
        return mixture(*inputs)
    return "unread" if op.axis in keys else "zero"


@to_step.rule(Reduce)
def _reduce_step(op: Reduce, node: Node, step: Stepper) -> tuple[Value, ...]:
    """The state is the first value; every other function sees later positions."""
    if op.function != "first":
        hint = "cumulative_sum is the sum of the positions so far" if op.function in ("sum", "mean") else None
        raise step.refuse(f"its {op.function} is over all positions of '{step.time}'", hint)
    name = node.outputs[0].name
    past = step.state(f"{name}/first", node.outputs[0].type)
    later = step.emit(PaddingMask(0), (step.position(),), f"{name}/later")  # the first position is 0
    now = step.emit(op, (step.value(node.inputs[0]),), f"{name}/now")
    result = step.emit(Select(), (later, past, now), name)
    step.carry(past, result)
    return (result,)


@to_step.rule(CumulativeSum)
def _cumulative_sum_step(op: CumulativeSum, node: Node, step: Stepper) -> tuple[Value, ...]:
    """The state is the sum so far."""
    if op.reverse:
        raise step.refuse("every position sees the ones after it", "only a forward sum is causal")
    (x,), name = node.inputs, node.outputs[0].name
    past = step.state(f"{name}/sum", x.type.replaced(step.time, Axis(step.time, 1)))
    if not step.several:
        result = step.emit(Add(), (past, step.value(x)), name)
        step.carry(past, result)
        return (result,)
    before = step.emit(Reduce("first", step.time), (past,), f"{name}/before")
    result = step.emit(Add(), (step.emit(op, (step.value(x),), f"{name}/new"), before), name)
    step.carry(past, step.emit(Append(step.time, step.time, step.time, 1), (past, result), f"{name}/last"))
    return (result,)


@to_torch.rule(Reduce)
def _reduce_torch(op: Reduce, node: Node, torch: TorchNamespace) -> Callable[..., Any]:
    x, masks = node.inputs[0].type, node.inputs[1:]
    index = x.names.index(op.axis) - len(x.axes)
    align = aligner(masks[0].type, Type("bool", x.axes)) if masks else None
    function = FUNCTIONS[op.function].torch

    def apply(x: Any, mask: Any = None) -> Any:
        return function(x, None if align is None else align(mask), index)

    return apply


@to_onnx.rule(Reduce)
def _reduce_onnx(op: Reduce, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    x, masks = node.inputs[0].type, node.inputs[1:]
    index = x.names.index(op.axis) - len(x.axes)
    mask = emit_aligned(onnx, inputs[1], masks[0].type, Type("bool", x.axes)) if masks else None
    if op.ordered:
        return (_ordered_onnx(op, onnx, inputs[0], x, mask),)
    return (FUNCTIONS[op.function].onnx(onnx, inputs[0], mask, index),)


def _ordered_onnx(op: Reduce, onnx: OnnxEmitter, x: str, type: Type, mask: str | None) -> str:
    """The last of the sums so far; ONNX Runtime adds them in order, and fast along any axis but the last."""
    index, kept = type.names.index(op.axis), x if mask is None else onnx.op("Where", mask, x, 0.0)
    if index < len(type.axes) - 1:
        total = onnx.op("Gather", onnx.op("CumSum", kept, index), -1, axis=index)
    else:
        first = onnx.op("Transpose", kept, perm=[index, *range(index)])
        total = onnx.op("Gather", onnx.op("CumSum", first, 0), -1, axis=0)
    if op.function == "sum":
        return total
    if mask is not None:
        return onnx.op("Div", total, _count_onnx(onnx, mask, index - len(type.axes)))
    return onnx.op("Div", total, onnx.op("Cast", onnx.op("Shape", x, start=index, end=index + 1), to=1))


@dataclass(frozen=True)
class _Function:
    """One reduction: `torch(x, mask, index)` on tensors, and the same as ONNX nodes; the mask may be None.

    The index is negative, counted from the last axis, since the mask may lack leading axes.
    """

    torch: Callable[[Any, Any, int], Any]
    onnx: Callable[[OnnxEmitter, str, str | None, int], str]


def _sum_torch(x: Any, mask: Any, index: int) -> Any:
    return (x if mask is None else x.masked_fill(~mask, 0.0)).sum(index)


def _sum_onnx(onnx: OnnxEmitter, x: str, mask: str | None, index: int) -> str:
    return onnx.op("ReduceSum", x if mask is None else onnx.op("Where", mask, x, 0.0), [index], keepdims=0)


def _mean_torch(x: Any, mask: Any, index: int) -> Any:
    return x.mean(index) if mask is None else _sum_torch(x, mask, index) / mask.sum(index).clamp(min=1)


def _mean_onnx(onnx: OnnxEmitter, x: str, mask: str | None, index: int) -> str:
    if mask is None:
        return onnx.op("ReduceMean", x, [index], keepdims=0)
    return onnx.op("Div", _sum_onnx(onnx, x, mask, index), _count_onnx(onnx, mask, index))


def _count_onnx(onnx: OnnxEmitter, mask: str, index: int) -> str:
    """How many elements count, at least 1."""
    return onnx.op("Max", onnx.op("ReduceSum", onnx.op("Cast", mask, to=1), [index], keepdims=0), 1.0)


def _max_torch(x: Any, mask: Any, index: int) -> Any:
    return (x if mask is None else x.masked_fill(~mask, MASKED)).amax(index)


def _max_onnx(onnx: OnnxEmitter, x: str, mask: str | None, index: int) -> str:
    return onnx.op("ReduceMax", x if mask is None else onnx.op("Where", mask, x, MASKED), [index], keepdims=0)


def _last_torch(x: Any, mask: Any, index: int) -> Any:
    if mask is None:
        return x.select(index, -1)
    return _sum_torch(x, mask & (mask.cumsum(index) == mask.sum(index, keepdim=True)), index)


def _last_onnx(onnx: OnnxEmitter, x: str, mask: str | None, index: int) -> str:
    if mask is None:
        return onnx.op("Gather", x, -1, axis=index)
    ones = onnx.op("Cast", mask, to=7)
    count = onnx.op("ReduceSum", ones, [index], keepdims=1)
    last = onnx.op("And", mask, onnx.op("Equal", onnx.op("CumSum", ones, index), count))
    return _sum_onnx(onnx, x, last, index)


FUNCTIONS = {
    "sum": _Function(_sum_torch, _sum_onnx),
    "mean": _Function(_mean_torch, _mean_onnx),
    "max": _Function(_max_torch, _max_onnx),
    "first": _Function(
        lambda x, mask, index: x.select(index, 0), lambda onnx, x, mask, index: onnx.op("Gather", x, 0, axis=index)
    ),
    "last": _Function(_last_torch, _last_onnx),
}
"""The reductions by name."""


@to_torch.rule(CumulativeSum)
def _cumulative_sum_torch(op: CumulativeSum, node: Node, torch: TorchNamespace) -> Callable[[Any], Any]:
    index = node.inputs[0].type.names.index(op.axis)
    return lambda x: x.flip(index).cumsum(index).flip(index) if op.reverse else x.cumsum(index)


@to_onnx.rule(CumulativeSum)
def _cumulative_sum_onnx(op: CumulativeSum, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    operands = (*inputs, node.inputs[0].type.names.index(op.axis))
    return (onnx.op("CumSum", *operands, reverse=1) if op.reverse else onnx.op("CumSum", *operands),)


@cost.rule(Reduce)
def _reduce_cost(op: Reduce, node: Node) -> Cost:
    done = moving(node, others=count(node.inputs[0].type.axes))
    return done if op.function in ("first", "last") else replace(done, reach=Reach(op.axis, "all"))


@cost.rule(CumulativeSum)
def _cumulative_sum_cost(op: CumulativeSum, node: Node) -> Cost:
    return replace(per_result(1)(op, node), reach=Reach(op.axis, "all"))


@primitive("cumulative_sum", over=optional("name"), reverse=optional("flag"))
def _cumulative_sum(site: Site, x: Value, over: str = "positions", reverse: bool = False) -> Value:
    """The sum of the values up to each position, or from it to the last (`reverse`), or along another axis.

    Over `keys`, what a causal mask hides must be zero, as after softmax, sigmoid, relu or exp.
    """
    axis = site.axis(x, over).name
    mask = site.mask(axis) if reverse else None
    real = x if mask is None else site.emit(Fill(0.0), spread(site, x, mask), mask, name="real")
    return site.emit(CumulativeSum(axis, reverse), real)


def _reduction(function: str) -> None:
    def apply(site: Site, x: Value, over: str = "positions") -> Value:
        axis = site.axis(x, over).name
        mask = None if function == "first" else site.mask(axis)
        return site.emit(Reduce(function, axis), *((x,) if mask is None else (spread(site, x, mask), mask)))

    apply.__doc__ = f"The {function} along the positions or another axis, ignoring padding."
    primitive(function, over=optional("name"))(apply)


for _name in FUNCTIONS:
    _reduction(_name)
