"""Positions and distances as numbers, for any arithmetic, and numbers as indices."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.cost import per_result
from xformc.compiler.graph.graph import Node, Op, Value
from xformc.compiler.graph.primitives import Site, primitive
from xformc.compiler.graph.rules import (
    Hidden,
    OnnxEmitter,
    TorchNamespace,
    cost,
    hidden,
    mixes,
    mixes_nothing,
    require,
    to_onnx,
    to_torch,
    types,
)
from xformc.compiler.ops.positions import Positions
from xformc.compiler.ops.relative import pair_distance


@dataclass(frozen=True)
class Number(Op):
    """Int64 as float32, with the other sign if `negated`; exact up to 2^24."""

    kind: ClassVar[str] = "number"
    negated: bool = False


@dataclass(frozen=True)
class ToIndex(Op):
    """Float32 rounded down, and then limited to the indices 0 to `size` - 1: int64."""

    kind: ClassVar[str] = "to_index"
    size: int


@types.rule(Number)
def _number_types(op: Number, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    (x,) = inputs
    require(x.dtype == "int64", f"needs int64 values, found {x}")
    return (Type("float32", x.axes),)


mixes.rule(Number)(mixes_nothing)
cost.rule(Number)(per_result(1))


@to_torch.rule(Number)
def _number_torch(op: Number, node: Node, torch: TorchNamespace) -> Callable[[Any], Any]:
    return lambda x: (-x if op.negated else x).to(torch.torch.float32)


@to_onnx.rule(Number)
def _number_onnx(op: Number, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    return (onnx.op("Cast", onnx.op("Neg", *inputs) if op.negated else inputs[0], to=1),)


@types.rule(ToIndex)
def _to_index_types(op: ToIndex, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    (x,) = inputs
    require(x.dtype == "float32", f"needs numbers, found {x}")
    return (Type("int64", x.axes),)


mixes.rule(ToIndex)(mixes_nothing)
cost.rule(ToIndex)(per_result(2))


@hidden.rule(ToIndex)
def _to_index_hidden(op: ToIndex, node: Node, inputs: tuple[Hidden, ...], keys: frozenset[str]) -> Hidden:
    return "open"


@to_torch.rule(ToIndex)
def _to_index_torch(op: ToIndex, node: Node, torch: TorchNamespace) -> Callable[[Any], Any]:
    most = op.size - 1
    return lambda x: x.floor().clamp(0, most).to(torch.torch.int64).clamp(0, most)  # the second is for NaN


@to_onnx.rule(ToIndex)
def _to_index_onnx(op: ToIndex, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    limited = onnx.op("Clip", onnx.op("Floor", *inputs), 0.0, float(op.size - 1))
    return (onnx.op("Clip", onnx.op("Cast", limited, to=7), 0, op.size - 1),)


@primitive("to_index", axis="axis")
def _to_index(site: Site, x: Value, axis: Axis) -> Value:
    """Each number, rounded down, as an index of this axis; one beyond its ends is the first or the last."""
    return site.emit(ToIndex(axis.size or 1), x)


@primitive("position", on=None)
def _position(site: Site, x: Value) -> Value:
    """The number of each position of `x`: 0, 1, 2, .. along its axis of positions alone."""
    return site.emit(Number(), site.emit(Positions(site.positions(x)), x, name="index"))


@primitive("distance", on=None)
def _distance(site: Site, x: Value) -> Value:
    """For scores over keys, the position of each query minus that of each key: [positions, keys].

    Earlier keys have positive distances, later keys negative ones.
    """
    return site.emit(Number(negated=True), pair_distance(site, x))
