"""Scaled dot-product attention over named axes; causal self-attention says how it is decoded one token at a time."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any, ClassVar

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.graph import Node, Op, Value
from xformc.compiler.graph.rules import (
    OnnxEmitter,
    Stepper,
    TorchNamespace,
    mixes,
    require,
    to_onnx,
    to_step,
    to_torch,
    types,
)
from xformc.compiler.ops.layout import aligner, emit_aligned
from xformc.compiler.ops.state import Append

MASKED = -1e9
"""Added to the score of a position that may not be seen; its softmax is exactly zero in float32."""


@dataclass(frozen=True)
class Attention(Op):
    """`softmax(q . k / sqrt(d_k)) . v` (Vaswani et al. 2017, equation 1).

    Inputs: query [.., queries, d_k], key [.., keys, d_k], value [.., keys, d_v] and optionally a bool mask with the
    axis `keys`, true where a key may be seen. Axes that query and key share are batched over; axes that the query
    alone has (such as a beam over one source) become further rows of the same product. `causal`: a query sees the
    keys up to its own position, and `queries` and `keys` are the same axis. `dropout` acts on the weights.
    """

    kind: ClassVar[str] = "attention"
    queries: str
    keys: str
    causal: bool
    dropout: float = 0.0


@types.rule(Attention)
def _attention_types(op: Attention, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    query, key, value = inputs[:3]
    require(query.axes[-1] == key.axes[-1], f"query {query} and key {key} must end in the same axis")
    require(op.queries in query.names, f"the query {query} has no axis {op.queries}")
    for name, type in (("key", key), ("value", value)):
        require(type.names[-2:-1] == (op.keys,), f"the {name} {type} must have {op.keys} as its last axis but one")
    require(key.axes[:-1] == value.axes[:-1], f"key {key} and value {value} differ before their last axis")
    only_key = [name for name in key.names[:-2] if name not in query.names]
    require(not only_key, f"the key's axis {', '.join(only_key)} is not in the query {query}")
    require(not op.causal or op.queries == op.keys, "causal attention looks along one axis")
    alone = [name for name in query.names[:-1] if name not in (*key.names, op.queries)]
    require(not op.causal or not alone, f"causal attention needs the query's axis {', '.join(alone)} in the key {key}")
    if len(inputs) == 4:
        mask = inputs[3]
        wanted = (query.names[0], op.keys)
        require(mask.dtype == "bool" and mask.names == wanted, f"the mask {mask} must be bool[{', '.join(wanted)}]")
    return (Type(query.dtype, (*query.axes[:-1], value.axes[-1])),)


@mixes.rule(Attention)
def _attention_mixes(op: Attention, node: Node) -> frozenset[str]:
    return frozenset({op.keys, node.inputs[0].type.names[-1]})


@to_step.rule(Attention)
def _attention_step(op: Attention, node: Node, step: Stepper) -> tuple[Value, ...]:
    query, key, value = node.inputs[:3]
    if not step.carries_time(key):
        raise step.refuse("it looks along the time axis through something other than its keys")
    if not op.causal:
        raise step.refuse("every position sees the ones after it; make the attention causal")
    if len(node.inputs) == 4:
        raise step.refuse("a mask over the positions that are being decoded has no step")
    seen = [_append(part, step) for part in (key, value)]
    name = node.outputs[0].name
    return (step.emit(replace(op, keys="seen", causal=False), (step.value(query), *seen), name),)


def _append(new: Value, step: Stepper) -> Value:
    past = Type(new.type.dtype, tuple(Axis("past") if a.name == step.time else a for a in new.type.axes))
    cache = step.state(f"{new.name}/cache", past)
    seen = step.emit(Append(step.time, "past", "seen"), (cache, step.value(new)), f"{new.name}/seen")
    step.carry(cache, seen)
    return seen


@dataclass(frozen=True)
class _Plan:
    """The orders of axes in which attention is a batch of matrix products [batch.., rows, d] x [batch.., keys, d]."""

    query: Type
    key: Type
    value: Type
    batch: tuple[str, ...]
    rows: tuple[str, ...]
    product: Type
    result: Type

    @property
    def folded(self) -> bool:
        return len(self.rows) != 1


def _plan(op: Attention, node: Node) -> _Plan:
    query, key, value = (item.type for item in node.inputs[:3])
    depth = query.axes[-1]
    batch = tuple(name for name in key.names[:-2] if name in query.names)
    rows = tuple(name for name in query.names[:-1] if name not in batch)
    leading = tuple(query.axis(name) for name in (*batch, *rows))
    return _Plan(
        Type(query.dtype, (*leading, depth)),
        Type(key.dtype, (*(key.axis(name) for name in (*batch, op.keys)), depth)),
        Type(value.dtype, (*(value.axis(name) for name in (*batch, op.keys)), value.axes[-1])),
        batch,
        rows,
        Type(query.dtype, (*leading, value.axes[-1])),
        node.outputs[0].type,
    )


@to_torch.rule(Attention)
def _attention_torch(op: Attention, node: Node, torch: TorchNamespace) -> Callable[..., Any]:
    plan = _plan(op, node)
    order = tuple(
        aligner(item.type, wanted)
        for item, wanted in zip(node.inputs[:3], (plan.query, plan.key, plan.value), strict=True)
    )
    restore = aligner(plan.product, plan.result)
    attend = torch.functional.scaled_dot_product_attention
    batch, rows = len(plan.batch), len(plan.rows)

    def apply(query: Any, key: Any, value: Any, mask: Any = None) -> Any:
        query, key, value = order[0](query), order[1](key), order[2](value)
        shape = query.shape[batch : batch + rows]
        if plan.folded:
            query = query.flatten(batch, batch + rows - 1)
        if mask is not None:
            mask = mask.view(mask.shape[0], *([1] * batch), mask.shape[-1])
        result = attend(
            query, key, value, attn_mask=mask, is_causal=op.causal, dropout_p=op.dropout if torch.training else 0.0
        )
        return restore(result.unflatten(batch, shape) if plan.folded else result)

    return apply


@to_onnx.rule(Attention)
def _attention_onnx(op: Attention, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    plan = _plan(op, node)
    wanted = (plan.query, plan.key, plan.value)
    query, key, value = (
        emit_aligned(onnx, name, item.type, type)
        for name, item, type in zip(inputs[:3], node.inputs[:3], wanted, strict=True)
    )
    if plan.folded:
        axes, batch = plan.query.axes, len(plan.batch)
        query = onnx.op("Reshape", query, onnx.merged(*((a,) for a in axes[:batch]), axes[batch:-1], axes[-1:]))
    scale = 1 / sqrt(_depth(plan.query))
    scores = _scores(onnx, query, key, scale, len(plan.batch) + 2)
    if op.causal:
        scores = onnx.op("Add", scores, _causal(onnx, plan.key.axes[-2]))
    if len(inputs) == 4:
        scores = onnx.op("Add", scores, _masked(onnx, inputs[3], len(plan.batch)))
    product = onnx.op("MatMul", onnx.op("Softmax", scores, axis=-1), value)
    if plan.folded:
        product = onnx.op("Reshape", product, onnx.shape(plan.product.axes))
    return (emit_aligned(onnx, product, plan.product, plan.result),)


def _depth(query: Type) -> int:
    size = query.axes[-1].size
    assert size is not None
    return size


def _scores(onnx: OnnxEmitter, query: str, key: str, scale: float, rank: int) -> str:
    if onnx.fused:
        return onnx.op("FusedMatMul", query, key, domain="com.microsoft", transB=1, alpha=scale)
    scaled = onnx.op("Mul", query, scale)
    order = [*range(rank - 2), rank - 1, rank - 2]
    return onnx.op("MatMul", scaled, onnx.op("Transpose", key, perm=order))


def _causal(onnx: OnnxEmitter, axis: Axis) -> str:
    def make() -> str:
        masked = onnx.op("Expand", MASKED, onnx.merged((axis,), (axis,)))
        return onnx.op("Trilu", masked, 1, upper=1)

    return onnx.once(f"causal {axis.name}", make)


def _masked(onnx: OnnxEmitter, mask: str, batch: int) -> str:
    def make() -> str:
        bias = onnx.op("Where", mask, 0.0, MASKED)
        return onnx.op("Unsqueeze", bias, [*range(1, batch + 1)])

    return onnx.once(f"bias of {mask} over {batch}", make)
