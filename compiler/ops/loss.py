"""The losses of training. Each returns the mean loss, the sum, and the count, all scalars."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from xformc.compiler.graph.axes import Type
from xformc.compiler.graph.cost import Cost, count, moving, per_result
from xformc.compiler.graph.graph import Node, Op, Value
from xformc.compiler.graph.primitives import Site, primitive
from xformc.compiler.graph.rules import TorchNamespace, cost, mixes, mixes_nothing, require, to_torch, types
from xformc.compiler.ops.windows import MAX_REACH


@dataclass(frozen=True)
class CrossEntropy(Op):
    """Label-smoothed cross entropy (Szegedy et al. 2016, section 7; `smoothing` is spread over all classes).

    Inputs: logits [.., classes] and labels [..]; positions with the label `ignore` do not count. Results, all scalars:
    the mean loss over the counted positions, the sum of the unsmoothed losses, and the count.

    With `agreement`, training gives each row twice, first all rows and then all again, and dropout makes the two differ
    (R-Drop; Liang et al. 2021, equation 4). The mean is over both, plus `agreement` times a quarter of KL(P1 || P2) +
    KL(P2 || P1): half of the paper's loss, whose factor alpha is `agreement`. The sum and the count are those of one.
    """

    kind: ClassVar[str] = "cross_entropy"
    smoothing: float
    ignore: int
    agreement: float = 0.0


@dataclass(frozen=True)
class LinearCrossEntropy(Op):
    """`cross_entropy(linear(x, weight, bias), labels)` without materializing all logits.

    Inputs: x [.., d], labels [..], weight [classes, d] and optionally a bias [classes]. Results as for CrossEntropy.
    """

    kind: ClassVar[str] = "linear_cross_entropy"
    smoothing: float
    ignore: int
    agreement: float = 0.0


@dataclass(frozen=True)
class BinaryCrossEntropy(Op):
    """The cross entropy of each label by itself, for several labels at once.

    Inputs: logits and targets of the same type; targets are 0 or 1, and NaN does not count.
    """

    kind: ClassVar[str] = "binary_cross_entropy"


@dataclass(frozen=True)
class Deviation(Op):
    """The squared or the absolute error. Inputs: numbers and targets of one type; the target NaN does not count."""

    kind: ClassVar[str] = "deviation"
    squared: bool


@dataclass(frozen=True)
class Contrastive(Op):
    """The contrastive loss within a batch (NT-Xent; Chen et al. 2020, equation 1), of cosine similarities.

    Inputs: vectors [batch, d] and groups [batch]; rows of the same group are similar. A row's loss is the cross entropy
    of its similarities, divided by `temperature`, to all other rows, against those of its group. A row without another
    row of its group does not count.
    """

    kind: ClassVar[str] = "contrastive"
    temperature: float


@dataclass(frozen=True)
class AuxiliaryLoss(Op):
    """The identity. Training adds `weight` times the mean of the value to the loss (see MeanLoss)."""

    kind: ClassVar[str] = "auxiliary_loss"
    kept = True
    weight: float


@dataclass(frozen=True)
class LaterTokenLoss(AuxiliaryLoss):
    """The identity on logits. Training adds `weight` times the mean cross entropy of a later token to the loss.

    It is that of the written text `ahead` after each position, where 1 is the next one, without label smoothing.
    """

    kind: ClassVar[str] = "later_token_loss"
    ahead: int


@dataclass(frozen=True)
class LaterLabels(Op):
    """The label `by` positions after each one, along the second axis; `ignore` where there is none."""

    kind: ClassVar[str] = "later_labels"
    by: int
    ignore: int


@dataclass(frozen=True)
class MeanLoss(Op):
    """`weight` times the mean of a value, as a loss that counts once."""

    kind: ClassVar[str] = "mean_loss"
    weight: float


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


@types.rule(BinaryCrossEntropy)
@types.rule(Deviation)
def _same_types(op: Op, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    value, target = inputs
    require(value == target, f"the targets {target} do not fit {value}")
    return _RESULTS


@types.rule(Contrastive)
def _contrastive_types(op: Contrastive, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    vectors, groups = inputs
    require(len(vectors.axes) == 2, f"a contrastive loss needs one vector for each example, found {vectors}")
    require(vectors.axes[:-1] == groups.axes, f"the groups {groups} do not fit {vectors}")
    return _RESULTS


@types.rule(MeanLoss)
def _mean_types(op: MeanLoss, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    return _RESULTS


@types.rule(LaterLabels)
def _later_types(op: LaterLabels, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    require(len(inputs[0].axes) == 2, f"labels of texts have two axes, found {inputs[0]}")
    return inputs


@types.rule(AuxiliaryLoss)
@types.rule(LaterTokenLoss)
def _auxiliary_types(op: AuxiliaryLoss, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    require(inputs[0].dtype == "float32", f"a loss needs numbers, found {inputs[0]}")
    return inputs


def _all_mixed(op: Op, node: Node) -> frozenset[str]:
    return frozenset(node.inputs[0].type.names)


for _op in (CrossEntropy, LinearCrossEntropy, BinaryCrossEntropy, Deviation, Contrastive, MeanLoss):
    mixes.rule(_op)(_all_mixed)
for _op in (BinaryCrossEntropy, Deviation, MeanLoss):
    cost.rule(_op)(per_result(5))
for _op in (AuxiliaryLoss, LaterTokenLoss):
    mixes.rule(_op)(mixes_nothing)
    cost.rule(_op)(per_result(0))
mixes.rule(LaterLabels)(lambda op, node: frozenset(node.inputs[0].type.names[1:]))
cost.rule(LaterLabels)(per_result(0))


@to_torch.rule(CrossEntropy)
def _cross_entropy_torch(op: CrossEntropy, node: Node, torch: TorchNamespace) -> Callable[..., Any]:
    cross_entropy = torch.functional.cross_entropy

    def apply(logits: Any, labels: Any) -> Any:
        logits, labels = logits.flatten(0, -2).float(), labels.flatten()
        smooth = cross_entropy(logits, labels, ignore_index=op.ignore, label_smoothing=op.smoothing)
        plain = cross_entropy(logits, labels, ignore_index=op.ignore, reduction="sum")
        counted = labels != op.ignore
        if not (op.agreement and torch.training):
            return smooth, plain, counted.sum()
        first, second = torch.functional.log_softmax(logits, -1).unflatten(0, (2, -1)).unbind(0)
        divergence = ((first.exp() - second.exp()) * (first - second)).sum(-1) / 2
        both = (divergence * counted[: len(divergence)]).sum() / counted.sum().clamp(min=1)
        return smooth + op.agreement * both, plain / 2, counted.sum() // 2

    return apply


@to_torch.rule(LinearCrossEntropy)
def _linear_cross_entropy_torch(op: LinearCrossEntropy, node: Node, torch: TorchNamespace) -> Callable[..., Any]:
    def apply(x: Any, labels: Any, weight: Any, bias: Any = None) -> Any:
        rows, agreement = x.flatten(0, -2), op.agreement if torch.training else 0.0
        wanted = labels.flatten()
        return torch.linear_cross_entropy(rows, weight, bias, wanted, op.smoothing, op.ignore, agreement=agreement)

    return apply


@to_torch.rule(BinaryCrossEntropy)
def _binary_torch(op: BinaryCrossEntropy, node: Node, torch: TorchNamespace) -> Callable[..., Any]:
    return _elementwise(lambda x, y: torch.functional.binary_cross_entropy_with_logits(x, y, reduction="none"), torch)


@to_torch.rule(Deviation)
def _deviation_torch(op: Deviation, node: Node, torch: TorchNamespace) -> Callable[..., Any]:
    return _elementwise(lambda x, y: (x - y).square() if op.squared else (x - y).abs(), torch)


def _elementwise(error: Callable[[Any, Any], Any], torch: TorchNamespace) -> Callable[..., Any]:
    def apply(value: Any, target: Any) -> Any:
        counted = ~torch.torch.isnan(target)
        errors = error(value.float(), torch.torch.where(counted, target, 0.0)) * counted
        count, total = counted.sum(), errors.sum()
        return total / count.clamp(min=1), total, count

    return apply


@to_torch.rule(Contrastive)
def _contrastive_torch(op: Contrastive, node: Node, torch: TorchNamespace) -> Callable[..., Any]:
    def apply(vectors: Any, groups: Any) -> Any:
        normal = torch.functional.normalize(vectors.float(), dim=-1)
        itself = torch.torch.eye(len(groups), dtype=torch.torch.bool, device=groups.device)
        near = (groups[:, None] == groups) & ~itself
        scores = (normal @ normal.T / op.temperature).masked_fill(itself, -math.inf)
        counted = near.any(1)
        of_group = scores.masked_fill(~(near | ~counted[:, None]), -math.inf)
        losses = torch.torch.where(counted, scores.logsumexp(1) - of_group.logsumexp(1), 0.0)
        count, total = counted.sum(), losses.sum()
        return total / count.clamp(min=1), total, count

    return apply


@to_torch.rule(LaterLabels)
def _later_torch(op: LaterLabels, node: Node, torch: TorchNamespace) -> Callable[[Any], Any]:
    return lambda labels: torch.functional.pad(labels, (0, op.by), value=op.ignore)[:, op.by :]


@to_torch.rule(AuxiliaryLoss)
@to_torch.rule(LaterTokenLoss)
def _auxiliary_torch(op: AuxiliaryLoss, node: Node, torch: TorchNamespace) -> Callable[[Any], Any]:
    return lambda x: x


@to_torch.rule(MeanLoss)
def _mean_torch(op: MeanLoss, node: Node, torch: TorchNamespace) -> Callable[..., Any]:
    def apply(x: Any) -> Any:
        loss = x.float().mean() * op.weight
        return loss, loss, torch.torch.ones((), dtype=torch.torch.int64, device=x.device)

    return apply


@cost.rule(Contrastive)
def _contrastive_cost(op: Contrastive, node: Node) -> Cost:
    """Each pair of rows has a product over the width, counted as if the batch had one row per example."""
    return moving(node, count(node.inputs[0].type.axes) * 2)


@cost.rule(CrossEntropy)
def _cross_entropy_cost(op: CrossEntropy, node: Node) -> Cost:
    return moving(node, others=count(node.inputs[0].type.axes) * 5)


@cost.rule(LinearCrossEntropy)
def _linear_cross_entropy_cost(op: LinearCrossEntropy, node: Node) -> Cost:
    """The matrix product of the projection in the forward pass, and the operations of a softmax per logit."""
    x, _, weight = (value.type for value in node.inputs[:3])
    logits = count((*x.axes[:-1], weight.axes[0]))
    return moving(node, logits * count(x.axes[-1:]) * 2, logits * (len(node.inputs) + 2))


@primitive("auxiliary_loss", weight="number")
def _auxiliary_loss(site: Site, x: Value, weight: float) -> Value:
    """`x`. Training adds `weight` times its mean to the loss, such as that of the balance of experts."""
    return site.emit(AuxiliaryLoss(float(weight)), x)


@primitive("later_token_loss", ahead="number", weight="number")
def _later_token_loss(site: Site, x: Value, ahead: float, weight: float) -> Value:
    """`x`, logits for each position of the written text. Training adds `weight` times the mean cross entropy of a later
    token to the loss: `ahead: 1` is the next one, `ahead: 2` the one after it.
    """
    if x.type != site.logits():
        raise site.refuse(f"needs {site.logits() or 'logits of a written text'}, found {x.type}")
    if ahead != int(ahead) or not 1 <= ahead <= MAX_REACH:
        raise site.refuse_number("ahead", ahead, f"'ahead' must be a whole number from 1 to {MAX_REACH}")
    return site.emit(LaterTokenLoss(float(weight), int(ahead)), x)
