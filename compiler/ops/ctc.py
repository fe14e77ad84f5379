"""Alignments of positions with tokens by connectionist temporal classification (CTC; Graves et al. 2006)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from xformc.compiler.graph.axes import Type
from xformc.compiler.graph.cost import Cost, count, moving, per_result
from xformc.compiler.graph.graph import Node, Op
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
from xformc.compiler.ops.layout import aligner, emit_aligned
from xformc.compiler.ops.masks import MASKED, NEVER

BLANK = 0
"""The token of a position that writes nothing."""


@dataclass(frozen=True)
class BlankPadding(Op):
    """Logits [.., tokens] whose softmax at padding is 1 for the blank: padding changes no alignment's probability.

    Inputs: the logits, and a mask with some of their axes that is false at padding.
    """

    kind: ClassVar[str] = "blank_padding"


@dataclass(frozen=True)
class CtcLoss(Op):
    """The negative log probability of the tokens, over all their alignments (Graves et al. 2006, equation 3).

    Inputs: logits [batch, positions, tokens], with the blank 0, and tokens [batch, length] padded with 0. The mean is
    per token. Tokens that need more positions than there are do not count.
    """

    kind: ClassVar[str] = "ctc_loss"


@types.rule(BlankPadding)
def _blank_padding_types(op: BlankPadding, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    x, mask = inputs
    require(x.dtype == "float32" and mask.dtype == "bool", f"needs logits and a mask, found {x} and {mask}")
    extra = [name for name in mask.names if name not in x.names[:-1]]
    require(not extra, f"the mask's axis {', '.join(extra)} is not in {x}")
    return (x,)


@types.rule(CtcLoss)
def _ctc_types(op: CtcLoss, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    logits, tokens = inputs
    require(len(logits.axes) == 3, f"needs logits of each position of each example, found {logits}")
    require(len(tokens.axes) == 2 and tokens.axes[0] == logits.axes[0], f"the tokens {tokens} do not fit {logits}")
    return (Type("float32"), Type("float32"), Type("int64"))


mixes.rule(BlankPadding)(mixes_nothing)
cost.rule(BlankPadding)(per_result(0))


@mixes.rule(CtcLoss)
def _ctc_mixes(op: CtcLoss, node: Node) -> frozenset[str]:
    return frozenset(node.inputs[0].type.names)


@cost.rule(CtcLoss)
def _ctc_cost(op: CtcLoss, node: Node) -> Cost:
    """A softmax, and for each position the sums over the tokens and the blanks between them."""
    logits, tokens = (value.type.axes for value in node.inputs)
    return moving(node, others=count(logits) * 5 + count((*logits[:2], *tokens[1:])) * 8)


@to_torch.rule(BlankPadding)
def _blank_padding_torch(op: BlankPadding, node: Node, torch: TorchNamespace) -> Callable[[Any, Any], Any]:
    align = aligner(node.inputs[1].type, Type("bool", node.inputs[0].type.axes))

    def apply(x: Any, mask: Any) -> Any:
        blank = torch.torch.full_like(x[..., :1], 0.0)
        others = torch.torch.full_like(x[..., 1:], NEVER)
        return torch.torch.where(align(mask), x, torch.torch.cat([blank, others], -1))

    return apply


@to_onnx.rule(BlankPadding)
def _blank_padding_onnx(op: BlankPadding, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    x, mask = inputs
    size = node.inputs[0].type.axes[-1].size or 1
    row = onnx.outermost(
        f"blank {size}", lambda root: root.op("Concat", [0.0], root.op("Expand", NEVER, [size - 1]), axis=0)
    )
    return (onnx.op("Where", emit_aligned(onnx, mask, node.inputs[1].type, node.inputs[0].type), x, row),)


@to_torch.rule(CtcLoss)
def _ctc_torch(op: CtcLoss, node: Node, torch: TorchNamespace) -> Callable[[Any, Any], Any]:
    def apply(logits: Any, tokens: Any) -> Any:
        scores = torch.functional.log_softmax(logits.float(), -1).transpose(0, 1)
        lengths = (tokens != BLANK).sum(1)
        all_positions = torch.torch.full_like(lengths, logits.shape[1])
        losses = torch.functional.ctc_loss(
            scores, tokens, all_positions, lengths, blank=BLANK, reduction="none", zero_infinity=True
        )
        real = (logits[..., 1:].amax(-1) > MASKED).sum(1)
        repeats = ((tokens[:, 1:] == tokens[:, :-1]) & (tokens[:, 1:] != BLANK)).sum(1)
        fits = lengths + repeats <= real
        total = torch.torch.where(fits, losses, 0.0).sum()
        counted = (lengths * fits).sum()
        return total / counted.clamp(min=1), total, counted

    return apply
