"""Ops of the target `native`, each an operator of docs/kernels.md; written by `passes/lower.py`."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.graph import Node, Op
from xformc.compiler.graph.rules import OnnxEmitter, Operand, infer_types, require, to_onnx, types
from xformc.compiler.graph.weight import LayoutName, Weight
from xformc.compiler.ops.elementwise import Add, Multiply
from xformc.compiler.ops.embedding import Embedding
from xformc.compiler.ops.layout import emit_aligned
from xformc.compiler.ops.normalization import LayerNorm, RMSNorm, with_gain
from xformc.compiler.ops.positions import At
from xformc.compiler.ops.rotary import Rotate, emit_rotation
from xformc.format.operators import DOMAIN

ACTIVATIONS = frozenset({"relu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid"})
"""The functions of `Unary` that a projection can absorb."""


@dataclass(frozen=True)
class Project(Op):
    """Linear maps of one value, each `activate(x W^T + b)`. A single map may also add a residual and normalize.

    Inputs: x; the residual, if any, with the axes of the result; gain and offset of the norm (`layer`) or its gain
    (`rms`); then for each part its weight, in the `layout`, and, if `biased`, its bias. One result per part.
    """

    kind: ClassVar[str] = "project"
    over: tuple[str, ...]
    parts: int
    biased: bool
    activation: str = "none"
    residual: bool = False
    norm: str = "none"
    epsilon: float = 0.0
    layout: LayoutName = "panels"

    @property
    def before(self) -> int:
        """The number of inputs before those of the parts."""
        return 1 + self.residual + {"none": 0, "rms": 1, "layer": 2}[self.norm]


@dataclass(frozen=True)
class Embed(Op):
    """`factor * table[ids]`. The layout of the table is that of the weight of a projection, or rows of float32."""

    kind: ClassVar[str] = "embed"
    factor: float
    layout: LayoutName


@dataclass(frozen=True)
class Attend(Op):
    """`Attention` with keys and values [slots, keys, shared.., d].

    Inputs: query [batch, rows.., shared.., repeated.., d_k] with `rank` axes before `shared`; key; value; if `masked`,
    the mask [slots, keys]; if `biased`, the bias with `keys` and any axes of the heads and `queries`; if `slotted`, the
    slot of each row [batch].
    """

    kind: ClassVar[str] = "attend"
    scale: float
    shared: tuple[str, ...]
    rank: int
    queries: str
    causal: bool
    masked: bool
    biased: bool
    slotted: bool
    cap: float = 0.0


@dataclass(frozen=True)
class AttendCached(Op):
    """One step of causal self-attention; updates its caches in place.

    Inputs: query [batch, beam.., shared.., repeated.., d_k]; key and value [batch, beam.., shared.., d] of the newest
    position; the two caches; position; slots; with a beam, ancestors; if `biased`, the bias with keys and any axes of
    the heads and `queries` (of size 1). A step of `several` positions has no beam, but the axis `queries` of any size.
    """

    kind: ClassVar[str] = "attend_cached"
    scale: float
    shared: tuple[str, ...]
    rank: int
    queries: str
    window: int | None
    biased: bool
    several: bool = False
    cap: float = 0.0


_FLOAT16, _LARGEST = 10, 65504.0
"""ONNX's number of float16, and its largest number."""


@dataclass(frozen=True)
class Narrow(Op):
    """Convert to float16, rounding to nearest; saturates instead of overflowing to infinity, if numbers may be `larger`
    than those of float16."""

    kind: ClassVar[str] = "narrow"
    larger: bool = True


@dataclass(frozen=True)
class QuantizeRows(Op):
    """Quantize each row of the last axis to int8, after the four bytes of its scale, a float32."""

    kind: ClassVar[str] = "quantize_rows"


SCALE_BYTES = 4
"""The bytes of the scale before the numbers of a quantized row."""
_QUANTIZED = "/int8"


def quantized_axis(axis: Axis) -> Axis:
    """The axis of quantized rows, each with its scale."""
    return Axis(f"{axis.name}{_QUANTIZED}", None if axis.size is None else axis.size + SCALE_BYTES)


def restored_axis(axis: Axis) -> Axis:
    """The axis of the numbers of quantized rows."""
    return Axis(axis.name.removesuffix(_QUANTIZED), None if axis.size is None else axis.size - SCALE_BYTES)


