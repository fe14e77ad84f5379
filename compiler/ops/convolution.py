"""Convolution along positions, centered or causal."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any, ClassVar

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.cost import ZERO, Cost, Reach, count, moving
from xformc.compiler.graph.graph import Initial, Node, Op, Value
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
from xformc.compiler.ops.keys import Append
from xformc.compiler.ops.layout import aligner, emit_aligned
from xformc.compiler.ops.masks import zero_padding

MAX_REACH = 2**16
"""The maximum number of positions that a convolution may see besides its own."""


@dataclass(frozen=True)
class Convolution(Op):
    """`y[t, out] = sum over i, in of weight[out, in, i] * x[t + i * dilation - before, in] + bias[out]`.

    Inputs: x [.., axis, .., in], weight [out, in, width], optionally a bias [out]. `before` and `after` are the numbers
    of zeros padded at the ends of x; without them the result is shorter. `depthwise`: each channel is convolved
    separately, with weight [in, width].
    """

    kind: ClassVar[str] = "convolution"
    axis: str
    dilation: int
    before: int
    after: int
    depthwise: bool

    def reach(self, weight: Type) -> int:
        """The number of positions that it sees besides its own."""
        return ((weight.axes[-1].size or 1) - 1) * self.dilation


@types.rule(Convolution)
def _convolution_types(op: Convolution, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    x, weight = inputs[:2]
    require(op.axis in x.names[:-1], f"{x} has no axis {op.axis} before its last")
    channels = weight.axes[-2]
    require(len(weight.axes) == 3 - op.depthwise, f"the weight {weight} must be [out, in, width], or [in, width]")
    require(channels.size == x.axes[-1].size, f"the weight {weight} does not fit {x.axes[-1]}")
    require(all(bias.axes == weight.axes[:1] for bias in inputs[2:]), f"the bias does not fit {weight.axes[0]}")
    lost = op.reach(weight) - op.before - op.after
    size = x.axis(op.axis).size
    require(size is not None or lost == 0, f"{op.axis} would be shorter by {lost}, but has no fixed size")
    shorter = Axis(op.axis, None if size is None else size - lost)
    return (Type(x.dtype, (*(shorter if axis.name == op.axis else axis for axis in x.axes[:-1]), weight.axes[0])),)


@mixes.rule(Convolution)
def _convolution_mixes(op: Convolution, node: Node) -> frozenset[str]:
    x, weight = (value.type for value in node.inputs[:2])
    return frozenset({x.names[-1]} | ({op.axis} if op.reach(weight) else set()))


@to_step.rule(Convolution)
def _convolution_step(op: Convolution, node: Node, step: Stepper) -> tuple[Value, ...]:
    """The state holds the last vectors that the convolution sees, oldest first; initially zero."""
    if op.after:
        raise step.refuse("a convolution sees the positions after its own", "write causal: true")
    x, name = node.inputs[0], node.outputs[0].name
    count = op.reach(node.inputs[1].type) + 1
    recent = f"recent.{count}"
    axes = tuple(Axis(recent, count) if axis.name == step.time else axis for axis in x.type.axes)
    past = step.state(f"{name}/recent", Type(x.type.dtype, axes))
    seen = step.emit(Append(step.time, recent, step.time, count), (past, step.value(x)), f"{name}/seen")
    step.carry(past, seen)
    inputs = (seen, *(step.value(value) for value in node.inputs[1:]))
    return (step.emit(replace(op, before=0), inputs, name),)


@dataclass(frozen=True)
class _Plan:
    """The axis orders that make it a batch of [rows, channels, positions], and the sizes of the weight for that."""

    x: Type
    result: Type
    weight: tuple[int, int, int]
    groups: int


def _plan(op: Convolution, node: Node) -> _Plan:
    x, result, weight = node.inputs[0].type, node.outputs[0].type, node.inputs[1].type
    rows = tuple(axis for axis in x.axes[:-1] if axis.name != op.axis)
    *outer, width = weight.sizes()
    return _Plan(
        Type(x.dtype, (*rows, x.axes[-1], x.axis(op.axis))),
        Type(x.dtype, (*rows, result.axes[-1], result.axis(op.axis))),
        (outer[0], 1 if op.depthwise else outer[1], width),
        outer[0] if op.depthwise else 1,
    )


@to_torch.rule(Convolution)
def _convolution_torch(op: Convolution, node: Node, torch: TorchNamespace) -> Callable[..., Any]:
    plan = _plan(op, node)
    align, restore = aligner(node.inputs[0].type, plan.x), aligner(plan.result, node.outputs[0].type)
    pad, convolve = torch.functional.pad, torch.functional.conv1d

    def apply(x: Any, weight: Any, bias: Any = None) -> Any:
        x = align(x)
        rows = pad(x.reshape(-1, *x.shape[-2:]), (op.before, op.after))
        result = convolve(rows, weight.reshape(plan.weight), bias, dilation=op.dilation, groups=plan.groups)
        return restore(result.reshape(*x.shape[:-2], *result.shape[1:]))

    return apply


@to_onnx.rule(Convolution)
def _convolution_onnx(op: Convolution, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    plan = _plan(op, node)
    rows, (channels, positions) = plan.x.axes[:-2], plan.x.axes[-2:]
    x = emit_aligned(onnx, inputs[0], node.inputs[0].type, plan.x)
    if len(rows) != 1:
        x = onnx.op("Reshape", x, onnx.merged(rows, (channels,), (positions,)))
    operands = (x, onnx.flat(inputs[1], *plan.weight), *inputs[2:])
    pads = [op.before, op.after]
    result = onnx.op("Conv", *operands, pads=pads, dilations=[op.dilation], group=plan.groups)
    if len(rows) != 1:
        result = onnx.op("Reshape", result, onnx.shape(plan.result.axes))
    return (emit_aligned(onnx, result, plan.result, node.outputs[0].type),)


@cost.rule(Convolution)
def _convolution_cost(op: Convolution, node: Node) -> Cost:
    """One multiply-add per weight and result; the width is the paper's k."""
    weight, results = node.inputs[1].type, count(node.outputs[0].type.axes)
    width = Axis("k", weight.axes[-1].size)
    inner = count((width,) if op.depthwise else (weight.axes[1], width))
    done = moving(node, results * inner * 2, results if len(node.inputs) == 3 else ZERO)
    reach = op.reach(weight)
    seen = Reach(op.axis, "local", op.before, reach - op.before, width, op.dilation)
    return replace(done, reach=seen) if reach else done


