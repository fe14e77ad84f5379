"""The softmax along an axis."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from xformc.compiler.graph.axes import Type
from xformc.compiler.graph.cost import Cost, Reach, per_result
from xformc.compiler.graph.graph import Node, Op, Value
from xformc.compiler.graph.primitives import Site, optional, primitive
from xformc.compiler.graph.rules import (
    HIDING,
    Hidden,
    OnnxEmitter,
    TorchNamespace,
    cost,
    hidden,
    mixes,
    require,
    to_onnx,
    to_torch,
    types,
)
from xformc.compiler.ops.masks import NEVER, without_padding


@dataclass(frozen=True)
class Softmax(Op):
    """`exp(x) / sum over axis of exp(x)`."""

    kind: ClassVar[str] = "softmax"
    axis: str


@types.rule(Softmax)
def _softmax_types(op: Softmax, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    (x,) = inputs
    require(op.axis in x.names, f"{x} has no axis {op.axis}")
    return (x,)


@mixes.rule(Softmax)
def _softmax_mixes(op: Softmax, node: Node) -> frozenset[str]:
    return frozenset({op.axis})


@hidden.rule(Softmax)
def _softmax_hidden(op: Softmax, node: Node, inputs: tuple[Hidden, ...], keys: frozenset[str]) -> Hidden:
    (held,) = inputs
    if op.axis in keys:
        return "zero" if held in HIDING else "open"
    return "large" if held == "large" else "open"


@to_torch.rule(Softmax)
def _softmax_torch(op: Softmax, node: Node, torch: TorchNamespace) -> Callable[[Any], Any]:
    index = node.inputs[0].type.names.index(op.axis)
    return lambda x: torch.torch.softmax(x, index)


@to_onnx.rule(Softmax)
def _softmax_onnx(op: Softmax, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    return (onnx.op("Softmax", *inputs, axis=node.inputs[0].type.names.index(op.axis)),)


@cost.rule(Softmax)
def _softmax_cost(op: Softmax, node: Node) -> Cost:
    """Per element: maximum, difference, exponential, sum and division."""
    return replace(per_result(5)(op, node), reach=Reach(op.axis, "all"))


@primitive("softmax", over=optional("name"))
def _softmax(site: Site, x: Value, over: str | None = None) -> Value:
    """The softmax over an axis (default: the last). Over positions, padding gets 0."""
    axis = (site.clear_last(x) if over is None else site.axis(x, over)).name
    return site.emit(Softmax(axis), without_padding(site, x, (axis,), NEVER))
