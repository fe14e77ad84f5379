"""More positions: each one several times; and back to those from which others were left out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.cost import per_result
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
from xformc.compiler.ops.windows import whole_numbers


@dataclass(frozen=True)
class Stretch(Op):
    """Each element along `axis` is repeated `times` times along the axis `to`: `y[i] = x[i // times]`."""

    kind: ClassVar[str] = "stretch"
    axis: str
    to: str
    times: int


@dataclass(frozen=True)
class Fit(Op):
    """The first elements of x along `axis`, as many as the axis `to` has. Inputs: x; a value with the axis `to`."""

    kind: ClassVar[str] = "fit"
    axis: str
    to: str


def longer(axis: Axis, to: str, times: int) -> Axis:
    """The axis `to` of `times` as many elements."""
    return Axis(to, None if axis.size is None else axis.size * times)


@types.rule(Stretch)
def _stretch_types(op: Stretch, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    (x,) = inputs
    require(op.axis in x.names, f"{x} has no axis {op.axis}")
    made = longer(x.axis(op.axis), op.to, op.times)
    return (Type(x.dtype, tuple(made if axis.name == op.axis else axis for axis in x.axes)),)


@types.rule(Fit)
def _fit_types(op: Fit, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    x, other = inputs
    require(op.axis in x.names, f"{x} has no axis {op.axis}")
    require(op.to in other.names, f"{other} has no axis {op.to}")
    made = other.axis(op.to)
    return (Type(x.dtype, tuple(made if axis.name == op.axis else axis for axis in x.axes)),)


@mixes.rule(Stretch)
def _stretch_mixes(op: Stretch, node: Node) -> frozenset[str]:
    return frozenset({op.axis, op.to})


@mixes.rule(Fit)
def _fit_mixes(op: Fit, node: Node) -> frozenset[str]:
    return frozenset({op.axis, op.to})


@lengths.rule(Stretch)
def _stretch_lengths(op: Stretch, node: Node) -> Mapping[str, Length]:
    known = node.outputs[0].type.axis(op.to).size is not None
    return {} if known else {op.to: Length((op.axis,), times=op.times)}


def refused(op: Op, node: Node, step: Stepper) -> tuple[Value, ...]:
    """The `to_step` rule of ops that make more positions."""
    raise step.refuse(f"'{op.kind}' makes other positions than {step.time}, one for each token")


for _op in (Stretch, Fit):
    to_step.rule(_op)(refused)


@to_torch.rule(Stretch)
def _stretch_torch(op: Stretch, node: Node, torch: TorchNamespace) -> Callable[[Any], Any]:
    index = node.inputs[0].type.names.index(op.axis)
    return lambda x: x.repeat_interleave(op.times, index)


@to_onnx.rule(Stretch)
def _stretch_onnx(op: Stretch, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    axis = node.inputs[0].type.axis(op.axis)
    size = onnx.op("Mul", onnx.op("Squeeze", onnx.shape((axis,))), op.times)
    order = onnx.op("Div", onnx.op("Range", 0, size, 1), op.times)
    return (onnx.op("Gather", *inputs, order, axis=node.inputs[0].type.names.index(op.axis)),)


@to_torch.rule(Fit)
def _fit_torch(op: Fit, node: Node, torch: TorchNamespace) -> Callable[[Any, Any], Any]:
    index, other = node.inputs[0].type.names.index(op.axis), node.inputs[1].type.names.index(op.to)
    return lambda x, like: x.narrow(index, 0, like.shape[other])


@to_onnx.rule(Fit)
def _fit_onnx(op: Fit, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    x, other = (value.type for value in node.inputs)
    at = other.names.index(op.to)
    size = onnx.op("Shape", inputs[1], start=at, end=at + 1)
    return (onnx.op("Slice", inputs[0], [0], size, [x.names.index(op.axis)]),)


cost.rule(Stretch)(per_result(0))
cost.rule(Fit)(per_result(0))


@primitive("stretch", on=None, by="number", over=optional("name"), to_positions=optional("name"))
def _stretch(site: Site, x: Value, by: float, over: str = "positions", to_positions: str | None = None) -> Value:
    """Each position `by` times, one after the other: `frames` becomes `frames_times_2`, and `frames_by_2` becomes
    `frames` again.
    """
    axis = site.axis(x, over)
    (times,) = whole_numbers(site, "by", (by,), 1)
    made = site.longer(axis, times, to_positions)
    return x if times == 1 else fitted(site, site.emit(Stretch(axis.name, made.name, times), x), made)


def fitted(site: Site, x: Value, made: Axis) -> Value:
    """The value without what an axis has beyond the one from which it was shortened before."""
    origin = site.origin(made)
    return x if origin is None else site.emit(Fit(made.name, origin[0].name), x, origin[1], name="fitted")
