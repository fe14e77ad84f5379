"""Contraction of two values over a shared axis: attention scores, and weighted sums of values."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.cost import Cost, Reach, count, moving
from xformc.compiler.graph.graph import Node, Op, Value
from xformc.compiler.graph.primitives import Site, primitive
from xformc.compiler.graph.rules import (
    Hidden,
    OnnxEmitter,
    TorchNamespace,
    cost,
    hidden,
    mixes,
    mixture,
    require,
    to_onnx,
    to_torch,
    types,
)
from xformc.compiler.ops.layout import aligner, emit_aligned


@dataclass(frozen=True)
class Contract(Op):
    """`sum over over of a[.., over] * b[.., over]`.

    Other shared axes are batch axes. The result has the axes of `a` in order, then those that only `b` has.
    """

    kind: ClassVar[str] = "contract"
    over: str


@types.rule(Contract)
def _contract_types(op: Contract, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    a, b = inputs
    require(a.dtype == b.dtype == "float32", f"needs vectors, found {a} and {b}")
    for name, type in (("first", a), ("second", b)):
        require(op.over in type.names, f"the {name} value {type} has no axis {op.over}")
    for axis in a.axes:
        other = next((item for item in b.axes if item.name == axis.name), axis)
        require(axis == other, f"axis {axis.name} has two sizes: {axis.size} and {other.size}")
    return (Type(a.dtype, (*a.without((op.over,)), *b.without(a.names))),)


@mixes.rule(Contract)
def _contract_mixes(op: Contract, node: Node) -> frozenset[str]:
    return frozenset({op.over})


@hidden.rule(Contract)
def _contract_hidden(op: Contract, node: Node, inputs: tuple[Hidden, ...], keys: frozenset[str]) -> Hidden:
    return "zero" if "zero" in inputs and "large" not in inputs else mixture(*inputs)


@dataclass(frozen=True)
class _Plan:
    """The axis orders that make it a batch of matrix products [batch.., rows, over] x [.., over, columns]."""

    first: Type
    second: Type
    batch: int
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    product: Type


def _plan(op: Contract, node: Node) -> _Plan:
    a, b = (value.type for value in node.inputs)
    over = a.axis(op.over)
    batch = tuple(axis for axis in a.axes if axis.name in b.names and axis != over)
    rows = tuple(axis for axis in a.axes if axis.name not in b.names)
    columns = b.without(a.names)
    return _Plan(
        Type(a.dtype, (*batch, *rows, over)),
        Type(b.dtype, (*batch, over, *columns)),
        len(batch),
        rows,
        columns,
        Type(a.dtype, (*batch, *rows, *columns)),
    )


@to_torch.rule(Contract)
def _contract_torch(op: Contract, node: Node, torch: TorchNamespace) -> Callable[[Any, Any], Any]:
    plan = _plan(op, node)
    first, second = aligner(node.inputs[0].type, plan.first), aligner(node.inputs[1].type, plan.second)
    restore = aligner(plan.product, node.outputs[0].type)
    batch, rows, columns = plan.batch, len(plan.rows), len(plan.columns)

    def apply(a: Any, b: Any) -> Any:
        a, b = first(a), second(b)
        shape = (*a.shape[:-1], *b.shape[batch + 1 :])
        a = a.unsqueeze(-2) if rows == 0 else a.flatten(batch, batch + rows - 1)
        b = b.unsqueeze(-1) if columns == 0 else b.flatten(batch + 1)
        return restore(torch.torch.matmul(a, b).reshape(shape))

    return apply


@to_onnx.rule(Contract)
def _contract_onnx(op: Contract, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    plan = _plan(op, node)
    batch = plan.first.axes[: plan.batch]
    over = plan.first.axes[-1:]
    a = emit_aligned(onnx, inputs[0], node.inputs[0].type, plan.first)
    b = emit_aligned(onnx, inputs[1], node.inputs[1].type, plan.second)
    singles = [(axis,) for axis in batch]
    if len(plan.rows) != 1:
        a = onnx.op("Reshape", a, onnx.merged(*singles, plan.rows, over))
    if len(plan.columns) != 1:
        b = onnx.op("Reshape", b, onnx.merged(*singles, over, plan.columns))
    product = onnx.op("MatMul", a, b)
    if len(plan.rows) != 1 or len(plan.columns) != 1:
        product = onnx.op("Reshape", product, onnx.shape(plan.product.axes))
    return (emit_aligned(onnx, product, plan.product, node.outputs[0].type),)


@cost.rule(Contract)
def _contract_cost(op: Contract, node: Node) -> Cost:
    products = count((*node.outputs[0].type.axes, node.inputs[0].type.axis(op.over))) * 2
    return replace(moving(node, products), reach=Reach(op.over, "all"))


@primitive("contract", by="value", over="name")
def _contract(site: Site, x: Value, by: Value, over: str) -> Value:
    """The sum of `x * by` over one axis. Other shared axes are batch axes, and all other axes are kept."""
    return site.emit(Contract(site.axis(x, over).name), x, by)