@primitive(
    "convolution",
    width="number",
    to=optional("axis"),
    dilation=optional("number"),
    causal=optional("flag"),
    depthwise=optional("flag"),
    bias=optional("flag"),
)
def _convolution(  # noqa: PLR0917 (called by name)
    site: Site,
    x: Value,
    width: float,
    to: Axis | None = None,
    dilation: float = 1,
    causal: bool = False,
    depthwise: bool = False,
    bias: bool = True,
) -> Value:
    """A convolution of `width` positions, `dilation` apart, centered on each position or ending at it (`causal`).

    It maps the last axis to the axis `to` (default: the last axis). Vectors beyond the ends and at padding are zero.
    `depthwise`: each channel is convolved separately. Weights are initialized Glorot uniform.
    """
    positions, channels = site.positions(x), x.type.axes[-1]
    reach = _reach(site, width, dilation, causal)
    if channels.name == positions:
        raise site.refuse(f"needs a last axis of channels after the positions, found {x.name}: {x.type}")
    if depthwise and to not in (None, channels):
        raise site.refuse(f"a depthwise convolution keeps {channels}, so 'to' cannot be {to}", "remove 'to'")
    new = to or channels
    axes = (new, Axis("width", int(width))) if depthwise else (new, channels, Axis("width", int(width)))
    inputs = [x if causal else zero_padding(site, x, "real"), site.parameter("weight", axes, _initial(axes))]
    if bias:
        inputs.append(site.parameter("bias", (new,), Initial("constant", 0.0)))
    before, after = (reach, 0) if causal else (reach // 2, reach // 2)
    return site.emit(Convolution(positions, int(dilation), before, after, depthwise), *inputs)


def _reach(site: Site, width: float, dilation: float, causal: bool) -> int:
    if width != int(width) or width < 1:
        raise site.refuse_number("width", width, "the width of a convolution must be a positive whole number")
    if not causal and width % 2 == 0:
        raise site.refuse_number("width", width, "the width of a centered convolution must be odd")
    if dilation != int(dilation) or dilation < 1:
        raise site.refuse_number("dilation", dilation, "the dilation must be a positive whole number")
    reach = (int(width) - 1) * int(dilation)
    if reach > MAX_REACH:
        raise site.refuse(f"it would see {reach:,} positions besides its own; the limit is {MAX_REACH:,}")
    return reach


def _initial(axes: tuple[Axis, ...]) -> Initial:
    """Glorot uniform, with fan-in and fan-out counted over the whole width."""
    *outer, width = (axis.size or 1 for axis in axes)
    return Initial("uniform", sqrt(6 / (width * (sum(outer) if len(outer) == 2 else 2))))
