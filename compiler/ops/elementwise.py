"""Ops that work on each number alone, or on pairs matched by axis name: activations, arithmetic and dropout."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from xformc.compiler.graph.axes import Type
from xformc.compiler.graph.cost import per_result
from xformc.compiler.graph.graph import Node, Op, Value
from xformc.compiler.graph.primitives import Applied, Site, checked_probability, primitive
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
from xformc.compiler.ops.layout import aligner, emit_aligned, union


@dataclass(frozen=True)
class Unary(Op):
    """`function(x)`; the functions are the keys of UNARY."""

    kind: ClassVar[str] = "unary"
    function: str


UNARY: dict[str, tuple[str, str]] = {
    "relu": ("relu", "Relu"),
    "gelu": ("gelu", "Gelu"),
    "tanh": ("tanh", "Tanh"),
    "sigmoid": ("sigmoid", "Sigmoid"),
    "silu": ("silu", ""),
    "elu": ("elu", ""),
    "exp": ("exp", "Exp"),
}
"""Each function's name in torch and in ONNX, where it has one; elu is x, or exp(x) - 1 where x is negative."""

FADES: dict[Hidden, frozenset[str]] = {
    "zero": frozenset({"relu", "gelu", "tanh", "silu", "elu"}),
    "masked": frozenset({"relu", "gelu", "silu", "sigmoid", "exp"}),
    "open": frozenset(),
}
"""The functions that give exactly zero for zero, and for MASKED."""

LARGEST_SHIFT = 1e6
"""What may be added to MASKED so that its softmax stays zero."""


@dataclass(frozen=True)
class Add(Op):
    """`a + b`, matched by axis name; an axis that one side lacks is broadcast."""

    kind: ClassVar[str] = "add"


@dataclass(frozen=True)
class Multiply(Op):
    """`a * b`, matched by axis name; an axis that one side lacks is broadcast."""

    kind: ClassVar[str] = "multiply"


@dataclass(frozen=True)
class Divide(Op):
    """`a / b`, matched by axis name; an axis that one side lacks is broadcast."""

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
class Dropout(Op):
    """Each number is zero with this probability, the others grow to keep the mean; only while training."""

    kind: ClassVar[str] = "dropout"
    probability: float


