"""Functions of one value, elementwise: activations and the functions of a calculator."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from xformc.compiler.graph.axes import Type
from xformc.compiler.graph.cost import per_result
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
    mixes_nothing,
    mixture,
    to_onnx,
    to_torch,
    types,
)
from xformc.compiler.ops.masks import fill_padding


@dataclass(frozen=True)
class Unary(Op):
    """`function(x)`, elementwise; the functions are the keys of FUNCTIONS."""

    kind: ClassVar[str] = "unary"
    function: str


@dataclass(frozen=True)
class Function:
    """One function: its name in torch, or what makes it there; its operator in ONNX, or what writes it.

    `vanishes`: the inputs, zero and MASKED, for which it is exactly zero. `padding`: what it is applied to at padding,
    for a function without a finite value everywhere; padding must not reach other positions as 0 times infinity.
    """

    torch: str | Callable[[TorchNamespace], Callable[[Any], Any]]
    onnx: str | Callable[[OnnxEmitter, str], str]
    doc: str
    vanishes: frozenset[Hidden] = frozenset()
    padding: float | None = None


_ZERO: frozenset[Hidden] = frozenset({"zero"})
_BOTH = _ZERO | HIDING


def _elu_onnx(onnx: OnnxEmitter, x: str) -> str:
    """ONNX's own operator is refused by TensorRT inside loops."""
    below = onnx.op("Sub", onnx.op("Exp", onnx.op("Min", x, 0.0)), 1.0)
    return onnx.op("Add", onnx.op("Relu", x), below)


FUNCTIONS: dict[str, Function] = {
    "relu": Function("relu", "Relu", "max(x, 0)", _BOTH),
    "gelu": Function("gelu", "Gelu", "x times the normal distribution function of x", _BOTH),
    "gelu_tanh": Function(
        lambda torch: lambda x: torch.functional.gelu(x, approximate="tanh"),
        lambda onnx, x: onnx.op("Gelu", x, approximate="tanh"),
        "x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2",
        _BOTH,
    ),
    "tanh": Function("tanh", "Tanh", "tanh(x)", _ZERO),
    "sigmoid": Function("sigmoid", "Sigmoid", "1 / (1 + exp(-x))", HIDING),
    "silu": Function("silu", lambda onnx, x: onnx.op("Mul", x, onnx.op("Sigmoid", x)), "x sigmoid(x)", _BOTH),
    "elu": Function("elu", _elu_onnx, "x, or exp(x) - 1 for negative x", _ZERO),
    "exp": Function("exp", "Exp", "exp(x)", HIDING),
    "relu6": Function("relu6", lambda onnx, x: onnx.op("Clip", x, 0.0, 6.0), "min(max(x, 0), 6)", _BOTH),
    "hard_sigmoid": Function(
        "hardsigmoid",
        lambda onnx, x: onnx.op("HardSigmoid", x, alpha=1 / 6, beta=0.5),
        "min(max(x + 3, 0), 6) / 6",
        HIDING,
    ),
    "softplus": Function("softplus", "Softplus", "log(1 + exp(x))", HIDING),
    "erf": Function("erf", "Erf", "the error function", _ZERO),
    "log": Function("log", "Log", "the natural logarithm", padding=1.0),
    "sqrt": Function("sqrt", "Sqrt", "the square root", _ZERO, padding=0.0),
    "rsqrt": Function("rsqrt", lambda onnx, x: onnx.op("Reciprocal", onnx.op("Sqrt", x)), "1 / sqrt(x)", padding=1.0),
    "reciprocal": Function("reciprocal", "Reciprocal", "1 / x", padding=1.0),
    "square": Function("square", lambda onnx, x: onnx.op("Mul", x, x), "x^2", _ZERO),
    "abs": Function("abs", "Abs", "|x|", _ZERO),
    "sign": Function("sign", "Sign", "-1, 0 or 1", _ZERO),
    "floor": Function("floor", "Floor", "the largest whole number up to x", _ZERO),
    "sin": Function("sin", "Sin", "sin(x)", _ZERO),
    "cos": Function("cos", "Cos", "cos(x)"),
}
"""The functions by name."""

BOUNDED = frozenset({"tanh", "sigmoid", "relu6", "hard_sigmoid", "erf", "sign"})
"""The functions whose results are of ordinary size for all inputs."""

SETTLING = frozenset({"relu", "gelu", "gelu_tanh", "silu", "elu", "exp", "softplus", "sin", "cos"})
"""Those whose results are of ordinary size for very negative inputs."""

POLES = frozenset({"log", "rsqrt", "reciprocal"})
"""Those that are infinite at zero."""


@types.rule(Unary)
def _unary_types(op: Unary, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    return inputs


mixes.rule(Unary)(mixes_nothing)
cost.rule(Unary)(per_result(1))


@hidden.rule(Unary)
def _unary_hidden(op: Unary, node: Node, inputs: tuple[Hidden, ...], keys: frozenset[str]) -> Hidden:
    function, held = FUNCTIONS[op.function], inputs[0]
    if held in function.vanishes:
        return "zero"
    if held == "zero":
        return "large" if op.function in POLES else "open"
    settled = op.function in (BOUNDED if held == "large" else BOUNDED | SETTLING)
    return "open" if settled else mixture(held)


@to_torch.rule(Unary)
def _unary_torch(op: Unary, node: Node, torch: TorchNamespace) -> Callable[..., Any]:
    made = FUNCTIONS[op.function].torch
    if not isinstance(made, str):
        return made(torch)
    return getattr(torch.functional if hasattr(torch.functional, made) else torch.torch, made)


@to_onnx.rule(Unary)
def _unary_onnx(op: Unary, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    written = FUNCTIONS[op.function].onnx
    return (onnx.op(written, *inputs) if isinstance(written, str) else written(onnx, *inputs),)


@primitive("gelu", approximate=optional("word"))
def _gelu(site: Site, x: Value, approximate: str = "none") -> Value:
    """`x` times the normal distribution function of `x`, elementwise; `approximate: tanh` is GPT-2's formula."""
    if approximate not in ("none", "tanh"):
        raise site.refuse(f"'approximate' must be none or tanh, found '{approximate}'")
    return site.emit(Unary("gelu" if approximate == "none" else "gelu_tanh"), x)


def _register(name: str, function: Function) -> None:
    def apply(site: Site, x: Value) -> Value:
        held = x if function.padding is None else fill_padding(site, x, function.padding)
        return site.emit(Unary(name), held)

    apply.__doc__ = f"`{function.doc}`, elementwise."
    primitive(name)(apply)


for _name, _function in FUNCTIONS.items():
    if not _name.startswith("gelu"):
        _register(_name, _function)
