"""The training loss: label-smoothed cross entropy, alone or fused with the projection before it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from xformc.compiler.graph.axes import Type
from xformc.compiler.graph.cost import Cost, count, moving
from xformc.compiler.graph.graph import Node, Op
from xformc.compiler.graph.rules import TorchNamespace, cost, mixes, require, to_torch, types


@dataclass(frozen=True)
class CrossEntropy(Op):
    """Label-smoothed cross entropy (Szegedy et al. 2016, section 7; `smoothing` is spread over all classes).

    Inputs: logits [.., classes] and labels [..]; positions with the label `ignore` do not count. Results, all scalars:
    the mean loss over the counted positions, the sum of the unsmoothed losses, and the count.
    """

    kind: ClassVar[str] = "cross_entropy"
    smoothing: float
    ignore: int


@dataclass(frozen=True)
class LinearCrossEntropy(Op):
    """`cross_entropy(linear(x, weight, bias), labels)` without materializing all logits.

    Inputs: x [.., d], labels [..], weight [classes, d] and optionally a bias [classes]. Results as for CrossEntropy.
    """

    kind: ClassVar[str] = "linear_cross_entropy"
    smoothing: float
    ignore: int


_RESULTS = (Type("float32"), Type("float32"), Type("int64"))


@types.rule(CrossEntropy)
def _cross_entropy_types(op: CrossEntropy, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    logits, labels = inputs
    require(logits.axes[:-1] == labels.axes, f"the labels {labels} do not fit the logits {logits}")
    return _RESULTS


@types.rule(LinearCrossEntropy)
def _linear_cross_entropy_types(op: LinearCrossEntropy, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    x, labels = inputs[:2]
    require(x.axes[:-1] == labels.axes, f"the labels {labels} do not fit {x}")
    return _RESULTS


def _all_mixed(op: Op, node: Node) -> frozenset[str]:
    return frozenset(node.inputs[0].type.names)


for _op in (CrossEntropy, LinearCrossEntropy):
    mixes.rule(_op)(_all_mixed)


@to_torch.rule(CrossEntropy)
def _cross_entropy_torch(op: CrossEntropy, node: Node, torch: TorchNamespace) -> Callable[..., Any]:
    cross_entropy = torch.functional.cross_entropy

    def apply(logits: Any, labels: Any) -> Any:
        logits, labels = logits.flatten(0, -2).float(), labels.flatten()
        smooth = cross_entropy(logits, labels, ignore_index=op.ignore, label_smoothing=op.smoothing)
        plain = cross_entropy(logits, labels, ignore_index=op.ignore, reduction="sum")
        return smooth, plain, (labels != op.ignore).sum()

    return apply


@to_torch.rule(LinearCrossEntropy)
def _linear_cross_entropy_torch(op: LinearCrossEntropy, node: Node, torch: TorchNamespace) -> Callable[..., Any]:
    def apply(x: Any, labels: Any, weight: Any, bias: Any = None) -> Any:
        rows = x.flatten(0, -2)
        return torch.linear_cross_entropy(rows, weight, bias, labels.flatten(), op.smoothing, op.ignore)

    return apply


@cost.rule(CrossEntropy)
def _cross_entropy_cost(op: CrossEntropy, node: Node) -> Cost:
    return moving(node, others=count(node.inputs[0].type.axes) * 5)


@cost.rule(LinearCrossEntropy)
def _linear_cross_entropy_cost(op: LinearCrossEntropy, node: Node) -> Cost:
    """The matrix product of the projection in the forward pass, and the operations of a softmax per logit."""
    x, _, weight = (value.type for value in node.inputs[:3])
    logits = count((*x.axes[:-1], weight.axes[0]))
    return moving(node, logits * count(x.axes[-1:]) * 2, logits * (len(node.inputs) + 2))
