"""Splitting an axis, merging axes, and joining two values along their last axes."""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.cost import FREE, per_result
from xformc.compiler.graph.graph import Node, Op, Value
from xformc.compiler.graph.primitives import Site, optional, primitive
from xformc.compiler.graph.rules import (
    OnnxEmitter,
    TorchNamespace,
    cost,
    hidden,
    hidden_as_given,
    mixes,
    require,
    to_onnx,
    to_torch,
    types,
)
from xformc.compiler.ops.layout import Align, aligner, emit_aligned


@dataclass(frozen=True)
class Split(Op):
    """Split `axis` into the axes `into`, in its place; the last of them varies fastest."""

    kind: ClassVar[str] = "split"
    axis: str
    into: tuple[str, ...]
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class Merge(Op):
    """Merge `axes` into the axis `to`, in the place of the first; the last of them varies fastest."""

    kind: ClassVar[str] = "merge"
    axes: tuple[str, ...]
    to: str


@dataclass(frozen=True)
class Join(Op):
    """Concatenate two values along their last axes into a new last axis `axis`."""

    kind: ClassVar[str] = "join"
    axis: str


@types.rule(Split)
def _split_types(op: Split, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    (x,) = inputs
    require(op.axis in x.names, f"{x} has no axis {op.axis}")
    axis, parts = x.axis(op.axis), tuple(Axis(name, size) for name, size in zip(op.into, op.sizes, strict=True))
    require(axis.size == prod(op.sizes), f"{axis} cannot be split into {_listed(parts)}")
    index = x.names.index(op.axis)
    return (Type(x.dtype, (*x.axes[:index], *parts, *x.axes[index + 1 :])),)


@types.rule(Merge)
def _merge_types(op: Merge, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    (x,) = inputs
    missing = [name for name in op.axes if name not in x.names]
    require(not missing, f"{x} has no axis {', '.join(missing)}")
    parts = tuple(x.axis(name) for name in op.axes)
    require(all(axis.size is not None for axis in parts), f"{_listed(parts)}: sizes must be known before run time")
    index = x.names.index(op.axes[0])
    before, after = (Type(x.dtype, axes).without(op.axes) for axes in (x.axes[:index], x.axes[index:]))
    return (Type(x.dtype, (*before, Axis(op.to, prod(axis.size or 1 for axis in parts)), *after)),)


@types.rule(Join)
def _join_types(op: Join, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    first, second = inputs
    alike = first.dtype == second.dtype and set(first.axes[:-1]) == set(second.axes[:-1])
    require(alike, f"needs two values that differ only in their last axes, found {first} and {second}")
    sizes = [value.axes[-1].size for value in inputs]
    require(None not in sizes, f"the last axes of {first} and {second} must have known sizes")
    return (Type(first.dtype, (*first.axes[:-1], Axis(op.axis, sum(size or 0 for size in sizes)))),)


@mixes.rule(Split)
def _split_mixes(op: Split, node: Node) -> frozenset[str]:
    return frozenset({op.axis, *op.into})


@mixes.rule(Merge)
def _merge_mixes(op: Merge, node: Node) -> frozenset[str]:
    return frozenset({*op.axes, op.to})


@mixes.rule(Join)
def _join_mixes(op: Join, node: Node) -> frozenset[str]:
    return frozenset({op.axis, *(value.type.names[-1] for value in node.inputs)})


hidden.rule(Split)(hidden_as_given)
hidden.rule(Merge)(hidden_as_given)


def _listed(axes: tuple[Axis, ...]) -> str:
    return ", ".join(map(str, axes))


def _gathered(op: Merge, node: Node) -> Type:
    """The axis order in which the merged axes are adjacent."""
    x, result = node.inputs[0].type, node.outputs[0].type
    index = result.names.index(op.to)
    inner = tuple(x.axis(name) for name in op.axes)
    return Type(x.dtype, (*result.axes[:index], *inner, *result.axes[index + 1 :]))


@to_torch.rule(Split)
def _split_torch(op: Split, node: Node, torch: TorchNamespace) -> Callable[[Any], Any]:
    index = node.inputs[0].type.names.index(op.axis)
    return lambda x: x.unflatten(index, op.sizes)


@to_onnx.rule(Split)
def _split_onnx(op: Split, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    return (onnx.op("Reshape", *inputs, onnx.shape(node.outputs[0].type.axes)),)


@to_torch.rule(Merge)
def _merge_torch(op: Merge, node: Node, torch: TorchNamespace) -> Callable[[Any], Any]:
    index = node.outputs[0].type.names.index(op.to)
    align, last = aligner(node.inputs[0].type, _gathered(op, node)), index + len(op.axes) - 1
    return lambda x: align(x).flatten(index, last)


@to_onnx.rule(Merge)
def _merge_onnx(op: Merge, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    x = emit_aligned(onnx, inputs[0], node.inputs[0].type, _gathered(op, node))
    return (onnx.op("Reshape", x, onnx.shape(node.outputs[0].type.axes)),)


def _second(node: Node) -> tuple[Type, Type]:
    """The type of the second value, as it is and with its axes in the order of the first."""
    first, second = (value.type for value in node.inputs)
    return second, Type(second.dtype, (*first.axes[:-1], second.axes[-1]))


@to_torch.rule(Join)
def _join_torch(op: Join, node: Node, torch: TorchNamespace) -> Callable[[Any, Any], Any]:
    align = aligner(*_second(node))
    return lambda first, second: torch.torch.cat((first, align(second)), -1)


@to_onnx.rule(Join)
def _join_onnx(op: Join, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    first, second = inputs
    return (onnx.op("Concat", first, emit_aligned(onnx, second, *_second(node)), axis=-1),)


for _op in (Split, Merge):
    cost.rule(_op)(lambda op, node: FREE)
cost.rule(Join)(per_result(0))


@primitive("split", axis="name", into="axes", on=None)
def _split(site: Site, x: Value, axis: str, into: tuple[Axis, ...]) -> Value:
    """One axis split into several, in its place. Their sizes multiply to its size; the last one varies fastest."""
    old = site.axis(x, axis)
    if old.size is None:
        raise site.refuse(f"the axis {old} cannot be split: its size is known only at run time")
    if prod(part.size or 1 for part in into) != old.size:
        raise site.refuse(f"the axis {old} cannot be split into {_listed(into)}", "their product must be its size")
    return site.emit(Split(old.name, tuple(part.name for part in into), tuple(part.size or 1 for part in into)), x)


@primitive("merge", axes="axes", to="axis", positions=optional("flag"), on=None)
def _merge(site: Site, x: Value, axes: tuple[Axis, ...], to: Axis, positions: bool = False) -> Value:
    """Several axes merged into one, in the place of the first. The last one varies fastest.

    With `positions`, the result is an axis of positions, such as the patches of an image, without padding.
    """
    parts = tuple(site.axis(x, axis.name) for axis in axes)
    if prod(part.size or 0 for part in parts) != to.size:
        raise site.refuse(f"the axes {_listed(parts)} cannot be merged into {to}", "their product must be its size")
    if positions:
        site.make_positions(to.name)
    return site.emit(Merge(tuple(part.name for part in parts), to.name), x)


@primitive("join", by="value", to="axis", over=optional("name"))
def _join(site: Site, x: Value, by: Value, to: Axis, over: str | None = None) -> Value:
    """`x` and `by`, concatenated along their last axes, or another axis of both (`over`), into a last axis `to`."""
    if over is not None:
        x, by = (site.emit(Align((site.axis(value, over).name,)), value, name=over) for value in (x, by))
    axes = [site.last(value) for value in (x, by)]
    unknown = next((axis for axis in axes if axis.size is None), None)
    if unknown is not None:
        hint = "name an axis of both with 'over'; concatenate joins positions"
        raise site.refuse(f"the size of {unknown} is known only at run time", hint)
    total = sum(axis.size or 0 for axis in axes)
    if total != to.size:
        hint = f"set it to {' + '.join(axis.name for axis in axes)}"
        raise site.refuse(f"the last axes of {x.type} and {by.type} have a total size of {total}, not {to}", hint)
    return site.emit(Join(to.name), x, by)
