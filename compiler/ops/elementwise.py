"""Elementwise ops of two values matched by axis name, or of a value and a number; and dropout."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from xformc.compiler.graph.axes import Type
from xformc.compiler.graph.cost import per_result
from xformc.compiler.graph.graph import Node, Op, Value
from xformc.compiler.graph.primitives import Applied, Site, checked_probability, optional, primitive
from xformc.compiler.graph.rules import (
    HIDING,
    LEAST_FACTOR,
    Hidden,
    OnnxEmitter,
    TorchNamespace,
    cost,
    hidden,
    mixes,
    mixes_nothing,
    mixture,
    require,
    to_onnx,
    to_torch,
    types,
)
from xformc.compiler.ops.layout import aligner, emit_aligned, union
from xformc.compiler.ops.masks import content, fill_padding


@dataclass(frozen=True)
class Add(Op):
    """`a + b`; axes are matched by name and broadcast."""

    kind: ClassVar[str] = "add"


@dataclass(frozen=True)
class Multiply(Op):
    """`a * b`; axes are matched by name and broadcast."""

    kind: ClassVar[str] = "multiply"


@dataclass(frozen=True)
class Divide(Op):
    """`a / b`; axes are matched by name and broadcast."""

    kind: ClassVar[str] = "divide"


@dataclass(frozen=True)
class Scale(Op):
    """`factor * x`."""

    kind: ClassVar[str] = "scale"
    factor: float


@dataclass(frozen=True)
class Shift(Op):
    """`x + by`."""

    kind: ClassVar[str] = "shift"
    by: float


@dataclass(frozen=True)
class Binary(Op):
    """`function(a, b)`, where `b` is the second input or the number `by`; the functions are the keys of BINARY."""

    kind: ClassVar[str] = "binary"
    function: str
    by: float | None = None


BINARY: dict[str, tuple[str, str]] = {
    "minus": ("subtract", "Sub"),
    "minimum": ("minimum", "Min"),
    "maximum": ("maximum", "Max"),
    "power": ("pow", "Pow"),
}
"""The name of each function in torch and in ONNX; axes are matched by name and broadcast."""


@dataclass(frozen=True)
class Dropout(Op):
    """During training, zero each element with this probability and scale the others to keep the mean.

    With `each`, what lies at one entry of this axis is zeroed together.
    """

    kind: ClassVar[str] = "dropout"
    probability: float
    each: str | None = None


def _same(op: Op, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    (x,) = inputs
    return (x,)


def _binary_types(op: Op, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    first, second = inputs
    require(first.dtype == second.dtype, f"needs two values of the same dtype, found {first.dtype} and {second.dtype}")
    return (Type(first.dtype, union(first.axes, second.axes)),)


for _op in (Scale, Shift, Dropout):
    types.rule(_op)(_same)
for _op in (Add, Multiply, Divide):
    types.rule(_op)(_binary_types)
for _op in (Add, Multiply, Divide, Binary, Scale, Shift, Dropout):
    mixes.rule(_op)(mixes_nothing)
    cost.rule(_op)(per_result(1))


@types.rule(Binary)
def _function_types(op: Binary, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    return inputs if op.by is not None else _binary_types(op, inputs)


@hidden.rule(Scale)
def _scale_hidden(op: Scale, node: Node, inputs: tuple[Hidden, ...], keys: frozenset[str]) -> Hidden:
    """A small factor may undo a mask, and so may several that are not so small.

    A low number that is scaled up may be below MASKED at the keys that a query sees, and then later keys would count.
    """
    (held,) = inputs
    if held not in (*HIDING, "low"):
        return held
    if op.factor < 0 or (held == "low" and op.factor > 1):
        return "large"
    if op.factor >= 1:
        return held
    return "faint" if held == "masked" and op.factor >= LEAST_FACTOR else "low"


@hidden.rule(Shift)
def _shift_hidden(op: Shift, node: Node, inputs: tuple[Hidden, ...], keys: frozenset[str]) -> Hidden:
    return _sum(inputs[0], content(op.by))


@hidden.rule(Dropout)
def _dropout_hidden(op: Dropout, node: Node, inputs: tuple[Hidden, ...], keys: frozenset[str]) -> Hidden:
    return inputs[0] if inputs[0] == "zero" else mixture(*inputs)


@hidden.rule(Add)
def _add_hidden(op: Add, node: Node, inputs: tuple[Hidden, ...], keys: frozenset[str]) -> Hidden:
    return _sum(*inputs)


def _sum(first: Hidden, second: Hidden) -> Hidden:
    if first == second == "low":
        return "large"
    for held in _OUTWEIGHING:
        if held in (first, second):
            return held
    return "zero" if first == second == "zero" else "open"


_OUTWEIGHING: tuple[Hidden, ...] = ("large", "masked", "low", "faint")
"""What decides a sum, first to last."""


@hidden.rule(Multiply)
def _multiply_hidden(op: Multiply, node: Node, inputs: tuple[Hidden, ...], keys: frozenset[str]) -> Hidden:
    return "zero" if "zero" in inputs and "large" not in inputs else mixture(*inputs)


@hidden.rule(Divide)
def _divide_hidden(op: Divide, node: Node, inputs: tuple[Hidden, ...], keys: frozenset[str]) -> Hidden:
    if inputs[1] in ("zero", "large"):
        return "large"
    return "zero" if inputs[0] == "zero" else mixture(inputs[0])


@hidden.rule(Binary)
def _function_hidden(op: Binary, node: Node, inputs: tuple[Hidden, ...], keys: frozenset[str]) -> Hidden:
    first, second = inputs[0], inputs[-1] if op.by is None else content(op.by)
    if op.function == "minus":
        return _sum(first, second if second in ("zero", "open") else "large")
    if op.function == "power":
        if first == "zero":
            return "zero" if (op.by or 0) > 0 else "large"
        return mixture(first, second)
    if first == "zero" and op.by is not None and (op.by >= 0) == (op.function == "minimum"):
        return "zero"
    return _SELECTED[op.function].get(frozenset({first, second}), "large" if "large" in (first, second) else "open")


_SELECTED: dict[str, dict[frozenset[Hidden], Hidden]] = {
    "minimum": {
        **{frozenset({"masked", held}): "masked" for held in ("masked", "faint", "low", "open", "zero")},
        **{frozenset({"faint", held}): "faint" for held in ("faint", "open", "zero")},
        frozenset({"faint", "low"}): "low",
        **{frozenset({"low", held}): "low" for held in ("low", "open", "zero")},
        frozenset({"zero"}): "zero",
    },
    "maximum": {
        frozenset({"masked"}): "masked",
        **{frozenset({"faint", held}): "faint" for held in HIDING},
        **{frozenset({"low", held}): "low" for held in (*HIDING, "low")},
        **{frozenset({"zero", held}): "zero" for held in HIDING},
        frozenset({"zero"}): "zero",
    },
}
"""What the smaller and the larger of two values are, if they are neither large nor of ordinary size."""


def matched_torch(function: Callable[[Any, Any], Any]) -> Callable[[Any, Node, TorchNamespace], Callable[..., Any]]:
    """The `to_torch` rule of a binary function with axes matched by name."""

    def compile(op: Op, node: Node, torch: TorchNamespace) -> Callable[[Any, Any], Any]:
        first, second = (aligner(value.type, node.outputs[0].type) for value in node.inputs)
        return lambda a, b: function(first(a), second(b))

    return compile


def matched_onnx(kind: str) -> Callable[[Any, Node, OnnxEmitter, tuple[str, ...]], tuple[str, ...]]:
    """The `to_onnx` rule of a binary operator with axes matched by name."""

    def emit(op: Op, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
        operands = [
            emit_aligned(onnx, name, value.type, node.outputs[0].type)
            for name, value in zip(inputs, node.inputs, strict=True)
        ]
        return (onnx.op(kind, *operands),)

    return emit


_ARITHMETIC: dict[type[Op], tuple[str, Callable[[Any, Any], Any]]] = {
    Add: ("Add", lambda a, b: a + b),
    Multiply: ("Mul", lambda a, b: a * b),
    Divide: ("Div", lambda a, b: a / b),
}

for _op, (_kind, _function) in _ARITHMETIC.items():
    to_torch.rule(_op)(matched_torch(_function))
    to_onnx.rule(_op)(matched_onnx(_kind))


@to_torch.rule(Binary)
def _function_torch(op: Binary, node: Node, torch: TorchNamespace) -> Callable[..., Any]:
    function, by = getattr(torch.torch, BINARY[op.function][0]), op.by
    if by is None:
        return matched_torch(function)(op, node, torch)
    clamps = {"minimum": {"max": by}, "maximum": {"min": by}}

    def apply(x: Any) -> Any:
        return x.clamp(**clamps[op.function]) if op.function in clamps else function(x, by)

    return apply


@to_onnx.rule(Binary)
def _function_onnx(op: Binary, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    kind = BINARY[op.function][1]
    return matched_onnx(kind)(op, node, onnx, inputs) if op.by is None else (onnx.op(kind, *inputs, op.by),)


@to_torch.rule(Scale)
def _scale_torch(op: Scale, node: Node, torch: TorchNamespace) -> Callable[[Any], Any]:
    return lambda x: x * op.factor


@to_onnx.rule(Scale)
def _scale_onnx(op: Scale, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    return (onnx.op("Mul", *inputs, float(op.factor)),)


@to_torch.rule(Shift)
def _shift_torch(op: Shift, node: Node, torch: TorchNamespace) -> Callable[[Any], Any]:
    return lambda x: x + op.by


@to_onnx.rule(Shift)
def _shift_onnx(op: Shift, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    return (onnx.op("Add", *inputs, float(op.by)),)


@to_torch.rule(Dropout)
def _dropout_torch(op: Dropout, node: Node, torch: TorchNamespace) -> Callable[[Any], Any]:
    if op.each is None:
        return lambda x: torch.dropout(x, op.probability, torch.training)
    shape = [-1 if name == op.each else 1 for name in node.inputs[0].type.names]
    index = shape.index(-1)

    def apply(x: Any) -> Any:
        kept = torch.dropout(x.new_ones(x.shape[index]), op.probability, torch.training)
        return x * kept.reshape(shape) if torch.training else x

    return apply


@primitive("scale", factor="number")
def _scale(site: Site, x: Value, factor: float) -> Value:
    """`x * factor`, for a number `factor`."""
    return site.emit(Scale(float(factor)), x)


@primitive("shift", by="number")
def _shift(site: Site, x: Value, by: float) -> Value:
    """`x + by`, for a number `by`."""
    return site.emit(Shift(float(by)), x)


@primitive("plus", by="operand")
def _plus(site: Site, x: Value, by: Value | float) -> Value:
    """`x + by`, for a value matched by axis name or a number. The result has the axes of both."""
    return site.emit(Add(), x, _matched(site, x, by)) if isinstance(by, Value) else _shift(site, x, by)


@primitive("minus", by="operand")
def _minus(site: Site, x: Value, by: Value | float) -> Value:
    """`x - by`, for a value matched by axis name or a number. The result has the axes of both."""
    return site.emit(Binary("minus"), x, _matched(site, x, by)) if isinstance(by, Value) else _shift(site, x, -by)


@primitive("times", by="operand")
def _times(site: Site, x: Value, by: Value | float) -> Value:
    """`x * by`, for a value matched by axis name or a number. The result has the axes of both."""
    return site.emit(Multiply(), x, _matched(site, x, by)) if isinstance(by, Value) else _scale(site, x, by)


@primitive("divide", by="operand")
def _divide(site: Site, x: Value, by: Value | float) -> Value:
    """`x / by`, for a value matched by axis name or a number. The result has the axes of both."""
    if isinstance(by, Value):
        return site.emit(Divide(), x, fill_padding(site, _matched(site, x, by), 1.0))
    if by == 0:
        raise site.refuse_number("by", by, "the number to divide by must not be 0")
    return _scale(site, x, 1 / by)


@primitive("minimum", by="operand")
def _minimum(site: Site, x: Value, by: Value | float) -> Value:
    """The smaller of `x` and `by`, a value matched by axis name or a number. The result has the axes of both."""
    return _binary(site, "minimum", x, by)


@primitive("maximum", by="operand")
def _maximum(site: Site, x: Value, by: Value | float) -> Value:
    """The larger of `x` and `by`, a value matched by axis name or a number. The result has the axes of both."""
    return _binary(site, "maximum", x, by)


@primitive("power", by="operand")
def _power(site: Site, x: Value, by: Value | float) -> Value:
    """`x` to the power of `by`, a value matched by axis name or a number. The result has the axes of both."""
    return _binary(site, "power", fill_padding(site, x, 1.0), by)


def _binary(site: Site, function: str, x: Value, by: Value | float) -> Value:
    if isinstance(by, Value):
        return site.emit(Binary(function), x, _matched(site, x, by))
    return site.emit(Binary(function, float(by)), x)


def _matched(site: Site, x: Value, by: Value) -> Value:
    """`by`, checked to be vectors that have the positions of `x`, or none, or more. Raises: UserError."""
    if by.type.dtype != "float32":
        raise site.refuse(f"needs float32 values, found {by.name}: {by.type}", "embed the tokens first")
    mine, its = ({name for name in value.type.names if site.holds_positions(name)} for value in (x, by))
    if mine - its and its - mine:
        message = f"would match every position of {x.name}: {x.type} with every one of {by.name}: {by.type}"
        hint = "declare an input along another one if both have the same positions, or use as_keys for all pairs"
        raise site.refuse(message, hint)
    return by


@primitive("dropout", probability="number", each=optional("name"))
def _dropout(site: Site, x: Value, probability: float, each: str | None = None) -> Value:
    """`x` in inference. Training zeroes each number with this probability and scales the others to keep the mean.

    `each`: an axis; what lies at one entry of it is zeroed together. `each: batch` at the end of a residual branch is
    stochastic depth (Huang et al., 2016).
    """
    rate = checked_probability(site, "probability", probability)
    axis = each if each is None or (each == "batch" and "batch" in x.type.names) else site.axis(x, each).name
    return site.emit(Dropout(rate, axis), x) if rate else x


@primitive("residual", transparent=True, body="block")
def _residual(site: Site, x: Value, body: Applied) -> Value:
    """`x + body(x)`."""
    change = body(x)
    if not set(change.type.axes) <= set(x.type.axes) or change.type.dtype != x.type.dtype:
        raise site.refuse(f"{change.type} cannot be added to {x.type}", "a residual keeps the axes of its input")
    return site.emit(Add(), x, change, name="sum")


@primitive("add", transparent=True, step="block")
def _add(site: Site, x: Value, step: Applied) -> Value:
    """`x + step(x)`: the same as `residual`, for parts of the input itself, such as its positions."""
    return _residual(site, x, step)
