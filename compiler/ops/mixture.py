"""The mixture of several distributions over one axis, as logits."""

from collections.abc import Callable
from dataclasses import dataclass
from math import log
from typing import Any, ClassVar

from xformc.compiler.graph.axes import Type
from xformc.compiler.graph.cost import per_result
from xformc.compiler.graph.graph import Node, Op
from xformc.compiler.graph.rules import OnnxEmitter, TorchNamespace, cost, mixes, require, to_onnx, to_torch, types


@dataclass(frozen=True)
class Mixture(Op):
    """`log(mean over i of softmax(x_i))` along `axis`: the log probabilities of a uniform mixture.

    Inputs: the logits of each distribution, of one type.
    """

    kind: ClassVar[str] = "mixture"
    axis: str


@types.rule(Mixture)
def _mixture_types(op: Mixture, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    first, *others = inputs
    require(op.axis in first.names, f"{first} has no axis {op.axis}")
    require(all(other == first for other in others), f"needs logits of one type, found {', '.join(map(str, inputs))}")
    return (first,)


@mixes.rule(Mixture)
def _mixture_mixes(op: Mixture, node: Node) -> frozenset[str]:
    return frozenset({op.axis})


@to_torch.rule(Mixture)
def _mixture_torch(op: Mixture, node: Node, torch: TorchNamespace) -> Callable[..., Any]:
    index, namespace = node.inputs[0].type.names.index(op.axis), torch.torch

    def apply(*logits: Any) -> Any:
        every = namespace.stack([namespace.log_softmax(one, index) for one in logits])
        return namespace.logsumexp(every, 0) - log(len(logits))

    return apply


@to_onnx.rule(Mixture)
def _mixture_onnx(op: Mixture, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    index = node.inputs[0].type.names.index(op.axis)
    every = [onnx.op("LogSoftmax", one, axis=index) for one in inputs]
    most = onnx.op("Max", *every)
    total = onnx.op("Sum", *(onnx.op("Exp", onnx.op("Sub", one, most)) for one in every))
    return (onnx.op("Sub", onnx.op("Add", onnx.op("Log", total), most), log(len(every))),)


@cost.rule(Mixture)
def _mixture_cost(op: Mixture, node: Node) -> Any:
    """Per element and distribution: the five of a softmax, and the maximum, difference, exponential and sum."""
    return per_result(9 * len(node.inputs))(op, node)