def _same(op: Op, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    (x,) = inputs
    return (x,)


def _binary_types(op: Op, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    first, second = inputs
    require(first.dtype == second.dtype, f"needs one dtype, found {first.dtype} and {second.dtype}")
    return (Type(first.dtype, union(first.axes, second.axes)),)


for _op in (Unary, Scale, Shift, Dropout):
    types.rule(_op)(_same)
for _op in (Add, Multiply, Divide):
    types.rule(_op)(_binary_types)
for _op in (Unary, Add, Multiply, Divide, Scale, Shift, Dropout):
    mixes.rule(_op)(mixes_nothing)
    cost.rule(_op)(per_result(1))


@hidden.rule(Unary)
def _unary_hidden(op: Unary, node: Node, inputs: tuple[Hidden, ...], keys: frozenset[str]) -> Hidden:
    return "zero" if op.function in FADES[inputs[0]] else "open"


@hidden.rule(Scale)
def _scale_hidden(op: Scale, node: Node, inputs: tuple[Hidden, ...], keys: frozenset[str]) -> Hidden:
    return inputs[0] if inputs[0] == "zero" or op.factor >= 1 else "open"


@hidden.rule(Shift)
def _shift_hidden(op: Shift, node: Node, inputs: tuple[Hidden, ...], keys: frozenset[str]) -> Hidden:
    return inputs[0] if inputs[0] == "masked" and op.by <= LARGEST_SHIFT else "open"


@hidden.rule(Dropout)
def _dropout_hidden(op: Dropout, node: Node, inputs: tuple[Hidden, ...], keys: frozenset[str]) -> Hidden:
    return inputs[0] if inputs[0] == "zero" else "open"


@hidden.rule(Add)
def _add_hidden(op: Add, node: Node, inputs: tuple[Hidden, ...], keys: frozenset[str]) -> Hidden:
    return "zero" if inputs == ("zero", "zero") else "masked" if "masked" in inputs else "open"


@hidden.rule(Multiply)
def _multiply_hidden(op: Multiply, node: Node, inputs: tuple[Hidden, ...], keys: frozenset[str]) -> Hidden:
    return "zero" if "zero" in inputs else "open"


@hidden.rule(Divide)
def _divide_hidden(op: Divide, node: Node, inputs: tuple[Hidden, ...], keys: frozenset[str]) -> Hidden:
    return "zero" if inputs[0] == "zero" else "open"


@to_torch.rule(Unary)
def _unary_torch(op: Unary, node: Node, torch: TorchNamespace) -> Callable[..., Any]:
    name = UNARY[op.function][0]
    return getattr(torch.functional if hasattr(torch.functional, name) else torch.torch, name)


@to_onnx.rule(Unary)
def _unary_onnx(op: Unary, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    if op.function == "silu":
        return (onnx.op("Mul", *inputs, onnx.op("Sigmoid", *inputs)),)
    if op.function == "elu":  # ONNX's own is refused by TensorRT inside loops
        below = onnx.op("Sub", onnx.op("Exp", onnx.op("Min", *inputs, 0.0)), 1.0)
        return (onnx.op("Add", onnx.op("Relu", *inputs), below),)
    return (onnx.op(UNARY[op.function][1], *inputs),)


def matched_torch(function: Callable[[Any, Any], Any]) -> Callable[[Any, Node, TorchNamespace], Callable[..., Any]]:
    """The `to_torch` rule of a function of two values whose axes are matched by name."""

    def compile(op: Op, node: Node, torch: TorchNamespace) -> Callable[[Any, Any], Any]:
        first, second = (aligner(value.type, node.outputs[0].type) for value in node.inputs)
        return lambda a, b: function(first(a), second(b))

    return compile


def matched_onnx(kind: str) -> Callable[[Any, Node, OnnxEmitter, tuple[str, ...]], tuple[str, ...]]:
    """The `to_onnx` rule of an operator of two values whose axes are matched by name."""

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
    return lambda x: torch.dropout(x, op.probability, torch.training)


@primitive("scale", factor="number")
def _scale(site: Site, x: Value, factor: float) -> Value:
    """`x * factor`, for a number `factor`."""
    return site.emit(Scale(float(factor)), x)


@primitive("shift", by="number")
def _shift(site: Site, x: Value, by: float) -> Value:
    """`x + by`, for a number `by`."""
    return site.emit(Shift(float(by)), x)


@primitive("plus", by="value")
def _plus(site: Site, x: Value, by: Value) -> Value:
    """`x + by`, matched by axis name. The result has the axes of both."""
    return site.emit(Add(), x, _vectors(site, by))


@primitive("times", by="value")
def _times(site: Site, x: Value, by: Value) -> Value:
    """`x * by`, matched by axis name. The result has the axes of both."""
    return site.emit(Multiply(), x, _vectors(site, by))


@primitive("divide", by="value")
def _divide(site: Site, x: Value, by: Value) -> Value:
    """`x / by`, matched by axis name. The result has the axes of both."""
    return site.emit(Divide(), x, _vectors(site, by))


def _vectors(site: Site, by: Value) -> Value:
    if by.type.dtype != "float32":
        raise site.refuse(f"needs a value of numbers, found {by.name}: {by.type}", "embed the tokens first")
    return by


@primitive("dropout", probability="number")
def _dropout(site: Site, x: Value, probability: float) -> Value:
    """`x` in inference. Training zeroes each number with this probability and scales the others to keep the mean."""
    rate = checked_probability(site, "probability", probability)
    return site.emit(Dropout(rate), x) if rate else x


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


def _activation(function: str) -> None:
    def apply(site: Site, x: Value) -> Value:
        return site.emit(Unary(function), x)

    apply.__doc__ = f"The function {function}, elementwise."
    primitive(function)(apply)


for _function in UNARY:
    _activation(_function)
