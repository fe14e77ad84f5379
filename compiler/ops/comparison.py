"""Comparisons, logic, and the choice between two values by a condition."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from xformc.compiler.graph.axes import Type
from xformc.compiler.graph.cost import per_result
from xformc.compiler.graph.graph import Node, Op, Value
from xformc.compiler.graph.primitives import Site, optional, primitive
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
from xformc.compiler.ops.constants import Constant
from xformc.compiler.ops.elementwise import matched_onnx, matched_torch
from xformc.compiler.ops.layout import union
from xformc.compiler.ops.masks import Fill, Select


@dataclass(frozen=True)
class Compare(Op):
    """Whether `a` compares so with `b`, the second input or the number `by`; the comparisons are in COMPARISONS.

    Both are float32 or both int64; axes are matched by name and broadcast.
    """

    kind: ClassVar[str] = "compare"
    function: str
    by: float | None = None


COMPARISONS: dict[str, tuple[str, str, str]] = {
    "equal": ("eq", "Equal", "equals"),
    "less": ("lt", "Less", "is less than"),
    "less_equal": ("le", "LessOrEqual", "is at most"),
    "greater": ("gt", "Greater", "is greater than"),
    "greater_equal": ("ge", "GreaterOrEqual", "is at least"),
}
"""The name of each comparison in torch and in ONNX, and in words."""


@dataclass(frozen=True)
class Logic(Op):
    """`not a`, `a and b` or `a or b`, for bool values; axes are matched by name and broadcast."""

    kind: ClassVar[str] = "logic"
    function: str


LOGIC: dict[str, tuple[str, str]] = {
    "not": ("logical_not", "Not"),
    "and": ("logical_and", "And"),
    "or": ("logical_or", "Or"),
}
"""The name of each function in torch and in ONNX."""


@types.rule(Compare)
def _compare_types(op: Compare, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    a, b = inputs[0], inputs[-1]
    require(a.dtype == b.dtype != "bool", f"compares float32 with float32 or int64 with int64, found {a} and {b}")
    return (Type("bool", union(a.axes, b.axes)),)


@types.rule(Logic)
def _logic_types(op: Logic, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    a, b = inputs[0], inputs[-1]
    require(a.dtype == b.dtype == "bool", f"needs conditions, found {' and '.join(map(str, inputs))}")
    return (Type("bool", union(a.axes, b.axes)),)


for _op in (Compare, Logic):
    mixes.rule(_op)(mixes_nothing)
    cost.rule(_op)(per_result(1))


@to_torch.rule(Compare)
def _compare_torch(op: Compare, node: Node, torch: TorchNamespace) -> Callable[..., Any]:
    function, by = getattr(torch.torch, COMPARISONS[op.function][0]), op.by

    def apply(x: Any) -> Any:
        return function(x, by)

    return matched_torch(function)(op, node, torch) if by is None else apply


@to_onnx.rule(Compare)
def _compare_onnx(op: Compare, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    kind = COMPARISONS[op.function][1]
    if op.by is None:
        return matched_onnx(kind)(op, node, onnx, inputs)
    whole = node.inputs[0].type.dtype == "int64"
    return (onnx.op(kind, *inputs, int(op.by) if whole else float(op.by)),)


@to_torch.rule(Logic)
def _logic_torch(op: Logic, node: Node, torch: TorchNamespace) -> Callable[..., Any]:
    function = getattr(torch.torch, LOGIC[op.function][0])
    return function if op.function == "not" else matched_torch(function)(op, node, torch)


@to_onnx.rule(Logic)
def _logic_onnx(op: Logic, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    kind = LOGIC[op.function][1]
    return (onnx.op(kind, *inputs),) if op.function == "not" else matched_onnx(kind)(op, node, onnx, inputs)


def _comparison(name: str, words: str) -> None:
    def apply(site: Site, x: Value, by: Value | float) -> Value:
        if isinstance(by, Value):
            return site.emit(Compare(name), x, by)
        if x.type.dtype == "int64" and by != int(by):
            raise site.refuse_number("by", by, f"{x.name} has whole numbers, so 'by' must be one")
        return site.emit(Compare(name, float(by)), x)

    apply.__doc__ = f"Whether `x` {words} `by`, a value matched by axis name or a number. `mask` takes it as `edges`."
    primitive(name, on=None, by="operand")(apply)


for _name, (_, _, _words) in COMPARISONS.items():
    _comparison(_name, _words)


@primitive("not", on="bool")
def _not(site: Site, x: Value) -> Value:
    """Where the condition `x` is false."""
    return site.emit(Logic("not"), x)


@primitive("and", on="bool", by="value")
def _and(site: Site, x: Value, by: Value) -> Value:
    """Where both conditions are true, matched by axis name."""
    return site.emit(Logic("and"), x, by)


@primitive("or", on="bool", by="value")
def _or(site: Site, x: Value, by: Value) -> Value:
    """Where one of the conditions is true, or both, matched by axis name."""
    return site.emit(Logic("or"), x, by)


@primitive("where", on=None, condition="value", otherwise="operand", then=optional("operand"))
def _where(
    site: Site, x: Value, condition: Value, otherwise: Value | float, then: Value | float | None = None
) -> Value:
    """`then` (default: `x`) where the condition is true, `otherwise` elsewhere: values matched by name, or numbers."""
    if condition.type.dtype != "bool":
        raise site.refuse(f"needs a condition, found {condition.name}: {condition.type}", "compare two values first")
    first = x if then is None else then
    for value in (first, otherwise):
        if isinstance(value, Value) and value.type.dtype != "float32":
            raise site.refuse(f"needs float32 values, found {value.name}: {value.type}", "embed the tokens first")
    narrow = isinstance(first, Value) and set(condition.type.axes) <= set(first.type.axes)
    if isinstance(first, Value) and narrow and not isinstance(otherwise, Value):
        return site.emit(Fill(float(otherwise)), first, condition)
    return site.emit(Select(), condition, _value(site, first, "then"), _value(site, otherwise, "otherwise"))


def _value(site: Site, operand: Value | float, name: str) -> Value:
    return operand if isinstance(operand, Value) else site.emit(Constant((), (), (float(operand),)), name=name)
