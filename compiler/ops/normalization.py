"""Layer normalization and RMS normalization."""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.cost import per_result
from xformc.compiler.graph.graph import Initial, Node, Op, Value
from xformc.compiler.graph.primitives import Site, optional, primitive
from xformc.compiler.graph.rules import OnnxEmitter, TorchNamespace, cost, mixes, require, to_onnx, to_torch, types
from xformc.compiler.ops.elementwise import Add, Shift
from xformc.compiler.ops.layout import Align


@dataclass(frozen=True)
class LayerNorm(Op):
    """`gain * (x - mean) / sqrt(variance + epsilon) + bias` over the last axes (Ba et al. 2016, equation 4).

    Inputs: x, and optionally the gain, and then optionally the bias, which have these axes.
    """

    kind: ClassVar[str] = "layer_norm"
    epsilon: float
    axes: int = 1


@dataclass(frozen=True)
class RMSNorm(Op):
    """`gain * x / sqrt(mean(x^2) + epsilon)` over the last axes (Zhang and Sennrich 2019, equation 4).

    Inputs: x, and optionally the gain, which has these axes.
    """

    kind: ClassVar[str] = "rms_norm"
    epsilon: float
    axes: int = 1


def _norm_types(op: LayerNorm | RMSNorm, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    x, *learned = inputs
    last = x.axes[-op.axes :]
    require(len(last) == op.axes, f"{x} has fewer than {op.axes} axes")
    require(all(axis.size is not None for axis in last), f"the size of {_listed(last)} is known only at run time")
    for name, value in zip(("gain", "bias"), learned, strict=False):
        require(value.axes == last, f"the {name} {value} must have the last axes of {x}")
    return (x,)


def _last_axes(op: LayerNorm | RMSNorm, node: Node) -> frozenset[str]:
    return frozenset(node.inputs[0].type.names[-op.axes :])


for _op in (LayerNorm, RMSNorm):
    types.rule(_op)(_norm_types)
    mixes.rule(_op)(_last_axes)


def _sizes(op: LayerNorm | RMSNorm, node: Node) -> tuple[int, ...]:
    return Type("float32", node.inputs[0].type.axes[-op.axes :]).sizes()


@to_torch.rule(LayerNorm)
def _layer_norm_torch(op: LayerNorm, node: Node, torch: TorchNamespace) -> Callable[..., Any]:
    sizes, normalize, epsilon = _sizes(op, node), torch.functional.layer_norm, op.epsilon

    def apply(x: Any, gain: Any = None, bias: Any = None) -> Any:
        return normalize(x, sizes, gain, bias, epsilon)

    return apply


@to_onnx.rule(LayerNorm)
def _layer_norm_onnx(op: LayerNorm, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    arguments = with_gain(op, node, onnx, inputs)
    return (onnx.op("LayerNormalization", *arguments, axis=-op.axes, epsilon=op.epsilon),)


def with_gain(op: LayerNorm | RMSNorm, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    """The inputs with a gain, which ONNX requires."""
    sizes = _sizes(op, node)
    return inputs if len(inputs) > 1 else (*inputs, onnx.outermost(f"ones {sizes}", lambda root: _ones(root, sizes)))


def _ones(root: OnnxEmitter, sizes: tuple[int, ...]) -> str:
    ones = root.operand([1.0] * prod(sizes))
    return ones if len(sizes) == 1 else root.op("Reshape", ones, sizes)


@to_torch.rule(RMSNorm)
def _rms_norm_torch(op: RMSNorm, node: Node, torch: TorchNamespace) -> Callable[..., Any]:
    sizes, normalize, epsilon = _sizes(op, node), torch.functional.rms_norm, op.epsilon
    halves = (torch.torch.bfloat16, torch.torch.float16)

    def apply(x: Any, gain: Any = None) -> Any:
        # Autocast runs rms_norm in half precision, but layer_norm in float32.
        return normalize(x.float() if x.dtype in halves else x, sizes, gain, epsilon)

    return apply


@to_onnx.rule(RMSNorm)
def _rms_norm_onnx(op: RMSNorm, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    arguments = with_gain(op, node, onnx, inputs)
    return (onnx.op("RMSNormalization", *arguments, axis=-op.axes, epsilon=op.epsilon),)


cost.rule(RMSNorm)(per_result(4))
"""A square, its sum, a division and the gain."""

cost.rule(LayerNorm)(per_result(7))
"""Two sums, a difference, a square, a division, the gain and the bias."""


@primitive(
    "layer_norm",
    epsilon=optional("number"),
    over=optional("axes"),
    gain=optional("flag"),
    bias=optional("flag"),
    zero_centered=optional("flag"),
)
def _layer_norm(  # noqa: PLR0917 (called by name)
    site: Site,
    x: Value,
    epsilon: float = 1e-6,
    over: tuple[Axis, ...] | None = None,
    gain: bool = True,
    bias: bool = True,
    zero_centered: bool = False,
) -> Value:
    """The axes `over` (default: the last) normalized to mean 0 and variance 1, then a learned gain and bias.

    `zero_centered`: the gain is 1 plus a weight that starts at 0.
    """
    axes, ordered = _ordered(site, x, over)
    learned = _gain(site, axes, gain, zero_centered)
    offset = (site.parameter("bias", axes, Initial("constant", 0.0)),) if bias else ()
    inside = (*learned, *offset) if learned else ()
    name = "" if ordered is x else "normal"
    result = site.emit(LayerNorm(_checked(site, epsilon), len(axes)), ordered, *inside, name=name)
    return _restored(site, x, result if inside or not offset else site.emit(Add(), result, *offset))


@primitive(
    "rms_norm", epsilon=optional("number"), over=optional("axes"), gain=optional("flag"), zero_centered=optional("flag")
)
def _rms_norm(
    site: Site,
    x: Value,
    epsilon: float = 1e-6,
    over: tuple[Axis, ...] | None = None,
    gain: bool = True,
    zero_centered: bool = False,
) -> Value:
    """The axes `over` (default: the last) normalized to root mean square 1, then a learned gain.

    `zero_centered`: the gain is 1 plus a weight that starts at 0.
    """
    axes, ordered = _ordered(site, x, over)
    learned = _gain(site, axes, gain, zero_centered)
    name = "" if ordered is x else "normal"
    result = site.emit(RMSNorm(_checked(site, epsilon), len(axes)), ordered, *learned, name=name)
    return _restored(site, x, result)


def _ordered(site: Site, x: Value, over: tuple[Axis, ...] | None) -> tuple[tuple[Axis, ...], Value]:
    """The axes to normalize, and `x` with these last."""
    axes = (site.clear_last(x),) if over is None else over
    for axis in axes:
        if axis not in x.type.axes:
            raise site.refuse(f"its input {x.type} has no axis {axis}")
    names = tuple(axis.name for axis in axes)
    return axes, x if x.type.names[-len(names) :] == names else site.emit(Align(names), x, name="ordered")


def _restored(site: Site, x: Value, result: Value) -> Value:
    """The result with the axes in the order of `x`."""
    return result if result.type.names == x.type.names else site.emit(Align(x.type.names[1:]), result)


def _gain(site: Site, axes: tuple[Axis, ...], gain: bool, zero_centered: bool) -> tuple[Value, ...]:
    if not gain:
        return ()
    weight = site.parameter("gain", axes, Initial("constant", 0.0 if zero_centered else 1.0))
    return (site.emit(Shift(1.0), weight, name="centered") if zero_centered else weight,)


def _checked(site: Site, epsilon: float) -> float:
    if not 0 < epsilon < 1:
        raise site.refuse_number("epsilon", epsilon, "epsilon must be greater than 0 and less than 1")
    return float(epsilon)


def _listed(axes: tuple[Axis, ...]) -> str:
    return ", ".join(axis.name for axis in axes if axis.size is None)
