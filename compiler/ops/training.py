"""Ops that only training has: noise, and values without a gradient. The pass `inference` removes them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from xformc.compiler.graph.axes import Type
from xformc.compiler.graph.cost import FREE, per_result
from xformc.compiler.graph.graph import Node, Op, Value
from xformc.compiler.graph.primitives import Site, primitive
from xformc.compiler.graph.rules import (
    OnnxEmitter,
    TorchNamespace,
    cost,
    hidden,
    hidden_as_given,
    mixes,
    mixes_nothing,
    to_onnx,
    to_torch,
    types,
)
from xformc.compiler.ops.elementwise import Dropout


@dataclass(frozen=True)
class Noise(Op):
    """During training, `x` plus normal noise with this deviation."""

    kind: ClassVar[str] = "noise"
    deviation: float


@dataclass(frozen=True)
class StopGradient(Op):
    """`x`, to whose parameters no gradient flows from here."""

    kind: ClassVar[str] = "stop_gradient"


RANDOM = (Dropout, Noise)
"""The ops that draw random numbers in training, so that equal nodes differ."""

TRAINING_ONLY = (*RANDOM, StopGradient)
"""The ops that return their input outside training."""


@types.rule(Noise)
def _noise_types(op: Noise, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    return inputs


types.rule(StopGradient)(lambda op, inputs: inputs)
for _op in (Noise, StopGradient):
    mixes.rule(_op)(mixes_nothing)
cost.rule(Noise)(per_result(1))
cost.rule(StopGradient)(lambda op, node: FREE)
hidden.rule(StopGradient)(hidden_as_given)


@to_torch.rule(Noise)
def _noise_torch(op: Noise, node: Node, torch: TorchNamespace) -> Callable[[Any], Any]:
    return lambda x: x + op.deviation * torch.torch.randn_like(x) if torch.training else x


@to_torch.rule(StopGradient)
def _stop_gradient_torch(op: StopGradient, node: Node, torch: TorchNamespace) -> Callable[[Any], Any]:
    return lambda x: x.detach()


@to_onnx.rule(Noise)
def _noise_onnx(op: Noise, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    return (onnx.op("Identity", *inputs),)


to_onnx.rule(StopGradient)(lambda op, node, onnx, inputs: (onnx.op("Identity", *inputs),))


@primitive("noise", deviation="number")
def _noise(site: Site, x: Value, deviation: float) -> Value:
    """`x` in inference. Training adds normal noise with this deviation to each number."""
    if deviation < 0:
        raise site.refuse_number("deviation", deviation, "the deviation must not be negative")
    return site.emit(Noise(float(deviation)), x) if deviation else x


@primitive("stop_gradient")
def _stop_gradient(site: Site, x: Value) -> Value:
    """`x`, but training does not change what computes it because of what follows."""
    return site.emit(StopGradient(), x)
