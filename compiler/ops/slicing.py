"""Parts of an axis: elements at equal distances, from one element to another."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.cost import per_result
from xformc.compiler.graph.graph import Node, Op, Value
from xformc.compiler.graph.lengths import Length, divide_up
from xformc.compiler.graph.primitives import Site, optional, primitive
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
from xformc.compiler.ops.gathering import reorder
from xformc.compiler.ops.masks import without_padding
from xformc.compiler.ops.windows import MAX_REACH


@dataclass(frozen=True)
class Slice(Op):
    """Every `step`-th element along `axis` but the first `start` and the last `end`: `y[i] = x[start + i * step]`.

    With a `count`, only as many. The new axis is `to`. If the size of `axis` is known only at run time and the slice is
    not `exact`, the result has size / step elements, rounded up, or `count`: those beyond the end of x are zero, or
    false. So it is never empty.

    `keep_first`: for a mask, `y[0] = x[0]`, so that an example that is too short has one position.
    """

    kind: ClassVar[str] = "slice"
    axis: str
    to: str
    start: int = 0
    end: int = 0
    step: int = 1
    count: int | None = None
    exact: bool = False
    keep_first: bool = False


@types.rule(Slice)
def _slice_types(op: Slice, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    (x,) = inputs
    require(op.axis in x.names, f"{x} has no axis {op.axis}")
    size = x.axis(op.axis).size
    require(not op.exact or op.step == 1, "an exact slice has no step")
    require(op.exact or size is not None or op.end == 0, f"the end of {op.axis} is known only at run time")
    left = None if size is None else divide_up(size - op.start - op.end, op.step)
    require(left is None or left >= (op.count or 1), f"{op.axis}={size} has too few elements")
    part = Axis(op.to, op.count or left)
    return (Type(x.dtype, tuple(part if axis.name == op.axis else axis for axis in x.axes)),)


@mixes.rule(Slice)
def _slice_mixes(op: Slice, node: Node) -> frozenset[str]:
    return frozenset({op.axis, op.to})


@hidden.rule(Slice)
def _slice_hidden(op: Slice, node: Node, inputs: tuple[Hidden, ...], keys: frozenset[str]) -> Hidden:
    """Of an axis of unknown size, elements beyond its end are zero."""
    known = node.inputs[0].type.axis(op.axis).size is not None
    return inputs[0] if known else mixture(*inputs)


@lengths.rule(Slice)
def _slice_lengths(op: Slice, node: Node) -> Mapping[str, Length]:
    if node.outputs[0].type.axis(op.to).size is not None:
        return {}
    return {op.to: Length((op.axis,), op.step, -op.start - op.end if op.exact else 0)}


@to_step.rule(Slice)
def _slice_step(op: Slice, node: Node, step: Stepper) -> tuple[Value, ...]:
    raise step.refuse(f"{op.to} has other positions than {step.time}, one for each token", "shift_positions keeps them")


def _missing(op: Slice, node: Node) -> int:
    """The number of elements to add at the end of x."""
    if op.exact or node.inputs[0].type.axis(op.axis).size is not None:
        return 0
    return op.start if op.count is None else op.start + op.count * op.step


def _stop(op: Slice) -> int | None:
    """The end of the slice, counted from the end if negative; None for the end of x."""
    if op.count is not None:
        return op.start + op.count * op.step
    return -op.end or None


@to_torch.rule(Slice)
def _slice_torch(op: Slice, node: Node, torch: TorchNamespace) -> Callable[[Any], Any]:
    names, missing = node.inputs[0].type.names, _missing(op, node)
    index = names.index(op.axis)
    pads = [0, 0] * (len(names) - 1 - index) + [0, missing]
    picked = (slice(None),) * index + (slice(op.start, _stop(op), op.step),)
    pad, join = torch.functional.pad, torch.torch.cat

    def apply(x: Any) -> Any:
        part = (pad(x, pads) if missing else x)[picked]
        if not op.keep_first:
            return part
        return join((x.narrow(index, 0, 1), part.narrow(index, 1, part.shape[index] - 1)), index)

    return apply


@to_onnx.rule(Slice)
def _slice_onnx(op: Slice, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    x, missing = node.inputs[0].type, _missing(op, node)
    (name,), index = inputs, x.names.index(op.axis)
    if missing:
        name = onnx.op("Concat", name, zeros(onnx, x, op.axis, missing), axis=index)
    start = op.start + op.step if op.keep_first else op.start
    part = onnx.op("Slice", name, [start], [_stop(op) or 2**31], [index], [op.step])
    if not op.keep_first:
        return (part,)
    return (onnx.op("Concat", onnx.op("Slice", *inputs, [0], [1], [index]), part, axis=index),)


def zeros(onnx: OnnxEmitter, x: Type, axis: str, count: int) -> str:
    """Write zeros with the axes of x, but `count` along `axis`."""
    axes = tuple(Axis("zeros", count) if each.name == axis else each for each in x.axes)
    return onnx.op("Expand", {"bool": False, "int64": 0}.get(x.dtype, 0.0), onnx.shape(axes))


cost.rule(Slice)(per_result(0))


@primitive(
    "slice",
    on=None,
    start=optional("number"),
    stop=optional("number"),
    step=optional("number"),
    over=optional("name"),
    to_positions=optional("name"),
)
def _slice(  # noqa: PLR0917 (called by name)
    site: Site,
    x: Value,
    start: float = 0,
    stop: float | None = None,
    step: float = 1,
    over: str = "positions",
    to_positions: str | None = None,
) -> Value:
    """The positions from `start` up to but without `stop`, every `step`-th of them. Negative ones count from the end.

    A text that is too short has zeros there, and at least one position. `over` names another axis. What is left of
    concatenated axes without one of them is the other axis.
    """
    axis = site.axis(x, over)
    whole = {"start": start, "stop": 0 if stop is None else stop, "step": step}
    for name, value in whole.items():
        if value != int(value):
            raise site.refuse_number(name, value, f"'{name}' must be a whole number")
        if axis.size is None and abs(value) > MAX_REACH:
            raise site.refuse_number(name, value, f"'{name}' must be at most {MAX_REACH:,}")
    if step < 1:
        raise site.refuse_number("step", step, "'step' must be at least 1")
    if to_positions == axis.name:
        raise site.refuse(f"there is already an axis {axis.name}", "choose another 'to_positions', or leave it out")
    if axis.size is None and start < 0 and stop is None and step == 1:
        return reorder(site, x, "last", axis.name, -int(start), site.fewer(axis, 1, 0, to_positions, -int(start)).name)
    first, end, count = _bounds(site, axis, int(start), None if stop is None else int(stop), int(step))
    rest = None if count is not None or step > 1 else site.rest(axis, first, end)
    if rest is not None and to_positions is None:
        return site.emit(Slice(axis.name, rest.name, first, end, exact=axis.size is None), x)
    new = site.fewer(axis, int(step), first + end, to_positions, count)
    if new == axis:
        return x
    if first + end and x.type.dtype == "float32":
        x = without_padding(site, x, (axis.name,))
    return site.emit(Slice(axis.name, new.name, first, 0 if axis.size is None else end, int(step), count), x)


def _bounds(site: Site, axis: Axis, start: int, stop: int | None, step: int) -> tuple[int, int, int | None]:
    """The numbers of elements left out at the start and at the end, or else how many there are."""
    if axis.size is not None:
        first, last, _ = slice(start, stop).indices(axis.size)
        if last <= first:
            raise site.refuse(f"the axis {axis} has no elements from {start} to {last}")
        return first, axis.size - last, None
    if start < 0:
        hint = "only the last ones can be taken: no stop, no step"
        raise site.refuse(f"the size of {axis} is known only at run time, so the slice cannot start at its end", hint)
    if stop is None or stop < 0:
        return start, -(stop or 0), None
    if stop <= start:
        raise site.refuse(f"there are no positions from {start} to {stop}")
    return start, 0, divide_up(stop - start, step)


@primitive("cut", on=None, axis="name", into="axes", keep="axis")
def _cut(site: Site, x: Value, axis: str, into: tuple[Axis, ...], keep: Axis) -> Value:
    """The part `keep` of an axis that is cut into the axes `into`, one after the other: the inverse of `join`."""
    old = site.axis(x, axis)
    if site.holds_positions(old.name):
        raise site.refuse(f"{old.name} holds positions", "take some of them with slice")
    if sum(part.size or 0 for part in into) != old.size:
        listed = ", ".join(map(str, into))
        raise site.refuse(f"the axis {old} cannot be cut into {listed}", "their sum must be its size")
    if keep not in into:
        raise site.refuse(f"'keep' must be one of the parts, found {keep.name}")
    start = sum(part.size or 0 for part in into[: into.index(keep)])
    return site.emit(Slice(old.name, keep.name, start, count=keep.size), x)
