"""Convolution along one or several axes: along positions centered or causal, and with strides."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import prod, sqrt
from typing import Any, ClassVar

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.cost import ZERO, Cost, Reach, count, moving
from xformc.compiler.graph.graph import Initial, Node, Op, Value
from xformc.compiler.graph.lengths import Length
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
from xformc.compiler.ops.keys import Append
from xformc.compiler.ops.layout import Expand, aligner, emit_aligned
from xformc.compiler.ops.masks import without_padding
from xformc.compiler.ops.slicing import Slice
from xformc.compiler.ops.windows import Ends, Moving, Wanted, Windows, make_windows, window_lengths

CHANNELS = "with 'to', the value is one channel"


@dataclass(frozen=True)
class Convolution(Op):
    """`y[t, out] = sum over i, in of weight[out, in, i] * x[t * stride + i * dilation - before, in] + bias[out]`.

    This is for one axis of positions t; there may be several `axes`, which become the axes `to`. Inputs: x with `axes`
    and then the channels last, weight [out, in, a width for each axis], optionally a bias [out]. `before` and `after`
    are the numbers of zeros padded at the ends of x. With `groups`, the channels are in as many equal parts, and each
    part of the result sees one of them: the weight's axis in is as much smaller. If every group is one channel, the
    weight has no axis in (a depthwise convolution).
    """

    kind: ClassVar[str] = "convolution"
    axes: tuple[str, ...]
    to: tuple[str, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    groups: int

    def reach(self, weight: Type) -> tuple[int, ...]:
        """The number of elements of each axis that it sees besides one."""
        widths = weight.axes[len(weight.axes) - len(self.axes) :]
        return tuple(((axis.size or 1) - 1) * apart for axis, apart in zip(widths, self.dilation, strict=True))


@types.rule(Convolution)
def _convolution_types(op: Convolution, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    x, weight = inputs[:2]
    require(set(op.axes) <= set(x.names[:-1]), f"{x} has no axes {', '.join(op.axes)} before its last")
    channels, parts = x.axes[-1].size, weight.axes[1 : len(weight.axes) - len(op.axes)]
    require(len(parts) < 2, f"the weight {weight} must be [out, in, width], or [in, width]")
    inside = parts[0].size if parts else 1
    require(channels == (inside or 0) * op.groups, f"the weight {weight} does not fit {x.axes[-1]}")
    require(weight.axes[0].size == channels or bool(parts), f"the weight {weight} does not fit {x.axes[-1]}")
    require((weight.axes[0].size or 0) % op.groups == 0, f"{weight.axes[0]} cannot be in {op.groups} groups")
    require(all(bias.axes == weight.axes[:1] for bias in inputs[2:]), f"the bias does not fit {weight.axes[0]}")
    made = {axis: _made(op, index, x, weight) for index, axis in enumerate(op.axes)}
    return (Type(x.dtype, (*(made.get(axis.name, axis) for axis in x.axes[:-1]), weight.axes[0])),)


def _made(op: Convolution, index: int, x: Type, weight: Type) -> Axis:
    """The axis of the result for one of the axes."""
    size, to, lost = x.axis(op.axes[index]).size, op.to[index], op.reach(weight)[index]
    lost -= op.before[index] + op.after[index]
    if size is None:
        require(lost == 0 or to != op.axes[index], f"{to} would be shorter by {lost}, but has no fixed size")
        require(op.stride[index] == 1 or to != op.axes[index], f"with a stride, {to} cannot keep its name")
        return Axis(to)
    require(size > lost, f"{op.axes[index]}={size} is shorter than the convolution")
    return Axis(to, (size - lost - 1) // op.stride[index] + 1)


@mixes.rule(Convolution)
def _convolution_mixes(op: Convolution, node: Node) -> frozenset[str]:
    x, weight = (value.type for value in node.inputs[:2])
    moved = {
        name
        for axis, to, stride, reach in zip(op.axes, op.to, op.stride, op.reach(weight), strict=True)
        if (axis, 1, 0) != (to, stride, reach)
        for name in (axis, to)
    }
    return frozenset({x.names[-1], *moved})


@lengths.rule(Convolution)
def _convolution_lengths(op: Convolution, node: Node) -> Mapping[str, Length]:
    return window_lengths(op, node.inputs[0].type)


@hidden.rule(Convolution)
def _convolution_hidden(op: Convolution, node: Node, inputs: tuple[Hidden, ...], keys: frozenset[str]) -> Hidden:
    """Zeros at later keys add nothing; a result there may see earlier keys, or a bias."""
    ahead = any(after for axis, after in zip(op.axes, op.after, strict=True) if axis not in keys)
    if inputs[0] != "zero" or ahead or keys.intersection(op.axes).difference(op.to):
        return mixture(*inputs)
    along = {axis for axis, reach in zip(op.axes, op.reach(node.inputs[1].type), strict=True) if reach}
    return "unread" if keys.intersection(along) or len(node.inputs) > 2 else "zero"


@to_step.rule(Convolution)
def _convolution_step(op: Convolution, node: Node, step: Stepper) -> tuple[Value, ...]:
    """The state holds the last vectors that the convolution sees, oldest first; initially zero."""
    at = op.axes.index(step.time)
    if op.stride[at] > 1:
        raise step.refuse(f"a convolution has a result at every {op.stride[at]}. position only", "remove its stride")
    if op.after[at]:
        raise step.refuse("a convolution sees the positions after its own", "write causal: true")
    x, name = node.inputs[0], node.outputs[0].name
    count = op.reach(node.inputs[1].type)[at] + 1
    recent = f"recent.{count}"
    past = step.state(f"{name}/recent", x.type.replaced(step.time, Axis(recent, count)))
    seen = step.emit(Append(step.time, recent, step.time, count), (past, step.value(x)), f"{name}/seen")
    step.carry(past, seen)
    if step.several:
        seen = step.emit(Append(step.time, recent, f"{name}/all"), (past, step.value(x)), f"{name}/all")
        seen = step.emit(Slice(f"{name}/all", f"{name}/seen", 1, exact=True), (seen,), f"{name}/seen")
        op = replace(op, axes=(*op.axes[:at], f"{name}/seen", *op.axes[at + 1 :]))
    inputs = (seen, *(step.value(value) for value in node.inputs[1:]))
    return (step.emit(replace(op, before=(*op.before[:at], 0, *op.before[at + 1 :])), inputs, name),)


@dataclass(frozen=True)
class _Plan:
    """The axis orders that make it a batch of [rows, channels, positions], and the sizes of the weight for that."""

    x: Type
    result: Type
    weight: tuple[int, ...]


def channels_first(op: Moving, node: Node) -> _Plan:
    """How a convolution of whatever kind sees its operands."""
    x, result, weight = node.inputs[0].type, node.outputs[0].type, node.inputs[1].type
    rows = tuple(axis for axis in x.axes[:-1] if axis.name not in op.axes)
    out, *inside = weight.sizes()[: len(weight.axes) - len(op.axes)]
    return _Plan(
        Type(x.dtype, (*rows, x.axes[-1], *(x.axis(name) for name in op.axes))),
        Type(x.dtype, (*rows, result.axes[-1], *(result.axis(name) for name in op.to))),
        (out, *(inside or (1,)), *weight.sizes()[len(weight.axes) - len(op.axes) :]),
    )


@to_torch.rule(Convolution)
def _convolution_torch(op: Convolution, node: Node, torch: TorchNamespace) -> Callable[..., Any]:
    plan, rank = channels_first(op, node), len(op.axes) + 1
    align, restore = aligner(node.inputs[0].type, plan.x), aligner(plan.result, node.outputs[0].type)
    pads = [size for ends in zip(op.before[::-1], op.after[::-1], strict=True) for size in ends]
    pad, convolve = torch.functional.pad, getattr(torch.functional, f"conv{len(op.axes)}d")

    def apply(x: Any, weight: Any, bias: Any = None) -> Any:
        x = align(x)
        rows = pad(x.reshape(-1, *x.shape[-rank:]), pads)
        weight = weight.reshape(plan.weight)
        result = convolve(rows, weight, bias, stride=op.stride, dilation=op.dilation, groups=op.groups)
        return restore(result.reshape(*x.shape[:-rank], *result.shape[1:]))

    return apply


@to_onnx.rule(Convolution)
def _convolution_onnx(op: Convolution, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    plan, rank = channels_first(op, node), len(op.axes) + 1
    rows = plan.x.axes[:-rank]
    x = emit_aligned(onnx, inputs[0], node.inputs[0].type, plan.x)
    if len(rows) != 1:
        x = onnx.op("Reshape", x, onnx.merged(rows, *((axis,) for axis in plan.x.axes[-rank:])))
    operands = (x, onnx.flat(inputs[1], *plan.weight), *inputs[2:])
    pads = [*op.before, *op.after]
    result = onnx.op("Conv", *operands, pads=pads, dilations=op.dilation, strides=op.stride, group=op.groups)
    if len(rows) != 1:
        inner = onnx.op("Shape", result, start=1)
        result = onnx.op("Reshape", result, onnx.op("Concat", onnx.shape(rows), inner, axis=0) if rows else inner)
    return (emit_aligned(onnx, result, plan.result, node.outputs[0].type),)


@cost.rule(Convolution)
def _convolution_cost(op: Convolution, node: Node) -> Cost:
    """One multiply-add per weight and result; the width is the paper's k."""
    weight, results = node.inputs[1].type, count(node.outputs[0].type.axes)
    first, *others = channels_first(op, node).weight[2:]
    width = Axis("k", first)
    inner = count((*weight.axes[1 : len(weight.axes) - len(op.axes)], width)) * prod(others)
    done = moving(node, results * inner * 2, results if len(node.inputs) == 3 else ZERO)
    reach = op.reach(weight)[0]
    seen = Reach(op.axes[0], "local", op.before[0], reach - op.before[0], width, op.dilation[0])
    return replace(done, reach=seen) if reach else done


