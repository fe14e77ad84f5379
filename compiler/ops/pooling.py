"""Pooling: the largest or the mean of the elements in windows."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any, ClassVar

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.cost import Cost, Reach, count, moving
from xformc.compiler.graph.graph import Node, Op, Value
from xformc.compiler.graph.lengths import Length
from xformc.compiler.graph.primitives import Site, optional, primitive
from xformc.compiler.graph.rules import (
    OnnxEmitter,
    Stepper,
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
from xformc.compiler.ops.layout import aligner, emit_aligned
from xformc.compiler.ops.masks import MASKED, spread
from xformc.compiler.ops.windows import Ends, Wanted, Windows, make_windows, window_lengths

LARGEST_WINDOW = 1024
"""The largest number of elements of a window along one axis."""


@dataclass(frozen=True)
class Pool(Op):
    """The max or mean of windows of `width` elements, at every `stride`-th element of each of the `axes`.

    Inputs: x, and optionally a mask with some of its axes. Only elements where it is true count, and those of x: there
    are `before` and `after` more at the ends. A window without elements is zero. The new axes are `to`.
    """

    kind: ClassVar[str] = "pool"
    function: str
    axes: tuple[str, ...]
    to: tuple[str, ...]
    width: tuple[int, ...]
    stride: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]


@types.rule(Pool)
def _pool_types(op: Pool, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    x = inputs[0]
    require(set(op.axes) <= set(x.names), f"{x} has no axes {', '.join(op.axes)}")
    for mask in inputs[1:]:
        require(
            mask.dtype == "bool" and set(mask.axes) <= set(x.axes), f"the mask {mask} must be bool, with axes of {x}"
        )
    made = {axis: _made(op, index, x) for index, axis in enumerate(op.axes)}
    return (Type(x.dtype, tuple(made.get(axis.name, axis) for axis in x.axes)),)


def _made(op: Pool, index: int, x: Type) -> Axis:
    """The axis of the result for one of the axes."""
    size, to = x.axis(op.axes[index]).size, op.to[index]
    lost = op.width[index] - 1 - op.before[index] - op.after[index]
    if size is None:
        require(lost == 0, f"{op.axes[index]} would be shorter by {lost}, but has no fixed size")
        require(op.stride[index] == 1 or to != op.axes[index], f"with a stride, {to} cannot keep its name")
        return Axis(to)
    require(size > lost, f"{op.axes[index]}={size} is shorter than a window")
    return Axis(to, (size - lost - 1) // op.stride[index] + 1)


@mixes.rule(Pool)
def _pool_mixes(op: Pool, node: Node) -> frozenset[str]:
    return frozenset({*op.axes, *op.to})


@lengths.rule(Pool)
def _pool_lengths(op: Pool, node: Node) -> Mapping[str, Length]:
    return window_lengths(op, node.inputs[0].type)


@to_step.rule(Pool)
def _pool_step(op: Pool, node: Node, step: Stepper) -> tuple[Value, ...]:
    raise step.refuse("a window holds several positions", "take a causal convolution")


def _ordered(axes: tuple[str, ...], type: Type) -> Type:
    """The type with these axes last."""
    return Type(type.dtype, (*type.without(axes), *(type.axis(name) for name in axes)))


@to_torch.rule(Pool)
def _pool_torch(op: Pool, node: Node, torch: TorchNamespace) -> Callable[..., Any]:
    x, rank, functional = node.inputs[0].type, len(op.axes), torch.functional
    ordered, made = _ordered(op.axes, x), _ordered(op.to, node.outputs[0].type)
    align, restore = aligner(x, ordered), aligner(made, node.outputs[0].type)
    pads = [size for ends in zip(op.before[::-1], op.after[::-1], strict=True) for size in ends]
    masked = [aligner(mask.type, Type("bool", ordered.axes)) for mask in node.inputs[1:]]
    largest, mean = (getattr(functional, f"{name}_pool{rank}d") for name in ("max", "avg"))

    def pooled(pool: Callable[..., Any], x: Any, fill: float) -> Any:
        rows = functional.pad(x.reshape(-1, 1, *x.shape[-rank:]), pads, value=fill)
        result = pool(rows, op.width, op.stride)
        return result.reshape(*x.shape[:-rank], *result.shape[2:])

    def apply(x: Any, *masks: Any) -> Any:
        x = align(x)
        real = torch.torch.ones_like(x, dtype=torch.torch.bool)
        for mask, match in zip(masks, masked, strict=True):
            real = real & match(mask)
        share = pooled(mean, real.to(x.dtype), 0.0)
        if op.function == "max":
            result = pooled(largest, x.masked_fill(~real, MASKED), MASKED).masked_fill(share == 0, 0.0)
        else:
            result = pooled(mean, x.masked_fill(~real, 0.0), 0.0) / share.masked_fill(share == 0, 1.0)
        return restore(result)

    return apply


@to_onnx.rule(Pool)
def _pool_onnx(op: Pool, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    x, rank = node.inputs[0].type, len(op.axes)
    ordered, made = _ordered(op.axes, x), _ordered(op.to, node.outputs[0].type)
    rows, inner = ordered.axes[:-rank], ordered.axes[-rank:]

    def pooled(kind: str, value: str, fill: float) -> str:
        value = onnx.op("Reshape", value, onnx.merged(rows, (Axis("one", 1),), *((axis,) for axis in inner)))
        value = onnx.op("Pad", value, [0, 0, *op.before, 0, 0, *op.after], fill)
        result = onnx.op(kind, value, kernel_shape=op.width, strides=op.stride)
        sizes = onnx.op("Shape", result, start=2)
        return onnx.op("Reshape", result, onnx.op("Concat", onnx.shape(rows), sizes, axis=0) if rows else sizes)

    name = emit_aligned(onnx, inputs[0], x, ordered)
    real = onnx.op("Expand", True, onnx.shape(ordered.axes))
    for mask, value in zip(inputs[1:], node.inputs[1:], strict=True):
        real = onnx.op("And", real, emit_aligned(onnx, mask, value.type, Type("bool", ordered.axes)))
    share = pooled("AveragePool", onnx.op("Cast", real, to=1), 0.0)
    some = onnx.op("Greater", share, 0.0)
    if op.function == "max":
        result = onnx.op("Where", some, pooled("MaxPool", onnx.op("Where", real, name, MASKED), MASKED), 0.0)
    else:
        total = pooled("AveragePool", onnx.op("Where", real, name, 0.0), 0.0)
        result = onnx.op("Div", total, onnx.op("Where", some, share, 1.0))
    return (emit_aligned(onnx, result, made, node.outputs[0].type),)


@cost.rule(Pool)
def _pool_cost(op: Pool, node: Node) -> Cost:
    """One operation per element of a window."""
    done = moving(node, others=count(node.outputs[0].type.axes) * prod(op.width))
    width = Axis("k", op.width[0])
    seen = Reach(op.axes[0], "local", op.before[0], op.width[0] - 1 - op.before[0], width)
    return replace(done, reach=seen) if op.width[0] > 1 else done


@primitive(
    "pool",
    width="numbers",
    function=optional("word"),
    stride=optional("numbers"),
    over=optional("names"),
    padding=optional("word"),
    to_positions=optional("names"),
)
def _pool(  # noqa: PLR0917 (called by name)
    site: Site,
    x: Value,
    width: tuple[float, ...],
    function: str = "max",
    stride: tuple[float, ...] = (),
    over: tuple[str, ...] = ("positions",),
    padding: str = "end",
    to_positions: tuple[str, ...] = (),
) -> Value:
    """The `max` or `mean` (`function`) of windows of `width` positions, which begin `stride` apart (default: `width`).

    The last window may be shorter; padding and what is beyond the ends do not count. With `padding: same`, windows are
    around each position; with `none`, all are whole. `frames` becomes `frames_by_2`, or `to_positions`. `over` lists
    other axes, such as `[rows, columns]`.
    """
    ends: dict[str, Ends] = {"end": "end", "same": "same", "none": "none"}
    if function not in ("max", "mean"):
        raise site.refuse(f"'function' must be max or mean, found '{function[:40]}'")
    if padding not in ends:
        raise site.refuse(f"'padding' must be end, same or none, found '{padding[:40]}'")
    if any(size > LARGEST_WINDOW for size in width):
        raise site.refuse_number("width", max(width), f"a window must have at most {LARGEST_WINDOW:,} elements")
    axes = tuple(site.axis(x, name) for name in over)
    if len(axes) > 2:
        raise site.refuse(f"windows move along one or two axes, found {len(axes)}")
    w: Windows = make_windows(site, axes, Wanted(width, stride or width, (1,), ends[padding], to_positions))
    masks = [mask for name in w.axes if (mask := site.padding(name)) is not None]
    for mask in masks:
        x = spread(site, x, mask)
    return site.emit(Pool(function, w.axes, w.to, w.width, w.stride, w.before, w.after), x, *masks)
