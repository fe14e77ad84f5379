"""The transposed convolution, which makes more positions."""

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
    OnnxEmitter,
    TorchNamespace,
    cost,
    lengths,
    mixes,
    require,
    to_onnx,
    to_step,
    to_torch,
    types,
)
from xformc.compiler.ops.convolution import CHANNELS, channels_first
from xformc.compiler.ops.layout import Expand, aligner, emit_aligned
from xformc.compiler.ops.masks import without_padding
from xformc.compiler.ops.upsampling import fitted, longer, refused
from xformc.compiler.ops.windows import MAX_REACH, whole_numbers


@dataclass(frozen=True)
class TransposedConvolution(Op):
    """`y[t * stride + i - before, out] += weight[out, in, i] * x[t, in]` over all t, i and in, plus bias[out].

    This is for one axis of positions t; there may be several `axes`, which become the axes `to`. It has `stride` times
    as many elements. Inputs: x with `axes` and then the channels last, weight [out, in, a width for each axis],
    optionally a bias [out].
    """

    kind: ClassVar[str] = "transposed_convolution"
    axes: tuple[str, ...]
    to: tuple[str, ...]
    stride: tuple[int, ...]
    before: tuple[int, ...]


@types.rule(TransposedConvolution)
def _transposed_types(op: TransposedConvolution, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    x, weight = inputs[:2]
    require(set(op.axes) <= set(x.names[:-1]), f"{x} has no axes {', '.join(op.axes)} before its last")
    fits = len(weight.axes) == 2 + len(op.axes) and weight.axes[1].size == x.axes[-1].size
    require(fits, f"the weight {weight} does not fit {x.axes[-1]}")
    for width, stride, before in zip(weight.axes[2:], op.stride, op.before, strict=True):
        spare = (width.size or 0) - stride
        require(0 <= before <= spare, f"{width} must be at least the stride, {stride}, and {before} more")
    require(all(bias.axes == weight.axes[:1] for bias in inputs[2:]), f"the bias does not fit {weight.axes[0]}")
    made = {axis: longer(x.axis(axis), to, by) for axis, to, by in zip(op.axes, op.to, op.stride, strict=True)}
    return (Type(x.dtype, (*(made.get(axis.name, axis) for axis in x.axes[:-1]), weight.axes[0])),)


@mixes.rule(TransposedConvolution)
def _transposed_mixes(op: TransposedConvolution, node: Node) -> frozenset[str]:
    return frozenset({node.inputs[0].type.names[-1], *op.axes, *op.to})


@lengths.rule(TransposedConvolution)
def _transposed_lengths(op: TransposedConvolution, node: Node) -> Mapping[str, Length]:
    made = zip(op.axes, op.to, op.stride, strict=True)
    return {to: Length((axis,), times=by) for axis, to, by in made if node.outputs[0].type.axis(to).size is None}


def _after(op: TransposedConvolution, widths: tuple[int, ...]) -> list[int]:
    """How many elements are cut at the end of each axis."""
    return [width - by - first for width, by, first in zip(widths, op.stride, op.before, strict=True)]


to_step.rule(TransposedConvolution)(refused)


@to_torch.rule(TransposedConvolution)
def _transposed_torch(op: TransposedConvolution, node: Node, torch: TorchNamespace) -> Callable[..., Any]:
    plan, rank = channels_first(op, node), len(op.axes) + 1
    align, restore = aligner(node.inputs[0].type, plan.x), aligner(plan.result, node.outputs[0].type)
    ends = zip(op.before, _after(op, plan.weight[2:]), strict=True)
    kept = (..., *(slice(first, -last or None) for first, last in ends))
    convolve = getattr(torch.functional, f"conv_transpose{len(op.axes)}d")

    def apply(x: Any, weight: Any, bias: Any = None) -> Any:
        x = align(x)
        rows = x.reshape(-1, *x.shape[-rank:])
        result = convolve(rows, weight.transpose(0, 1), bias, stride=op.stride)[kept]
        return restore(result.reshape(*x.shape[:-rank], *result.shape[1:]))

    return apply


@to_onnx.rule(TransposedConvolution)
def _transposed_onnx(
    op: TransposedConvolution, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]
) -> tuple[str, ...]:
    plan, rank = channels_first(op, node), len(op.axes) + 1
    rows = plan.x.axes[:-rank]
    x = emit_aligned(onnx, inputs[0], node.inputs[0].type, plan.x)
    if len(rows) != 1:
        x = onnx.op("Reshape", x, onnx.merged(rows, *((axis,) for axis in plan.x.axes[-rank:])))
    weight = onnx.op("Transpose", onnx.flat(inputs[1], *plan.weight), perm=[1, 0, *range(2, rank + 1)])
    pads = [*op.before, *_after(op, plan.weight[2:])]
    result = onnx.op("ConvTranspose", x, weight, *inputs[2:], pads=pads, strides=op.stride)
    if len(rows) != 1:
        inner = onnx.op("Shape", result, start=1)
        result = onnx.op("Reshape", result, onnx.op("Concat", onnx.shape(rows), inner, axis=0) if rows else inner)
    return (emit_aligned(onnx, result, plan.result, node.outputs[0].type),)


