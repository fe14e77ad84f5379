"""Scaled dot-product attention as one op, made by the pass `fuse` from contractions, masks and softmax."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from xformc.compiler.graph.axes import Type
from xformc.compiler.graph.cost import Cost, count, moving
from xformc.compiler.graph.graph import Node, Op, Value
from xformc.compiler.graph.rules import (
    Hidden,
    OnnxEmitter,
    Stepper,
    TorchNamespace,
    cost,
    hidden,
    mixes,
    mixture,
    require,
    to_onnx,
    to_step,
    to_torch,
    types,
)
from xformc.compiler.ops.layout import aligner, emit_aligned
from xformc.compiler.ops.masks import MASKED, NEVER, emit_visible, reached, visible

_FLOAT, _FLOAT16 = 1, 10  # ONNX's numbers of types


@dataclass(frozen=True)
class Attention(Op):
    """`softmax(scale * q . k + bias, masked) . v` (Vaswani et al. 2017, equation 1).

    Inputs: query [.., d_k] with the axis `queries`, key [.., d_k] and value [.., d_v] with the axis `keys`, then
    `masks` bool values (true where a key is visible) and any number of biases; both have axes of the scores. The last
    `edges` masks add MASKED where they are false, the others NEVER. Axes shared by query and key are batch axes; axes
    that only the query has (a beam over one source, the heads of a group) become additional rows of the same matrix
    product. `causal`: a query sees the keys up to its own position. `window`: it sees only keys that are less than
    `window` positions away. `dropout` applies to the weights. A `cap` other than 0 bounds the scores before biases and
    masks: `cap * tanh(scale * q . k)` (Gemma Team 2024, section 2).

    Keys or values in float16 are multiplied in 16 bits, and so are queries or weights; softmax, biases and the result
    are float32.
    """

    kind: ClassVar[str] = "attention"
    queries: str
    keys: str
    scale: float
    causal: bool = False
    window: int | None = None
    masks: int = 0
    edges: int = 0
    dropout: float = 0.0
    cap: float = 0.0

    @property
    def local(self) -> bool:
        """Whether the visible keys depend on the position of the query."""
        return self.causal or self.window is not None

    def hides(self, mask: int) -> float:
        """The number added to the scores where this mask is false."""
        return NEVER if mask < self.masks - self.edges else MASKED


@types.rule(Attention)
def _attention_types(op: Attention, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    query, key, value = inputs[:3]
    require(query.axes[-1] == key.axes[-1], f"query {query} and key {key} must end in the same axis")
    require(op.queries in query.names, f"the query {query} has no axis {op.queries}")
    require(op.keys in key.names[:-1], f"the key {key} has no axis {op.keys} before its last")
    require(key.axes[:-1] == value.axes[:-1], f"key {key} and value {value} differ before their last axis")
    only_key = [name for name in key.names[:-1] if name not in (*query.names, op.keys)]
    require(not only_key, f"the key's axis {', '.join(only_key)} is not in the query {query}")
    scores = (*query.names[:-1], op.keys)
    for index, extra in enumerate(inputs[3:]):
        wanted = "bool" if index < op.masks else "float32"
        fits = extra.dtype == wanted and set(extra.names) <= set(scores)
        require(fits, f"{extra} does not fit scores of {wanted}[{', '.join(scores)}]")
    return (Type(query.dtype, (*query.axes[:-1], value.axes[-1])),)


@mixes.rule(Attention)
def _attention_mixes(op: Attention, node: Node) -> frozenset[str]:
    return frozenset({op.keys, node.inputs[0].type.names[-1]} | ({op.queries} if op.local else set()))


@hidden.rule(Attention)
def _attention_hidden(op: Attention, node: Node, inputs: tuple[Hidden, ...], keys: frozenset[str]) -> Hidden:
    """A bias that may be as large as the mask could undo it."""
    if op.keys not in keys:
        return mixture(*inputs)
    return "zero" if op.causal and "large" not in inputs else "open"


@to_step.rule(Attention)
def _attention_step(op: Attention, node: Node, step: Stepper) -> tuple[Value, ...]:
    if not op.causal:
        raise step.refuse("every position sees the ones after it; make the attention causal")
    inputs = tuple(step.value(value) for value in node.inputs)
    alone, mask = replace(op, causal=False, window=None), reached(op, step, node)
    if mask is not None:
        alone, inputs = replace(alone, masks=op.masks + 1), (*inputs[:3], mask, *inputs[3:])
    return (step.emit(alone, inputs, node.outputs[0].name),)


@dataclass(frozen=True)
class _Plan:
    """The axis orders that make attention a batch of matrix products [batch.., rows, d] x [batch.., keys, d]."""

    query: Type
    key: Type
    value: Type
    batch: int
    rows: int
    scores: Type
    product: Type
    result: Type

    @property
    def folded(self) -> bool:
        return self.rows != 1


def _plan(op: Attention, node: Node) -> _Plan:
    query, key, value = (item.type for item in node.inputs[:3])
    depth = query.axes[-1]
    batch = tuple(name for name in key.names[:-1] if name != op.keys)
    rows = tuple(name for name in query.names[:-1] if name not in batch)
    leading = tuple(query.axis(name) for name in (*batch, *rows))
    return _Plan(
        Type(query.dtype, (*leading, depth)),
        Type(key.dtype, (*(key.axis(name) for name in (*batch, op.keys)), depth)),
        Type(value.dtype, (*(value.axis(name) for name in (*batch, op.keys)), value.axes[-1])),
        len(batch),
        len(rows),
        Type(query.dtype, (*leading, key.axis(op.keys))),
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
    extras = [aligner(value.type, plan.scores) for value in node.inputs[3:]]
    restore = aligner(plan.product, plan.result)
    attend = torch.functional.scaled_dot_product_attention
    batch, rows = plan.batch, plan.rows
    at = plan.scores.names.index(op.queries)
    plain = op.causal and op.window is None and not extras and not plan.folded and not op.cap
    local = aligner(Type("bool", (plan.scores.axes[at], plan.scores.axes[-1])), plan.scores)

    def hiding(seen: Any, score: float) -> Any:
        return torch.torch.zeros((), device=seen.device).masked_fill(~seen, score)

    def mask_of(query: Any, key: Any, given: tuple[Any, ...]) -> Any:
        if plain or not (op.local or given):
            return None
        aligned = [align(extra) for align, extra in zip(extras, given, strict=True)]
        firm, mask = aligned[: op.masks - op.edges], None
        if op.local:
            firm.append(local(visible(op, torch, query.shape[at], query.device)))
        for seen in firm:
            mask = seen if mask is None else mask & seen
        soft = [hiding(seen, MASKED) for seen in aligned[len(firm) - op.local : op.masks]] + aligned[op.masks :]
        for bias in soft:
            if mask is not None and mask.dtype == torch.torch.bool:
                mask = hiding(mask, NEVER)
            mask = bias if mask is None else mask + bias
        if mask is None:
            return None
        if not plan.folded:
            return mask if mask.dim() > 1 else mask.unsqueeze(0)
        return mask.expand((*query.shape[:-1], key.shape[-2])).flatten(batch, batch + rows - 1)

    def capped(query: Any, key: Any, value: Any, mask: Any, dropped: float) -> Any:
        scores = op.cap * torch.torch.tanh(torch.torch.matmul(query, key.transpose(-1, -2)) * op.scale)
        if mask is not None:
            scores = scores.masked_fill(~mask, NEVER) if mask.dtype == torch.torch.bool else scores + mask
        weights = torch.torch.softmax(scores, -1)
        return torch.torch.matmul(torch.dropout(weights, dropped, torch.training), value)

    def apply(query: Any, key: Any, value: Any, *given: Any) -> Any:
        query, key, value = order[0](query), order[1](key).to(query.dtype), order[2](value).to(query.dtype)
        shape = query.shape[batch : batch + rows]
        mask = mask_of(query, key, given)
        if plan.folded:
            query = query.flatten(batch, batch + rows - 1)
        dropped = op.dropout if torch.training else 0.0
        if op.cap:
            result = capped(query, key, value, mask, dropped)
        else:
            result = attend(query, key, value, attn_mask=mask, is_causal=plain, dropout_p=dropped, scale=op.scale)
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
    axes, batch = plan.scores.axes, plan.batch
    singles = [(axis,) for axis in axes[:batch]]
    if plan.folded:
        query = onnx.op("Reshape", query, onnx.merged(*singles, axes[batch:-1], plan.query.axes[-1:]))
    narrow = [item.type.dtype == "float16" for item in node.inputs[1:3]]
    scores = _scores(onnx, query, key, op.scale, batch + 2, narrow=narrow[0])
    if op.cap:
        scores = onnx.op("Mul", onnx.op("Tanh", scores), op.cap)
    added = _added(op, node, onnx, inputs[3:], plan)
    if added and plan.folded and not _after_batch(node, plan):
        scores = onnx.op("Reshape", scores, onnx.shape(axes))
        for name in added:
            scores = onnx.op("Add", scores, name)
        scores = onnx.op("Reshape", scores, onnx.merged(*singles, axes[batch:-1], axes[-1:]))
    else:
        for name in added:
            scores = onnx.op("Add", scores, name)
    weights = onnx.op("Softmax", scores, axis=-1)
    product = (_narrow_product if narrow[1] else _product)(onnx, weights, value)
    if plan.folded:
        product = onnx.op("Reshape", product, onnx.shape(plan.product.axes))
    return (emit_aligned(onnx, product, plan.product, plan.result),)


def _after_batch(node: Node, plan: _Plan) -> bool:
    """Whether all masks and biases are the same for every row, so that the scores can stay folded."""
    rows = plan.scores.names[plan.batch : -1]
    op = node.op
    assert isinstance(op, Attention)
    return not op.local and not any(name in rows for value in node.inputs[3:] for name in value.type.names)


def _added(op: Attention, node: Node, onnx: OnnxEmitter, extras: tuple[str, ...], plan: _Plan) -> list[str]:
    """The masks and biases, with the axes of the scores in order; folded scores have one axis of rows."""
    scores = plan.scores
    if plan.folded and _after_batch(node, plan):
        scores = Type(scores.dtype, (*scores.axes[: plan.batch + 1], scores.axes[-1]))
    added: list[str] = []
    for index, (name, value) in enumerate(zip(extras, node.inputs[3:], strict=True)):
        aligned = emit_aligned(onnx, name, value.type, scores) if index >= op.masks else ""
        added.append(aligned or _masked(onnx, name, value.type, scores, op.hides(index)))
    if op.local:
        seen = Type("bool", (scores.axis(op.queries), scores.axes[-1]))
        axis = scores.axis(op.queries)
        added.append(_masked(onnx, emit_visible(op, onnx, axis), seen, scores, NEVER))
    return added


def _scores(onnx: OnnxEmitter, query: str, key: str, scale: float, rank: int, *, narrow: bool) -> str:
    if onnx.fused:
        return onnx.op("FusedMatMul", query, key, domain="com.microsoft", transB=1, alpha=scale)
    scaled = query if scale == 1 else onnx.op("Mul", query, scale)
    order = [*range(rank - 2), rank - 1, rank - 2]
    return (_narrow_product if narrow else _product)(onnx, scaled, onnx.op("Transpose", key, perm=order))


def _product(onnx: OnnxEmitter, first: str, second: str) -> str:
    return onnx.op("MatMul", first, second)


def _narrow_product(onnx: OnnxEmitter, first: str, second: str) -> str:
    """Write a product of float32 by float16 in 16 bits, or, for a CPU, with operands and a result that are rounded."""
    small = onnx.op("Cast", first, to=_FLOAT16)
    if onnx.emulated:
        wide = (onnx.op("Cast", name, to=_FLOAT) for name in (small, second))
        product = onnx.op("Cast", onnx.op("MatMul", *wide), to=_FLOAT16)
    else:
        product = onnx.op("MatMul", small, second)
    return onnx.op("Cast", product, to=_FLOAT)


def _masked(onnx: OnnxEmitter, mask: str, found: Type, scores: Type, hidden: float) -> str:
    def make() -> str:
        return emit_aligned(onnx, onnx.op("Where", mask, 0.0, hidden), found, scores)

    return onnx.once(f"bias {hidden} of {mask} over {scores}", make)


@cost.rule(Attention)
def _attention_cost(op: Attention, node: Node) -> Cost:
    """Two matrix products; per score the scale, the masks and biases, and five operations of the softmax."""
    query, key, value = (item.type for item in node.inputs[:3])
    scores = count((*query.axes[:-1], key.axis(op.keys)))
    products = scores * (count(query.axes[-1:]) + count(value.axes[-1:])) * 2
    return moving(node, products, scores * (len(node.inputs) - 3 + op.local + 6 + 2 * bool(op.cap)))
