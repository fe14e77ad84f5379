"""Sequences one after the other, and positions that see the ones before them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.cost import Cost, Reach, per_result
from xformc.compiler.graph.graph import Node, Op, Value
from xformc.compiler.graph.lengths import Length
from xformc.compiler.graph.primitives import Applied, Site, optional, primitive
from xformc.compiler.graph.rules import (
    Hidden,
    OnnxEmitter,
    Stepper,
    TorchNamespace,
    cost,
    hidden,
    lengths,
    mixes,
    mixture,
    require,
    to_onnx,
    to_step,
    to_torch,
    types,
)
from xformc.compiler.ops.gathering import emit_gathered, gathered
from xformc.compiler.ops.keys import Append
from xformc.compiler.ops.layout import Expand, aligner, emit_aligned
from xformc.compiler.ops.masks import without_padding
from xformc.compiler.ops.slicing import Slice, zeros
from xformc.compiler.ops.windows import MAX_REACH


@dataclass(frozen=True)
class Concatenate(Op):
    """The positions of `a` along its axis `first`, then those of `b` along `second`, along the axis `to`.

    The other axes of one are also axes of the other, along which the first is repeated. With a mask [batch, first],
    those of b follow the real positions of a, whose padding comes last.
    """

    kind: ClassVar[str] = "concatenate"
    first: str
    second: str
    to: str


@types.rule(Concatenate)
def _concatenate_types(op: Concatenate, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    a, b, *masks = inputs
    require(op.first in a.names and op.second in b.names, f"{a} and {b} have no axes {op.first} and {op.second}")
    base, axis, other, rest = _base(op, a, b)
    fits = a.dtype == b.dtype and set(other.without((rest,))) <= set(base.without((axis,)))
    require(fits, f"needs two values that differ only in their positions, found {a} and {b}")
    wanted = (Axis("batch"), a.axis(op.first))
    require(all(mask == Type("bool", wanted) for mask in masks), f"the mask must be bool[batch, {op.first}]")
    require(not masks or base.names[0] == "batch", f"{base} must have the axis batch first")
    sizes = [a.axis(op.first).size, b.axis(op.second).size]
    size = None if None in sizes else sum(size or 0 for size in sizes)
    return (Type(base.dtype, tuple(Axis(op.to, size) if each.name == axis else each for each in base.axes)),)


def _base(op: Concatenate, a: Type, b: Type) -> tuple[Type, str, Type, str]:
    """The value that has all axes, its axis of positions, and the same of the other value."""
    given = (a, op.first, b, op.second)
    return given if len(a.axes) >= len(b.axes) else (*given[2:], *given[:2])


@mixes.rule(Concatenate)
def _concatenate_mixes(op: Concatenate, node: Node) -> frozenset[str]:
    return frozenset({op.first, op.second, op.to})


@lengths.rule(Concatenate)
def _concatenate_lengths(op: Concatenate, node: Node) -> Mapping[str, Length]:
    parts = [value.type.axis(name) for value, name in zip(node.inputs, (op.first, op.second), strict=False)]
    unknown = tuple(part.name for part in parts if part.size is None)
    return {op.to: Length(unknown, more=sum(part.size or 0 for part in parts))} if unknown else {}


@to_step.rule(Concatenate)
def _concatenate_step(op: Concatenate, node: Node, step: Stepper) -> tuple[Value, ...]:
    raise step.refuse(f"{op.to} has other positions than {step.time}, one for each token", "shift_positions keeps them")


def _renamed(type: Type, axis: str, to: str) -> Type:
    return Type(type.dtype, tuple(Axis(to, each.size) if each.name == axis else each for each in type.axes))


@to_torch.rule(Concatenate)
def _concatenate_torch(op: Concatenate, node: Node, torch: TorchNamespace) -> Callable[..., Any]:
    a, b = (value.type for value in node.inputs[:2])
    result = node.outputs[0].type
    index = result.names.index(op.to)
    aligners = [aligner(_renamed(type, axis, op.to), result) for type, axis in ((a, op.first), (b, op.second))]
    namespace = torch.torch

    def apply(a: Any, b: Any, *masks: Any) -> Any:
        aligned = (align(part) for align, part in zip(aligners, (a, b), strict=True))
        parts = [part[(None,) * (len(result.axes) - part.dim())] for part in aligned]
        largest = [max(sizes) for sizes in zip(*(part.shape for part in parts), strict=True)]
        whole = [part.expand(*largest[:index], part.shape[index], *largest[index + 1 :]) for part in parts]
        joined = namespace.cat(whole, index)
        if not masks:
            return joined
        before, after = (part.shape[index] for part in parts)
        length = masks[0].sum(1, keepdim=True)
        places = namespace.arange(before + after, device=joined.device)
        moved = namespace.where(places < length + after, places - length + before, places - after)
        order = namespace.where(places < length, places, moved)
        return gathered(torch, joined, index, order)

    return apply


@to_onnx.rule(Concatenate)
def _concatenate_onnx(op: Concatenate, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    result, sizes = node.outputs[0].type, list[str]()
    index = result.names.index(op.to)
    parts: list[str] = []
    for name, value, axis in zip(inputs, node.inputs, (op.first, op.second), strict=False):
        found, own = _renamed(value.type, axis, op.to), value.type.axis(axis)
        part = emit_aligned(onnx, name, found, result)
        if len(found.axes) < len(result.axes):
            part = onnx.op("Expand", part, onnx.shape([own if each.name == op.to else each for each in result.axes]))
        parts.append(part)
        sizes.append(onnx.merged((own,)))
    joined = onnx.op("Concat", *parts, axis=index)
    if len(inputs) == 2:
        return (joined,)
    order = onnx.once(f"packed {inputs[2]} {op.second}", lambda: _packed(onnx, inputs[2], *sizes))
    return (emit_gathered(onnx, joined, result, op.to, order),)


def _packed(onnx: OnnxEmitter, mask: str, before: str, after: str) -> str:
    """Write the index of each position of the result among those of both: int64 [batch, to]."""
    count = onnx.op("Add", before, after)
    places = onnx.op("Range", 0, onnx.op("Squeeze", count), 1)
    length = onnx.op("ReduceSum", onnx.op("Cast", mask, to=7), [1], keepdims=1)
    second = onnx.op("Add", onnx.op("Sub", places, length), before)
    padding = onnx.op("Sub", places, after)
    moved = onnx.op("Where", onnx.op("Less", places, onnx.op("Add", length, after)), second, padding)
    return onnx.op("Where", onnx.op("Less", places, length), places, moved)


@dataclass(frozen=True)
class ShiftPositions(Op):
    """`y[t] = x[t - by]` along `axis`, zero where there is no such position; `by` may be negative."""

    kind: ClassVar[str] = "shift_positions"
    axis: str
    by: int


@types.rule(ShiftPositions)
def _shift_types(op: ShiftPositions, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    (x,) = inputs
    require(op.axis in x.names, f"{x} has no axis {op.axis}")
    return (x,)


@mixes.rule(ShiftPositions)
def _shift_mixes(op: ShiftPositions, node: Node) -> frozenset[str]:
    return frozenset({op.axis})


@hidden.rule(ShiftPositions)
def _shift_hidden(op: ShiftPositions, node: Node, inputs: tuple[Hidden, ...], keys: frozenset[str]) -> Hidden:
    """Keys that come after an earlier query come after later ones, too."""
    kept = op.by > 0 and op.axis not in keys and inputs[0] == "zero"
    return "zero" if kept else mixture(*inputs)


@to_step.rule(ShiftPositions)
def _shift_step(op: ShiftPositions, node: Node, step: Stepper) -> tuple[Value, ...]:
    """The state holds the last `by` vectors, oldest first; initially zero."""
    if op.by < 0:
        raise step.refuse("every position sees one after it", "shift by a positive number")
    (x,), name = node.inputs, node.outputs[0].name
    recent = f"recent.{op.by}"
    past = step.state(f"{name}/recent", x.type.replaced(step.time, Axis(recent, op.by)))
    step.carry(past, step.emit(Append(step.time, recent, recent, op.by), (past, step.value(x)), f"{name}/seen"))
    if not step.several:
        return (step.emit(Slice(recent, step.time, count=1), (past,), name),)
    seen = step.emit(Append(step.time, recent, f"{name}/all"), (past, step.value(x)), f"{name}/all")
    return (step.emit(Slice(f"{name}/all", step.time, end=op.by, exact=True), (seen,), name),)


@to_torch.rule(ShiftPositions)
def _shift_torch(op: ShiftPositions, node: Node, torch: TorchNamespace) -> Callable[[Any], Any]:
    names, pad = node.inputs[0].type.names, torch.functional.pad
    pads = [0, 0] * (len(names) - 1 - names.index(op.axis)) + [max(op.by, 0), max(-op.by, 0)]
    index, start = names.index(op.axis), max(-op.by, 0)
    return lambda x: pad(x, pads).narrow(index, start, x.shape[index])


@to_onnx.rule(ShiftPositions)
def _shift_onnx(op: ShiftPositions, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    x, (name,) = node.inputs[0].type, inputs
    index, missing = x.names.index(op.axis), zeros(onnx, x, op.axis, abs(op.by))
    if op.by > 0:
        return (onnx.op("Slice", onnx.op("Concat", missing, name, axis=index), [0], [-op.by], [index]),)
    return (onnx.op("Slice", onnx.op("Concat", name, missing, axis=index), [-op.by], [2**31], [index]),)


@cost.rule(ShiftPositions)
def _shift_cost(op: ShiftPositions, node: Node) -> Cost:
    by = abs(op.by)
    seen = Reach(op.axis, "local", max(op.by, 0), max(-op.by, 0), Axis("k", by + 1), by)
    return replace(per_result(0)(op, node), reach=seen)


cost.rule(Concatenate)(per_result(0))


@primitive("concatenate", by="value", to_positions=optional("name"))
def _concatenate(site: Site, x: Value, by: Value, to_positions: str | None = None) -> Value:
    """The positions of `x`, then those of `by`. In a batch, they follow the real positions of each example.

    The new axis is called `FIRST_and_SECOND`, after the axes of both, or `to_positions`.
    """
    return _joined(site, x, site.positions(x), by, site.positions(by), to_positions)


@primitive("prepend", part="block", to_positions=optional("name"))
def _prepend(site: Site, x: Value, part: Applied, to_positions: str | None = None) -> Value:
    """What a block returns, such as `weight: d_model`, and then the positions of `x`.

    It is one vector, or a value with one axis that `x` has not: `weight: [slots, d_model]`.
    """
    start, axis = _added(site, x, part(x), "start")
    return _joined(site, start, axis, x, site.positions(x), to_positions)


@primitive("append", part="block", to_positions=optional("name"))
def _append(site: Site, x: Value, part: Applied, to_positions: str | None = None) -> Value:
    """The positions of `x`, and then what a block returns, as for `prepend`."""
    end, axis = _added(site, x, part(x), "end")
    return _joined(site, x, site.positions(x), end, axis, to_positions)


def _added(site: Site, x: Value, part: Value, name: str) -> tuple[Value, str]:
    """A value with an axis of positions, and that axis."""
    found = [axis.name for axis in part.type.axes if axis not in x.type.axes or site.holds_positions(axis.name)]
    last = site.last(x)
    if last not in part.type.axes:
        raise site.refuse(f"needs a value along {last}, found {part.name}: {part.type}")
    if len(found) > 1:
        raise site.refuse(f"needs a value with one axis that {x.type} has not, found {part.name}: {part.type}")
    return (part, found[0]) if found else (site.emit(Expand(name), part, name=name), name)


def _joined(site: Site, a: Value, first: str, b: Value, second: str, name: str | None) -> Value:
    axis = site.joined(a.type.axis(first), b.type.axis(second), name)
    mask = site.padding(first)
    packed = () if mask is None else (mask,)
    return site.emit(Concatenate(first, second, axis.name), a, b, *packed)


@primitive("shift_positions", by="number", over=optional("name"))
def _shift_positions(site: Site, x: Value, by: float, over: str = "positions") -> Value:
    """Each position gets the vector of the position `by` before it, and the first ones zeros; `by` may be negative."""
    if by != int(by) or by == 0 or abs(by) > MAX_REACH:
        raise site.refuse_number("by", by, "'by' must be a whole number that is not 0")
    axis = site.axis(x, over).name
    x = x if by > 0 else without_padding(site, x, (axis,))
    return site.emit(ShiftPositions(axis, int(by)), x)
