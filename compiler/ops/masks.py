"""Which positions are real: the mask of padded tokens."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from xformc.compiler.graph.axes import Type
from xformc.compiler.graph.graph import Node, Op
from xformc.compiler.graph.rules import OnnxEmitter, TorchNamespace, mixes, require, to_onnx, to_torch, types


@dataclass(frozen=True)
class PaddingMask(Op):
    """True where a token is not the padding id."""

    kind: ClassVar[str] = "padding_mask"
    pad: int


@types.rule(PaddingMask)
def _padding_mask_types(op: PaddingMask, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    (tokens,) = inputs
    require(tokens.dtype == "int64", f"needs int64 tokens, found {tokens}")
    return (Type("bool", tokens.axes),)


@mixes.rule(PaddingMask)
def _padding_mask_mixes(op: PaddingMask, node: Node) -> frozenset[str]:
    return frozenset()


@to_torch.rule(PaddingMask)
def _padding_mask_torch(op: PaddingMask, node: Node, torch: TorchNamespace) -> Callable[[Any], Any]:
    return lambda tokens: tokens != op.pad


@to_onnx.rule(PaddingMask)
def _padding_mask_onnx(op: PaddingMask, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    return (onnx.op("Not", onnx.op("Equal", *inputs, op.pad)),)
