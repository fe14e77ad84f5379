"""Layer normalization and RMS normalization."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from xformc.compiler.graph.axes import Type
from xformc.compiler.graph.cost import per_result
from xformc.compiler.graph.graph import Initial, Node, Op, Value
from xformc.compiler.graph.primitives import Site, optional, primitive
from xformc.compiler.graph.rules import OnnxEmitter, TorchNamespace, cost, mixes, require, to_onnx, to_torch, types


@dataclass(frozen=True)
class LayerNorm(Op):
    """`gain * (x - mean) / sqrt(variance + epsilon) + bias` over the last axis (Ba et al. 2016, equation 4)."""

    kind: ClassVar[str] = "layer_norm"
    epsilon: float


@dataclass(frozen=True)
class RMSNorm(Op):
    """`gain * x / sqrt(mean(x^2) + epsilon)` over the last axis (Zhang and Sennrich 2019, equation 4)."""

    kind: ClassVar[str] = "rms_norm"
    epsilon: float


@types.rule(LayerNorm)
def _layer_norm_types(op: LayerNorm, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    x, gain, bias = inputs
    require(gain.axes == x.axes[-1:] == bias.axes, f"gain {gain} and bias {bias} must have the last axis of {x}")
    return (x,)


@types.rule(RMSNorm)
def _rms_norm_types(op: RMSNorm, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    x, gain = inputs
    require(gain.axes == x.axes[-1:], f"the gain {gain} must have the last axis of {x}")
    return (x,)


def _last_axis(op: Op, node: Node) -> frozenset[str]:
    return frozenset(node.inputs[1].type.names)


mixes.rule(LayerNorm)(_last_axis)
mixes.rule(RMSNorm)(_last_axis)


@to_torch.rule(LayerNorm)
def _layer_norm_torch(op: LayerNorm, node: Node, torch: TorchNamespace) -> Callable[[Any, Any, Any], Any]:
    sizes = node.inputs[1].type.sizes()
    normalize, epsilon = torch.functional.layer_norm, op.epsilon
    return lambda x, gain, bias: normalize(x, sizes, gain, bias, epsilon)


@to_onnx.rule(LayerNorm)
def _layer_norm_onnx(op: LayerNorm, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    return (onnx.op("LayerNormalization", *inputs, axis=-1, epsilon=op.epsilon),)


@to_torch.rule(RMSNorm)
def _rms_norm_torch(op: RMSNorm, node: Node, torch: TorchNamespace) -> Callable[[Any, Any], Any]:
    sizes = node.inputs[1].type.sizes()
    normalize, epsilon = torch.functional.rms_norm, op.epsilon
    # Autocast runs rms_norm in half precision, but layer_norm in float32.
    return lambda x, gain: normalize(x.to(gain.dtype), sizes, gain, epsilon)


@to_onnx.rule(RMSNorm)
def _rms_norm_onnx(op: RMSNorm, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    return (onnx.op("RMSNormalization", *inputs, axis=-1, epsilon=op.epsilon),)


cost.rule(RMSNorm)(per_result(4))
"""A square, its sum, a division and the gain."""

cost.rule(LayerNorm)(per_result(7))
"""Two sums, a difference, a square, a division, the gain and the bias."""


@primitive("layer_norm", epsilon=optional("number"))
def _layer_norm(site: Site, x: Value, epsilon: float = 1e-6) -> Value:
    """The last axis normalized to mean 0 and variance 1, then a learned gain and bias."""
    _check(site, epsilon)
    gain = site.parameter("gain", (site.last(x),), Initial("constant", 1.0))
    bias = site.parameter("bias", (site.last(x),), Initial("constant", 0.0))
    return site.emit(LayerNorm(float(epsilon)), x, gain, bias)


@primitive("rms_norm", epsilon=optional("number"))
def _rms_norm(site: Site, x: Value, epsilon: float = 1e-6) -> Value:
    """The last axis normalized to root mean square 1, then a learned gain."""
    _check(site, epsilon)
    gain = site.parameter("gain", (site.last(x),), Initial("constant", 1.0))
    return site.emit(RMSNorm(float(epsilon)), x, gain)


def _check(site: Site, epsilon: float) -> None:
    if not 0 < epsilon < 1:
        raise site.refuse_number("epsilon", epsilon, "epsilon must be greater than 0 and less than 1")
