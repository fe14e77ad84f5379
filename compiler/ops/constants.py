"""Constants: values that are written in the spec, and are neither trained nor stored as parameters."""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.cost import FREE
from xformc.compiler.graph.graph import Node, Op, Value
from xformc.compiler.graph.primitives import Site, primitive
from xformc.compiler.graph.rules import (
    OnnxEmitter,
    TorchNamespace,
    cost,
    mixes,
    mixes_nothing,
    require,
    to_onnx,
    to_torch,
    types,
)

MOST = 65_536
"""The number of numbers in one constant."""


@dataclass(frozen=True)
class Constant(Op):
    """Numbers along axes of these sizes, in row-major order; a single number fills all of them. It has no inputs."""

    kind: ClassVar[str] = "constant"
    axes: tuple[str, ...]
    sizes: tuple[int, ...]
    values: tuple[float, ...]


@types.rule(Constant)
def _constant_types(op: Constant, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    count = prod(op.sizes)
    require(len(op.values) in (1, count), f"needs {count} numbers or one, found {len(op.values)}")
    return (Type("float32", tuple(map(Axis, op.axes, op.sizes))),)


mixes.rule(Constant)(mixes_nothing)
cost.rule(Constant)(lambda op, node: FREE)


@to_torch.rule(Constant)
def _constant_torch(op: Constant, node: Node, torch: TorchNamespace) -> Callable[[], Any]:
    values = torch.torch.tensor(op.values, dtype=torch.torch.float32)
    whole = values.repeat(prod(op.sizes)) if len(op.values) == 1 else values
    return torch.constant(node.outputs[0].name, whole.view(op.sizes))


@to_onnx.rule(Constant)
def _constant_onnx(op: Constant, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    first, *others = op.values

    def make(root: OnnxEmitter) -> str:
        if others:
            return root.op("Reshape", op.values, op.sizes)
        return root.op("Expand", first, op.sizes) if op.sizes else root.operand(first)

    return (onnx.outermost(f"constant {op.sizes} {op.values}", make),)


@primitive("constant", on=None, axes="axes", value="numbers")
def _constant(site: Site, x: Value, axes: tuple[Axis, ...], value: tuple[float, ...]) -> Value:
    """Numbers along these axes, independent of `x`: one for all elements, or a list in row-major order. Not trained."""
    return site.emit(_checked(site, axes, value))


@primitive("indices", on=None, axis="axis")
def _indices(site: Site, x: Value, axis: Axis) -> Value:
    """0, 1, 2, .. along an axis, independent of `x`."""
    return site.emit(_checked(site, (axis,), tuple(map(float, range(min(axis.size or 0, MOST + 1))))))


def _checked(site: Site, axes: tuple[Axis, ...], values: tuple[float, ...]) -> Constant:
    if len(values) > MOST:
        raise site.refuse(f"a constant has at most {MOST:,} numbers, found {len(values):,}")
    sizes = tuple(axis.size or 0 for axis in axes)
    return Constant(tuple(axis.name for axis in axes), sizes, tuple(map(float, values)))
