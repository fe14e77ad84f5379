"""Batch normalization, whose statistics training collects and inference keeps."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from xformc.compiler.graph.axes import Type
from xformc.compiler.graph.cost import per_result
from xformc.compiler.graph.graph import Initial, Node, Op, Value
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
from xformc.compiler.ops.layout import aligner


@dataclass(frozen=True)
class BatchNorm(Op):
    """`gain * (x - mean) / sqrt(variance + epsilon) + bias` for each element of the last axis (Ioffe and Szegedy 2015).

    Inputs: x; mean, variance, gain and bias, which have its last axis; any number of masks with other axes of it, true
    at real positions. Training takes mean and variance from all real positions of the batch, and moves the inputs by
    the share `momentum` towards them; they are parameters without a gradient.
    """

    kind: ClassVar[str] = "batch_norm"
    epsilon: float
    momentum: float


LEARNED = 5
"""The number of inputs that inference needs."""


@types.rule(BatchNorm)
def _batch_norm_types(op: BatchNorm, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    x, *learned = inputs[:LEARNED]
    for value in learned:
        require(value.axes == x.axes[-1:], f"the parameter {value} must have the last axis of {x}")
    for mask in inputs[LEARNED:]:
        fits = mask.dtype == "bool" and set(mask.axes) <= set(x.axes[:-1])
        require(fits, f"the mask {mask} must be bool, with axes of {x} before the last")
    return (x,)


mixes.rule(BatchNorm)(mixes_nothing)
cost.rule(BatchNorm)(per_result(4))


@to_torch.rule(BatchNorm)
def _batch_norm_torch(op: BatchNorm, node: Node, torch: TorchNamespace) -> Callable[..., Any]:
    x = node.inputs[0].type
    aligned = [aligner(mask.type, Type("bool", x.axes[:-1])) for mask in node.inputs[LEARNED:]]
    rows = tuple(range(len(x.axes) - 1))

    def collected(x: Any, mean: Any, variance: Any, masks: tuple[Any, ...]) -> tuple[Any, Any]:
        real = torch.torch.ones(x.shape[:-1], dtype=torch.torch.bool, device=x.device)
        for align, mask in zip(aligned, masks, strict=True):
            real = real & align(mask)
        real, count = real.unsqueeze(-1), real.sum().clamp(min=1)
        found = x.masked_fill(~real, 0.0).sum(rows) / count
        spread = (x - found).square().masked_fill(~real, 0.0).sum(rows) / count
        with torch.torch.no_grad():
            mean.lerp_(found, op.momentum)
            variance.lerp_(spread * count / (count - 1).clamp(min=1), op.momentum)
        return found, spread

    def apply(x: Any, mean: Any, variance: Any, gain: Any, bias: Any, *masks: Any) -> Any:
        x = x.to(gain.dtype)
        if torch.training:
            mean, variance = collected(x, mean, variance, masks)
        return (x - mean) * (gain * (variance + op.epsilon).rsqrt()) + bias

    return apply


@to_onnx.rule(BatchNorm)
def _batch_norm_onnx(op: BatchNorm, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    x, mean, variance, gain, bias = inputs[:LEARNED]
    factor = onnx.op("Div", gain, onnx.op("Sqrt", onnx.op("Add", variance, op.epsilon)))
    return (onnx.op("Add", onnx.op("Mul", onnx.op("Sub", x, mean), factor), bias),)


@primitive("batch_norm", epsilon=optional("number"), momentum=optional("number"))
def _batch_norm(site: Site, x: Value, epsilon: float = 1e-5, momentum: float = 0.1) -> Value:
    """Each element of the last axis normalized over the batch and all positions, then a learned gain and bias.

    Training uses the mean and variance of the batch without padding. Inference uses their running means, which training
    moves by the share `momentum` at each step and stores with the weights.
    """
    for name, value in (("epsilon", epsilon), ("momentum", momentum)):
        if not 0 < value < 1:
            raise site.refuse_number(name, value, f"{name} must be greater than 0 and less than 1")
    axes = (site.clear_last(x),)
    zero, one = Initial("constant", 0.0), Initial("constant", 1.0)
    learned = [
        site.parameter("mean", axes, zero, trained=False),
        site.parameter("variance", axes, one, trained=False),
        site.parameter("gain", axes, one),
        site.parameter("bias", axes, zero),
    ]
    masks = [site.mask(axis.name) for axis in x.type.axes if axis.size is None and axis.name != "batch"]
    return site.emit(
        BatchNorm(float(epsilon), float(momentum)), x, *learned, *(mask for mask in masks if mask is not None)
    )