@dataclass(frozen=True)
class Normalize(Op):
    """A normalization, with its inputs."""

    kind: ClassVar[str] = "normalize"
    op: LayerNorm | RMSNorm


@dataclass(frozen=True)
class Turn(Op):
    """`Rotate`, with its inputs."""

    kind: ClassVar[str] = "turn"
    op: Rotate


@dataclass(frozen=True)
class RowAt(Op):
    """`At` of a float32 table along its first axis, with its inputs."""

    kind: ClassVar[str] = "row_at"
    op: At


@dataclass(frozen=True)
class Pairwise(Op):
    """`Add` or `Multiply` of two values, the second of which has the last axes of the first."""

    kind: ClassVar[str] = "pairwise"
    op: Add | Multiply


@types.rule(Project)
def _project_types(op: Project, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    x, parts = inputs[0], inputs[op.before :]
    require(len(parts) == op.parts * (1 + op.biased), f"{op.parts} parts have {len(parts)} inputs")
    require(op.parts == 1 or not (op.residual or op.norm != "none"), "a residual or a norm needs a single part")
    weights = parts[:: 1 + op.biased]
    return tuple(Type(x.dtype, (*x.without(op.over), *_new(op, weight))) for weight in weights)


def _new(op: Project, weight: Type) -> tuple[Axis, ...]:
    return weight.axes[: len(weight.axes) - len(op.over)]


@to_onnx.rule(Project)
def _project_onnx(op: Project, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    x, depth = node.inputs[0].type, len(op.over)
    ordered = Type(x.dtype, (*x.without(op.over), *(x.axis(name) for name in op.over)))
    extra = iter(
        emit_aligned(onnx, name, value.type, node.outputs[0].type) if op.residual and index == 0 else name
        for index, (name, value) in enumerate(zip(inputs[1 : op.before], node.inputs[1 : op.before], strict=True))
    )
    arguments = [emit_aligned(onnx, inputs[0], x, ordered)]
    arguments += [next(extra) if op.residual else "", next(extra, ""), next(extra, "")]
    stride, new, matrices = 1 + op.biased, list[tuple[Axis, ...]](), list[Weight]()
    for start in range(op.before, len(inputs), stride):
        weight = node.inputs[start]
        new.append(_new(op, weight.type))
        width = prod(weight.type.sizes()[len(new[-1]) :])
        count = prod(axis.size or 1 for axis in new[-1])
        matrices.append(onnx.weight(weight.name, op.layout, count, width))
        arguments += [*_matrix(matrices[-1]), *([onnx.flat(inputs[start + 1], count)] if op.biased else [])]
    return onnx.ops(
        "Project",
        op.parts,
        *arguments,
        domain=DOMAIN,
        depth=depth,
        parts=op.parts,
        ranks=[len(axes) for axes in new],
        sizes=[axis.size for axes in new for axis in axes],
        bias=int(op.biased),
        precision=_kernel(matrices[0]),
        activation=op.activation,
        norm=op.norm,
        epsilon=op.epsilon,
    )


def emit_project_candidates(
    onnx: OnnxEmitter,
    project: Node,
    x: str,
    beam: tuple[str, str],
    rest: tuple[Operand, ...],
    attributes: Mapping[str, int],
    *,
    lists: tuple[str, ...] | None = None,
) -> tuple[str, ...]:
    """Write the search candidates of this plain projection of `x`, whose logits are [batch, beam, 1, vocabulary].

    Without a beam, each position is a sentence with one hypothesis: the logits are [batch, positions, vocabulary].

    `beam` are the scores of the hypotheses and the width; `rest` the tokens that texts begin with, padded with the
    attribute `pad`, and the position, then what edits scores, if anything does.

    Uses ProjectCandidates, or ScreenCandidates for a projection to screen; with `lists`, the results of Shortlist,
    ShortlistCandidates. Return the names of scores, tokens and parents.
    """
    op, value = project.op, project.inputs[0]
    assert isinstance(op, Project)
    ordered = Type(value.type.dtype, (*value.type.without(op.over), *(value.type.axis(name) for name in op.over)))
    whole = emit_vocabulary(onnx, project)
    x = emit_aligned(onnx, x, value.type, ordered)
    given = (onnx.op("Reshape", x, [-1, 1, 1, whole.depth]) if "beam" not in value.type.names else x, *beam)
    kind, precision = "ProjectCandidates", {"precision": whole.precision}
    inputs: tuple[str, ...] = (whole.numbers, whole.scale, whole.bias)
    if lists is not None:
        kind, inputs = "ShortlistCandidates", (*lists, *whole.inputs)
    elif whole.precision == "screened":
        kind, precision = "ScreenCandidates", {}
        inputs = (whole.rest, whole.numbers, whole.scale, whole.largest, whole.bias)
    given = (*given, *inputs, *rest)
    return onnx.ops(kind, 3, *given, domain=DOMAIN, vocabulary=whole.size, **precision, **attributes)


@dataclass(frozen=True)
class Vocabulary:
    """The weights of a plain projection onto the vocabulary: their precision, as the kernels call it, their sizes, and
    the ONNX names of their parts, empty for what they lack."""

    precision: str
    size: int
    depth: int
    numbers: str
    scale: str
    rest: str
    largest: str
    bias: str

    @property
    def inputs(self) -> tuple[str, str, str, str]:
        """The parts as Shortlist and ShortlistCandidates take them."""
        return self.numbers, self.scale, self.rest, self.bias


def emit_vocabulary(onnx: OnnxEmitter, project: Node) -> Vocabulary:
    """Store the weights of a plain projection onto the vocabulary."""
    op, (_, weight, *bias) = project.op, project.inputs
    assert isinstance(op, Project)
    size = prod(axis.size or 1 for axis in _new(op, weight.type))
    depth = prod(weight.type.sizes()) // size
    matrix = onnx.weight(weight.name, op.layout, size, depth)
    numbers, scale, rest, largest = (*matrix.tensors, "", "", "")[:4]
    flat = onnx.flat(bias[0].name, size) if bias else ""
    return Vocabulary(_kernel(matrix), size, depth, numbers, scale, rest, largest, flat)


def _kernel(weight: Weight) -> str:
    """The precision of a weight, as the kernels call it."""
    return "screened" if weight.layout == "screened" else weight.precision


def _matrix(weight: Weight) -> tuple[str, ...]:
    """The tensors of a weight that are its numbers."""
    return weight.tensors[:3]


@types.rule(Embed)
def _embed_types(op: Embed, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    return infer_types(Embedding(), inputs)


@to_onnx.rule(Embed)
def _embed_onnx(op: Embed, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    table = node.inputs[1]
    rows, width = table.type.sizes()
    matrix = onnx.weight(table.name, op.layout, rows, width)
    arguments = [inputs[0], *_matrix(matrix)]
    return (onnx.op("Embed", *arguments, domain=DOMAIN, precision=_kernel(matrix), width=width, factor=op.factor),)


@types.rule(Narrow)
def _narrow_types(_: Narrow, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    return (Type("float16", inputs[0].axes),)


@to_onnx.rule(Narrow)
def _narrow_onnx(op: Narrow, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    if onnx.typed:
        bounded = onnx.op("Clip", inputs[0], -_LARGEST, _LARGEST) if op.larger else inputs[0]
        return (onnx.op("Cast", bounded, to=_FLOAT16),)
    return (onnx.op("Narrow", inputs[0], domain=DOMAIN),)


@types.rule(QuantizeRows)
def _quantize_rows_types(_: QuantizeRows, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    return (Type("int8", (*inputs[0].axes[:-1], quantized_axis(inputs[0].axes[-1]))),)


@to_onnx.rule(QuantizeRows)
def _quantize_rows_onnx(_: QuantizeRows, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    return (onnx.op("QuantizeRows", inputs[0], domain=DOMAIN),)


def quantized_attentions(nodes: Iterable[Node]) -> frozenset[str]:
    """The names of the results of attention over keys and values in int8."""
    return frozenset(
        node.outputs[0].name
        for node in nodes
        if isinstance(node.op, Attend | AttendCached) and "int8" in [value.type.dtype for value in node.inputs]
    )


def _attend_types(op: Attend | AttendCached, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    query, _, value = inputs[:3]
    depth = restored_axis(value.axes[-1]) if value.dtype == "int8" else value.axes[-1]
    return (Type(query.dtype, (*query.axes[:-1], depth)),)


types.rule(Attend)(_attend_types)
types.rule(AttendCached)(_attend_types)


@to_onnx.rule(Attend)
def _attend_onnx(op: Attend, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    rest = iter(inputs[3:])
    mask, bias = next(rest) if op.masked else "", ""
    if op.biased:
        bias = _bias(op, onnx, next(rest), node.inputs[3 + op.masked].type, node.inputs[0].type)
    arguments = [*inputs[:3], mask, next(rest) if op.slotted else "", bias]
    shared, repeated = groups_of(op, node.inputs[0].type)
    return (
        onnx.op(
            "Attend",
            *arguments,
            domain=DOMAIN,
            scale=op.scale,
            shared=shared,
            repeated=repeated,
            rank=op.rank,
            causal=int(op.causal),
            cap=op.cap,
        ),
    )


def groups_of(op: Attend | AttendCached, query: Type) -> tuple[int, int]:
    """The number of heads with their own keys, and the number of query heads that share each of them."""
    heads, common = query.axes[op.rank : -1], len(op.shared)
    return prod(axis.size or 1 for axis in heads[:common]), prod(axis.size or 1 for axis in heads[common:])


def _bias(op: Attend | AttendCached, onnx: OnnxEmitter, name: str, bias: Type, query: Type) -> str:
    """Write the bias as [heads, queries, keys], repeated along axes that it lacks."""
    heads = query.axes[op.rank : -1]
    (keys,) = bias.without((*(axis.name for axis in heads), op.queries))
    whole = Type(bias.dtype, (*heads, query.axis(op.queries), keys))

    def write() -> str:
        result = emit_aligned(onnx, name, bias, whole)
        if len(bias.axes) < len(whole.axes):
            result = onnx.op("Expand", result, onnx.shape(whole.axes))
        groups = (heads, whole.axes[-2:-1], whole.axes[-1:])
        return result if len(heads) == 1 else onnx.op("Reshape", result, onnx.merged(*groups))

    return onnx.once(f"{name} as {whole}", write)


@to_onnx.rule(AttendCached)
def _attend_cached_onnx(op: AttendCached, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    query, key, value, keys, values, position, slots, *rest = inputs
    bias = _bias(op, onnx, rest.pop(), node.inputs[-1].type, node.inputs[0].type) if op.biased else ""
    shared, repeated = groups_of(op, node.inputs[0].type)
    return (
        onnx.op(
            "ExtendCached" if op.several else "AttendCached",
            *(query, key, value, keys, values, position),
            *([] if op.several else rest or [""]),
            slots,
            bias,
            domain=DOMAIN,
            scale=op.scale,
            shared=shared,
            repeated=repeated,
            window=op.window or 0,
            cap=op.cap,
        ),
    )


@types.rule(Normalize)
def _normalize_types(op: Normalize, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    return infer_types(op.op, inputs)


@to_onnx.rule(Normalize)
def _normalize_onnx(op: Normalize, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    norm, arguments = "layer" if isinstance(op.op, LayerNorm) else "rms", with_gain(op.op, node, onnx, inputs)
    shape = {"axes": op.op.axes, "epsilon": op.op.epsilon}
    return (onnx.op("Normalize", *arguments, domain=DOMAIN, norm=norm, **shape),)


@types.rule(Turn)
def _turn_types(op: Turn, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    return infer_types(op.op, inputs)


@to_onnx.rule(Turn)
def _turn_onnx(op: Turn, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    angles = emit_rotation(node, onnx, inputs[1:])
    return (onnx.op("Rotate", inputs[0], *angles, domain=DOMAIN, halves=int(op.op.halves)),)


@types.rule(RowAt)
def _row_at_types(op: RowAt, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    require(has_row_at(op.op, inputs[0]), f"{op.op.axis} is not the first axis of {inputs[0]} in float32")
    return infer_types(op.op, inputs)


@to_onnx.rule(RowAt)
def _row_at_onnx(op: RowAt, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    return (onnx.op("RowAt", *inputs, domain=DOMAIN),)


def has_row_at(op: At, table: Type) -> bool:
    """Whether `RowAt` can compute the row of this table."""
    return table.dtype == "float32" and table.names[0] == op.axis


def repeats(first: Type, second: Type) -> bool:
    """Whether two values are float32, and the second has the last axes of the first."""
    return first.dtype == second.dtype == "float32" and first.axes[len(first.axes) - len(second.axes) :] == second.axes


@types.rule(Pairwise)
def _pairwise_types(_: Pairwise, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    require(repeats(*inputs), f"{inputs[1]} does not have the last axes of {inputs[0]}")
    return inputs[:1]


@to_onnx.rule(Pairwise)
def _pairwise_onnx(op: Pairwise, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    return (onnx.op("Add" if isinstance(op.op, Add) else "Multiply", *inputs, domain=DOMAIN),)
