"""Parts of an axis: elements at equal distances, from one element to another."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.cost import per_result
from xformc.compiler.graph.graph import Node, Op, Value
from xformc.compiler.graph.lengths import Length, divide_up
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


@dataclass(frozen=True)
class Slice(Op):
    """Every `step`-th element along `axis`, from `start` on, as the axis `to`: `y[i] = x[start + i * step]`.

    If the size of `axis` is known only at run time, the result has size / step elements, rounded up, whatever `start`
    is: those beyond the end of x are zero, or false. So it is never empty. Otherwise it ends where x does.

    `keep_first`: for a mask, `y[0] = x[0]`, so that an example that is too short has one position.
    """

    kind: ClassVar[str] = "slice"
    axis: str
    to: str
    start: int
    step: int
    keep_first: bool = False


@types.rule(Slice)
def _slice_types(op: Slice, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    (x,) = inputs
    require(op.axis in x.names, f"{x} has no axis {op.axis}")
    size = x.axis(op.axis).size
    require(size is None or size > op.start, f"the axis {op.axis} of {x} has no element {op.start}")
    part = Axis(op.to, None if size is None else divide_up(size - op.start, op.step))
    return (Type(x.dtype, tuple(part if axis.name == op.axis else axis for axis in x.axes)),)


@mixes.rule(Slice)
def _slice_mixes(op: Slice, node: Node) -> frozenset[str]:
    return frozenset({op.axis, op.to})


@lengths.rule(Slice)
def _slice_lengths(op: Slice, node: Node) -> Mapping[str, Length]:
    known = node.inputs[0].type.axis(op.axis).size is not None
    return {} if known else {op.to: Length((op.axis,), op.step)}


@to_step.rule(Slice)
def _slice_step(op: Slice, node: Node, step: Stepper) -> tuple[Value, ...]:
    raise step.refuse(f"{op.to} has other positions than {step.time}, one for each token")


def _missing(op: Slice, node: Node) -> int:
    """The number of elements to add at the end of x."""
    return op.start if node.inputs[0].type.axis(op.axis).size is None else 0


@to_torch.rule(Slice)
def _slice_torch(op: Slice, node: Node, torch: TorchNamespace) -> Callable[[Any], Any]:
    names, missing = node.inputs[0].type.names, _missing(op, node)
    index = names.index(op.axis)
    pads = [0, 0] * (len(names) - 1 - index) + [0, missing]
    picked = (slice(None),) * index + (slice(op.start, None, op.step),)
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
        axes = tuple(Axis("missing", missing) if axis.name == op.axis else axis for axis in x.axes)
        nothing = {"bool": False, "int64": 0}.get(x.dtype, 0.0)
        name = onnx.op("Concat", name, onnx.op("Expand", nothing, onnx.shape(axes)), axis=index)
    if not op.keep_first:
        return (onnx.op("Slice", name, [op.start], [2**31], [index], [op.step]),)
    first = onnx.op("Slice", *inputs, [0], [1], [index])
    return (
        onnx.op("Concat", first, onnx.op("Slice", name, [op.start + op.step], [2**31], [index], [op.step]), axis=index),
    )


cost.rule(Slice)(per_result(0))