@primitive(
    "convolution",
    width="numbers",
    to=optional("axis"),
    stride=optional("numbers"),
    over=optional("names"),
    padding=optional("word"),
    causal=optional("flag"),
    dilation=optional("numbers"),
    groups=optional("number"),
    depthwise=optional("flag"),
    to_positions=optional("names"),
    bias=optional("flag"),
)
def _convolution(  # noqa: PLR0913, PLR0917 (called by name)
    site: Site,
    x: Value,
    width: tuple[float, ...],
    to: Axis | None = None,
    stride: tuple[float, ...] = (1,),
    over: tuple[str, ...] = ("positions",),
    padding: str = "same",
    causal: bool = False,
    dilation: tuple[float, ...] = (1,),
    groups: float = 1,
    depthwise: bool = False,
    to_positions: tuple[str, ...] = (),
    bias: bool = True,
) -> Value:
    """A convolution of `width` positions, `dilation` apart, centered on each position or ending at it (`causal`).

    It maps the last axis to the axis `to` (default: the last axis); a value whose last axis is one of `over`, or of
    keys, has one channel. Vectors beyond the ends and at padding are zero; with `padding: none`, the result has only
    positions that see no such vectors, but at least one. An even width has one more position before than after.
    `stride: 2` keeps every second position: `frames` becomes `frames_by_2`, or `to_positions`. `over` lists other axes,
    such as `[rows, columns]`; then `width` and other numbers may be lists. With `groups`, each part of the result sees
    a part of the channels; `depthwise`: each channel is convolved separately. Weights are initialized Glorot uniform.
    """
    axes = tuple(site.axis(x, name) for name in over)
    if to is not None and (x.type.axes[-1] in axes or x.type.axes[-1].size is None):
        x = site.emit(Expand("channel"), x, name="channel")
    channels = x.type.axes[-1]
    if channels in axes:
        raise site.refuse(f"needs a last axis of channels besides {channels.name}, found {x.name}: {x.type}", CHANNELS)
    windows = make_windows(site, axes, Wanted(width, stride, dilation, _ends(site, padding, causal), to_positions))
    parts = _groups(site, groups, depthwise, channels, to)
    if not causal:
        x = without_padding(site, x, windows.axes)
    weight = _weight_axes(windows, channels, to or channels, parts, depthwise)
    inputs = [x, site.parameter("weight", weight, _initial(weight, len(axes)), outputs=1)]
    if bias:
        inputs.append(site.parameter("bias", weight[:1], Initial("constant", 0.0)))
    w = windows
    return site.emit(Convolution(w.axes, w.to, w.stride, w.dilation, w.before, w.after, parts), *inputs)


