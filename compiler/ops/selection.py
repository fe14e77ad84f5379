"""Selection by comparison: argmax, and keeping the largest elements."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from xformc.compiler.graph.axes import Type
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
    require,
    to_onnx,
    to_torch,
    types,
)
from xformc.compiler.ops.masks import MASKED, NEVER, filled, without_padding


@dataclass(frozen=True)
class ArgMax(Op):
    """The index of the largest element along `over`, the first of equal ones. Int64, without that axis."""

    kind: ClassVar[str] = "argmax"
    over: str


@dataclass(frozen=True)
class KeepTop(Op):
    """`x` for the `count` largest elements along `over`, `rest` elsewhere; of equal elements, the first are kept.

    An axis with fewer elements, if its size is known only at run time, keeps all.
    """

    kind: ClassVar[str] = "keep_top"
    count: int
    over: str
    rest: float = MASKED


@types.rule(ArgMax)
def _argmax_types(op: ArgMax, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    (x,) = inputs
    require(op.over in x.names, f"{x} has no axis {op.over}")
    return (Type("int64", x.without((op.over,))),)


@types.rule(KeepTop)
def _keep_top_types(op: KeepTop, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    (x,) = inputs
    require(op.over in x.names, f"{x} has no axis {op.over}")
    size = x.axis(op.over).size
    require(1 <= op.count <= (size or op.count), f"the axis {op.over} of {x} has fewer than {op.count} elements")
    return (x,)


@hidden.rule(KeepTop)
def _keep_top_hidden(op: KeepTop, node: Node, inputs: tuple[Hidden, ...], keys: frozenset[str]) -> Hidden:
    """Over keys, masked ones are the last to be kept; at least one key that is not masked is kept."""
    return filled(inputs[0], op.rest)


@mixes.rule(ArgMax)
def _argmax_mixes(op: ArgMax, node: Node) -> frozenset[str]:
    return frozenset({op.over})


@mixes.rule(KeepTop)
def _keep_top_mixes(op: KeepTop, node: Node) -> frozenset[str]:
    return frozenset({op.over})


@to_torch.rule(ArgMax)
def _argmax_torch(op: ArgMax, node: Node, torch: TorchNamespace) -> Callable[[Any], Any]:
    index = node.inputs[0].type.names.index(op.over)
    return lambda x: torch.torch.argmax(x, index)


@to_onnx.rule(ArgMax)
def _argmax_onnx(op: ArgMax, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    return (onnx.op("ArgMax", *inputs, axis=node.inputs[0].type.names.index(op.over), keepdims=0),)


@to_torch.rule(KeepTop)
def _keep_top_torch(op: KeepTop, node: Node, torch: TorchNamespace) -> Callable[[Any], Any]:
    index = node.inputs[0].type.names.index(op.over)

    def apply(x: Any) -> Any:
        count = min(op.count, x.shape[index])
        best = torch.torch.sort(x, dim=index, descending=True, stable=True).indices.narrow(index, 0, count)
        kept = torch.torch.zeros_like(x, dtype=torch.torch.bool).scatter(index, best, True)
        return x.masked_fill(~kept, op.rest)

    return apply


@to_onnx.rule(KeepTop)
def _keep_top_onnx(op: KeepTop, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    x = node.inputs[0].type
    axis, over = x.names.index(op.over), x.axis(op.over)
    count = [op.count] if over.size is not None else onnx.op("Min", onnx.shape((over,)), [op.count])
    best, places = onnx.ops("TopK", 2, *inputs, count, axis=axis)
    nothing = onnx.op("Expand", op.rest, onnx.op("Shape", *inputs))
    return (onnx.op("ScatterElements", nothing, places, best, axis=axis),)


for _op in (ArgMax, KeepTop):
    cost.rule(_op)(per_result(1))


@primitive("argmax", over="name")
def _argmax(site: Site, x: Value, over: str) -> Value:
    """The index of the largest number along an axis."""
    return site.emit(ArgMax(site.axis(x, over).name), x)


@primitive("keep_top", count="number", over="name")
def _keep_top(site: Site, x: Value, count: float, over: str) -> Value:
    """The `count` highest scores along an axis; a softmax gives the others 0 (Shazeer et al., 2017).

    Along keys or positions, all are kept if there are fewer, and padding is never kept. Over keys, write it after the
    mask.
    """
    if count != int(count) or count < 1:
        raise site.refuse_number("count", count, "count must be a positive whole number")
    axis = site.axis(x, over)
    kept = KeepTop(int(count), axis.name, NEVER if axis.size is None else MASKED)
    return site.emit(kept, without_padding(site, x, (axis.name,), NEVER))
