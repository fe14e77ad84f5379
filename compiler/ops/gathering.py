"""Positions in another order, which may differ from example to example."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.cost import per_result
from xformc.compiler.graph.graph import Node, Op, Value
from xformc.compiler.graph.primitives import Site, optional, primitive
from xformc.compiler.graph.rules import (
    OnnxEmitter,
    Stepper,
    TorchNamespace,
    cost,
    mixes,
    require,
    to_onnx,
    to_step,
    to_torch,
    types,
)
from xformc.compiler.ops.masks import spread


@dataclass(frozen=True)
class Reorder(Op):
    """The positions of x along `axis` in another order; the functions are in ORDERS.

    Inputs: x and, if some positions are padding, a mask [batch, axis]. Padding stays where it is. `last` has only the
    `number` last positions, as the axis `to`; if there are fewer, padding follows them.
    """

    kind: ClassVar[str] = "reorder"
    function: str
    axis: str
    to: str
    number: int = 0


@types.rule(Reorder)
def _reorder_types(op: Reorder, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    x, *masks = inputs
    require(op.axis in x.names, f"{x} has no axis {op.axis}")
    require(all(mask == Type("bool", (Axis("batch"), x.axis(op.axis))) for mask in masks), "the mask does not fit")
    require(not masks or x.names[0] == "batch", f"{x} must have the axis batch first")
    new = Axis(op.to, op.number) if op.function == "last" else Axis(op.to, x.axis(op.axis).size)
    return (Type(x.dtype, tuple(new if axis.name == op.axis else axis for axis in x.axes)),)


@mixes.rule(Reorder)
def _reorder_mixes(op: Reorder, node: Node) -> frozenset[str]:
    return frozenset({op.axis, op.to})


@to_step.rule(Reorder)
def _reorder_step(op: Reorder, node: Node, step: Stepper) -> tuple[Value, ...]:
    raise step.refuse("a position sees one after it", "shift_positions sees the ones before it")


_TORCH = {
    "less": "lt",
    "subtract": "sub",
    "modulo": "remainder",
    "where": "where",
    "add": "add",
    "largest": "clamp_min",
}
_ONNX = {"less": "Less", "subtract": "Sub", "modulo": "Mod", "where": "Where", "add": "Add", "largest": "Max"}


@dataclass(frozen=True)
class _Math:
    """Arithmetic by name, in PyTorch or as ONNX nodes."""

    functions: Mapping[str, Callable[..., Any]]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return self.functions[name]


def _roll(math: _Math, places: Any, length: Any, number: int) -> Any:
    return math.where(math.less(places, length), math.modulo(math.subtract(places, number), length), places)


def _reverse(math: _Math, places: Any, length: Any, number: int) -> Any:
    backward = math.subtract(math.subtract(length, 1), places)
    return math.where(math.less(places, length), backward, places)


def _last(math: _Math, places: Any, length: Any, number: int) -> Any:
    return math.add(math.largest(math.subtract(length, number), 0), places)


ORDERS: dict[str, Callable[[_Math, Any, Any, int], Any]] = {"roll": _roll, "reverse": _reverse, "last": _last}
"""The index of each position of the result, from its own index, the number of real positions, and a number."""


@to_torch.rule(Reorder)
def _reorder_torch(op: Reorder, node: Node, torch: TorchNamespace) -> Callable[..., Any]:
    index = node.inputs[0].type.names.index(op.axis)
    math = _Math({name: getattr(torch.torch, function) for name, function in _TORCH.items()})
    order, arange = ORDERS[op.function], torch.torch.arange

    def apply(x: Any, mask: Any = None) -> Any:
        size = x.shape[index]
        places = arange(op.number if op.function == "last" else size, device=x.device)
        length = places.new_tensor([size]) if mask is None else mask.sum(1, keepdim=True)
        found = order(math, places, length, op.number).clamp(max=size - 1)
        return x.index_select(index, found) if mask is None else gathered(torch, x, index, found)

    return apply


@to_onnx.rule(Reorder)
def _reorder_onnx(op: Reorder, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    x, masked = node.inputs[0].type, inputs[1:]
    size = onnx.shape((x.axis(op.axis),))
    places = onnx.op("Range", 0, op.number if op.function == "last" else onnx.op("Squeeze", size), 1)
    length = onnx.op("ReduceSum", onnx.op("Cast", inputs[1], to=7), [1], keepdims=1) if masked else size
    math = _Math({name: partial(onnx.op, kind) for name, kind in _ONNX.items()})
    order = ORDERS[op.function](math, places, length, op.number)
    order = onnx.op("Min", order, onnx.op("Sub", size, 1))
    if not masked:
        return (onnx.op("Gather", inputs[0], order, axis=x.names.index(op.axis)),)
    return (emit_gathered(onnx, inputs[0], x, op.axis, order),)


def gathered(torch: TorchNamespace, x: Any, index: int, order: Any) -> Any:
    """The elements of x [batch, ..] along axis `index` in the `order` [batch, count] of each example."""
    rows = torch.torch.arange(order.shape[0], device=x.device).unsqueeze(1)
    return x.transpose(1, index)[rows, order].transpose(1, index)


def emit_gathered(onnx: OnnxEmitter, x: str, type: Type, axis: str, order: str) -> str:
    """Write the nodes for `gathered`, for a value of this type."""
    index = type.names.index(axis)
    swap = list(range(len(type.axes)))
    swap[1], swap[index] = swap[index], swap[1]
    rows = x if index == 1 else onnx.op("Transpose", x, perm=swap)
    inner = [type.axes[each] for each in swap[2:]]
    count = onnx.op("Shape", rows, start=1, end=2)
    batch = onnx.op("Squeeze", onnx.op("Shape", rows, start=0, end=1))
    starts = onnx.op("Unsqueeze", onnx.op("Mul", onnx.op("Range", 0, batch, 1), count), [1])
    shape = onnx.op("Concat", [-1], onnx.shape(inner), axis=0) if inner else onnx.operand([-1])
    found = onnx.op("Gather", onnx.op("Reshape", rows, shape), onnx.op("Add", order, starts), axis=0)
    return found if index == 1 else onnx.op("Transpose", found, perm=swap)


cost.rule(Reorder)(per_result(0))


@primitive("roll", by="number", over=optional("name"))
def _roll_positions(site: Site, x: Value, by: float, over: str = "positions") -> Value:
    """Each position gets the vector `by` positions before it; the first ones get the last. Padding stays."""
    if by != int(by):
        raise site.refuse_number("by", by, "'by' must be a whole number")
    return reorder(site, x, "roll", site.axis(x, over).name, int(by))


@primitive("reverse", over=optional("name"))
def _reverse_positions(site: Site, x: Value, over: str = "positions") -> Value:
    """The positions in reverse order. Padding stays at the end."""
    return reorder(site, x, "reverse", site.axis(x, over).name)


def reorder(site: Site, x: Value, function: str, axis: str, number: int = 0, to: str | None = None) -> Value:
    """Write the node for one of ORDERS."""
    mask = site.padding(axis)
    reordered = (x,) if mask is None else (spread(site, x, mask), mask)
    return site.emit(Reorder(function, axis, to or axis, number), *reordered)