@cost.rule(TransposedConvolution)
def _transposed_cost(op: TransposedConvolution, node: Node) -> Cost:
    """One multiply-add per element and weight of its channel; the width is the paper's k."""
    x, weight = (value.type for value in node.inputs[:2])
    width = Axis("k", weight.axes[2].size)
    products = count((*x.axes, weight.axes[0], width)) * prod(axis.size or 1 for axis in weight.axes[3:]) * 2
    done = moving(node, products, count(node.outputs[0].type.axes) if len(node.inputs) == 3 else ZERO)
    reach = ((width.size or 1) - 1) // op.stride[0]
    seen = Reach(op.axes[0], "local", (reach + 1) // 2, reach // 2, width)
    return replace(done, reach=seen) if reach else done


@primitive(
    "transposed_convolution",
    width="numbers",
    stride="numbers",
    to=optional("axis"),
    over=optional("names"),
    to_positions=optional("names"),
    bias=optional("flag"),
)
def _transposed_convolution(  # noqa: PLR0917 (called by name)
    site: Site,
    x: Value,
    width: tuple[float, ...],
    stride: tuple[float, ...],
    to: Axis | None = None,
    over: tuple[str, ...] = ("positions",),
    to_positions: tuple[str, ...] = (),
    bias: bool = True,
) -> Value:
    """A transposed convolution: each position adds to `width` positions of the result, which has
    `stride` times as many.

    It maps the last axis to the axis `to` (default: the last axis). `frames` becomes `frames_times_2`, or
    `to_positions`, and `frames_by_2` becomes `frames` again. `over` lists other axes; then `width` and `stride` may be
    lists. The width is at least the stride. Weights are initialized Glorot uniform.
    """
    axes = tuple(site.axis(x, name) for name in over)
    if to is not None and x.type.axes[-1] in axes:
        x = site.emit(Expand("channel"), x, name="channel")
    channels = x.type.axes[-1]
    if channels in axes:
        raise site.refuse(f"needs a last axis of channels besides {channels.name}, found {x.name}: {x.type}", CHANNELS)
    if to_positions and len(to_positions) != len(axes):
        raise site.refuse(f"'to_positions' names {len(to_positions)} axes, but the windows move along {len(axes)}")
    strides, widths = (
        whole_numbers(site, name, given, len(axes)) for name, given in (("stride", stride), ("width", width))
    )
    short = next((size for size, by in zip(widths, strides, strict=True) if size < by or size > MAX_REACH), None)
    if short is not None:
        limits = f"from the stride to {MAX_REACH:,}"
        raise site.refuse_number("width", short, f"the width of a transposed convolution must be {limits}")
    names = to_positions or (None,) * len(axes)
    made = tuple(site.longer(*each) for each in zip(axes, strides, names, strict=True))
    x = without_padding(site, x, tuple(axis.name for axis in axes))
    spaces = ("width",) if len(axes) == 1 else tuple(f"{axis.name}_width" for axis in axes)
    weight = (to or channels, channels, *(Axis(*each) for each in zip(spaces, widths, strict=True)))
    fan = prod(widths) / prod(strides) * (weight[0].size or 1) + prod(widths) / prod(strides) * (channels.size or 1)
    inputs = [x, site.parameter("weight", weight, Initial("uniform", sqrt(6 / fan)), outputs=1)]
    if bias:
        inputs.append(site.parameter("bias", weight[:1], Initial("constant", 0.0)))
    before = tuple((size - by) // 2 for size, by in zip(widths, strides, strict=True))
    op = TransposedConvolution(tuple(axis.name for axis in axes), tuple(axis.name for axis in made), strides, before)
    result = site.emit(op, *inputs)
    for axis in made:
        result = fitted(site, result, axis)
    return result
