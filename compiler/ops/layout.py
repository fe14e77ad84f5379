"""Ops that only rearrange axes, and functions for matching axes by name."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.cost import FREE
from xformc.compiler.graph.graph import Node, Op
from xformc.compiler.graph.rules import (
    OnnxEmitter,
    TorchNamespace,
    cost,
    hidden,
    hidden_as_given,
    mixes,
    mixes_nothing,
    require,
    to_onnx,
    to_torch,
    types,
)


@dataclass(frozen=True)
class Align(Op):
    """Move the axes `last` to the end; the others keep their order."""

    kind: ClassVar[str] = "align"
    last: tuple[str, ...]


@types.rule(Align)
def _align_types(op: Align, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    (x,) = inputs
    missing = [name for name in op.last if name not in x.names]
    require(not missing, f"{x} has no axis {', '.join(missing)}")
    return (Type(x.dtype, (*x.without(op.last), *(x.axis(name) for name in op.last))),)


mixes.rule(Align)(mixes_nothing)


@to_torch.rule(Align)
def _align_torch(op: Align, node: Node, torch: TorchNamespace) -> Callable[..., Any]:
    return aligner(node.inputs[0].type, node.outputs[0].type)


@to_onnx.rule(Align)
def _align_onnx(op: Align, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    return (emit_aligned(onnx, inputs[0], node.inputs[0].type, node.outputs[0].type),)


@dataclass(frozen=True)
class Expand(Op):
    """Add a last axis of size 1."""

    kind: ClassVar[str] = "expand"
    axis: str


@types.rule(Expand)
def _expand_types(op: Expand, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    (x,) = inputs
    return (Type(x.dtype, (*x.axes, Axis(op.axis, 1))),)


mixes.rule(Expand)(mixes_nothing)


@to_torch.rule(Expand)
def _expand_torch(op: Expand, node: Node, torch: TorchNamespace) -> Callable[[Any], Any]:
    return lambda x: x.unsqueeze(-1)


@to_onnx.rule(Expand)
def _expand_onnx(op: Expand, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    return (onnx.op("Unsqueeze", *inputs, [-1]),)


for _op in (Align, Expand):
    hidden.rule(_op)(hidden_as_given)
    cost.rule(_op)(lambda op, node: FREE)


def union(first: tuple[Axis, ...], second: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """The axes of the result of two values matched by name: the batch, then those of the first in order.

    An axis that only the second has is placed before the axis that follows it there, or else last. Raises: RuleError if
    an axis has two sizes.
    """
    merged, after = list(first), len(first)
    for axis in reversed(second):
        known = next((item for item in first if item.name == axis.name), None)
        require(known in (None, axis), f"axis {axis.name} has two sizes: {known and known.size} and {axis.size}")
        after = merged.index(axis) if known else after
        if known is None:
            merged.insert(after, axis)
    return tuple(sorted(merged, key=lambda axis: axis.name != "batch"))


def permutation(found: Type, wanted: Type) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The permutation that turns one axis order into another, which may have more axes.

    Returns the permutation of the axes of `found`, and the indices in `wanted` of the axes that it lacks (to be
    inserted with size 1), in ascending order.
    """
    order = tuple(found.names.index(name) for name in wanted.names if name in found.names)
    inserted = tuple(index for index, name in enumerate(wanted.names) if name not in found.names)
    assert len(order) == len(found.names), f"{found} does not fit into {wanted}"
    return order, inserted


def aligner(found: Type, wanted: Type) -> Callable[[Any], Any]:
    """The torch function that permutes a tensor to the axes of `wanted`, with size 1 for axes that it lacks."""
    order, inserted = permutation(found, wanted)

    def align(x: Any) -> Any:
        if order != tuple(range(len(order))):
            x = x.permute(order)
        for index in inserted:
            x = x.unsqueeze(index)
        return x

    leading = inserted == tuple(range(len(inserted)))
    return (lambda x: x) if leading and order == tuple(range(len(order))) else align


def emit_aligned(onnx: OnnxEmitter, name: str, found: Type, wanted: Type) -> str:
    """Write the nodes for `aligner`; leading axes of size 1 are left to ONNX's broadcasting."""
    order, inserted = permutation(found, wanted)
    if order != tuple(range(len(order))):
        name = onnx.op("Transpose", name, perm=list(order))
    if inserted and inserted != tuple(range(len(inserted))):
        name = onnx.op("Unsqueeze", name, [*inserted])
    return name