def _ends(site: Site, padding: str, causal: bool) -> Ends:
    if padding not in ("same", "none"):
        raise site.refuse(f"'padding' must be same or none, found '{padding[:40]}'")
    if causal and padding == "none":
        raise site.refuse("a causal convolution is padded before the first position", "remove 'padding'")
    return "causal" if causal else padding


def _groups(site: Site, groups: float, depthwise: bool, channels: Axis, to: Axis | None) -> int:
    if depthwise and to not in (None, channels):
        raise site.refuse(f"a depthwise convolution keeps {channels}, so 'to' cannot be {to}", "remove 'to'")
    if depthwise and groups != 1:
        raise site.refuse("a depthwise convolution has a group for each channel", "remove 'groups'")
    if depthwise:
        return channels.size or 1
    for axis in (channels, to or channels):
        if groups != int(groups) or groups < 1 or (axis.size or 0) % groups:
            raise site.refuse_number("groups", groups, f"the number of groups must divide {axis}")
    return int(groups)


def _weight_axes(windows: Windows, channels: Axis, to: Axis, groups: int, depthwise: bool) -> tuple[Axis, ...]:
    """The axes out, in and a width for each axis; depthwise without in."""
    names = ("width",) if len(windows.axes) == 1 else tuple(f"{name}_width" for name in windows.axes)
    widths = tuple(Axis(*each) for each in zip(names, windows.width, strict=True))
    if depthwise:
        return (to, *widths)
    inside = channels if groups == 1 else Axis(f"{channels.name}_of_group", (channels.size or 1) // groups)
    return (to, inside, *widths)


def _initial(axes: tuple[Axis, ...], widths: int) -> Initial:
    """Glorot uniform, with fan-in and fan-out counted over all widths."""
    sizes = [axis.size or 1 for axis in axes]
    *outer, fields = *sizes[:-widths], prod(sizes[-widths:])
    return Initial("uniform", sqrt(6 / (fields * (sum(outer) if len(outer) == 2 else 2))))
