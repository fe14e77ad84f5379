"""Absolute positions: indices, sinusoidal encodings, and rows of position tables."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.cost import FREE, Cost, per_result, size_in_bytes
from xformc.compiler.graph.graph import Graph, Node, Op, Value
from xformc.compiler.graph.lengths import Length
from xformc.compiler.graph.primitives import Site, optional, primitive
from xformc.compiler.graph.rules import (
    OnnxEmitter,
    Stepper,
    TorchNamespace,
    cost,
    made_lengths,
    mixes,
    mixes_nothing,
    require,
    to_onnx,
    to_step,
    to_torch,
    types,
)
from xformc.compiler.ops.embedding import Embedding, table
from xformc.compiler.ops.frequencies import BASE, MAX_BASE, frequency


@dataclass(frozen=True)
class Positions(Op):
    """0, 1, 2, ... along `axis` of the input: int64 [axis].

    `limit` is the largest size of that axis, or None.
    """

    kind: ClassVar[str] = "positions"
    axis: str
    limit: int | None = None


@dataclass(frozen=True)
class Index(Op):
    """The number `value`, int64 without axes. It has no inputs."""

    kind: ClassVar[str] = "index"
    value: int


MAX_POSITION = 2**24
"""Positions below this number are exact in float32."""

FUNCTIONS = {"both": ("Sin", "Cos"), "sin": ("Sin",), "cos": ("Cos",)}
"""The functions of the angle that are interleaved in an encoding of positions."""


@dataclass(frozen=True)
class Sinusoid(Op):
    """`PE(pos, 2i) = sin(pos / base^(2i/width))`, `PE(pos, 2i+1) = cos(..)` (Vaswani et al. 2017, section 3.5).

    With `functions` sin or cos, both elements of a pair are that function of the angle. Input: int64 positions, to
    which `offset` is added. The result has a new last axis `axis` of size `width`. With `halves`, all sines come before
    all cosines. With `endpoint`, the exponent of pair i of n is i/(n-1), so that the last frequency is 1/base.
    """

    kind: ClassVar[str] = "sinusoid"
    axis: str
    width: int
    functions: str = "both"
    base: float = BASE
    offset: int = 0
    halves: bool = False
    endpoint: bool = False

    def frequencies(self) -> list[float]:
        """The angles per position, in radians: one per pair with both functions, otherwise one per element."""
        step, pairs = len(FUNCTIONS[self.functions]), (self.width + 1) // 2
        if self.endpoint:
            return [pow(self.base, -(index // 2) / max(pairs - 1, 1)) for index in range(0, self.width, step)]
        return [frequency(index, self.width, self.base) for index in range(0, self.width, step)]


@types.rule(Positions)
def _positions_types(op: Positions, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    (x,) = inputs
    require(op.axis in x.names, f"{x} has no axis {op.axis}")
    return (Type("int64", (x.axis(op.axis),)),)


@mixes.rule(Positions)
def _positions_mixes(op: Positions, node: Node) -> frozenset[str]:
    return frozenset({op.axis})


@to_torch.rule(Positions)
def _positions_torch(op: Positions, node: Node, torch: TorchNamespace) -> Callable[[Any], Any]:
    index = node.inputs[0].type.names.index(op.axis)
    arange = torch.torch.arange
    return lambda x: arange(x.shape[index], device=x.device)


@to_onnx.rule(Positions)
def _positions_onnx(op: Positions, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    size = onnx.op("Squeeze", onnx.shape((node.inputs[0].type.axis(op.axis),)))
    return (onnx.op("Range", 0, size, 1),)


@to_step.rule(Positions)
def _positions_step(op: Positions, node: Node, step: Stepper) -> tuple[Value, ...]:
    return (step.index(),)


@types.rule(Index)
def _index_types(op: Index, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    return (Type("int64"),)


mixes.rule(Index)(mixes_nothing)


@to_torch.rule(Index)
def _index_torch(op: Index, node: Node, torch: TorchNamespace) -> Callable[[], Any]:
    return torch.constant(node.outputs[0].name, torch.torch.tensor(op.value))


@to_onnx.rule(Index)
def _index_onnx(op: Index, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    return (onnx.outermost(f"index {op.value}", lambda root: root.operand(op.value)),)


cost.rule(Index)(lambda op, node: FREE)


@types.rule(Sinusoid)
def _sinusoid_types(op: Sinusoid, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    (positions,) = inputs
    even = op.width % 2 == 0 or op.functions != "both"
    require(even, f"sines and cosines come in pairs, so {op.axis} must be even, found {op.width}")
    return (Type("float32", (*positions.axes, Axis(op.axis, op.width))),)


mixes.rule(Sinusoid)(mixes_nothing)


@to_torch.rule(Sinusoid)
def _sinusoid_torch(op: Sinusoid, node: Node, torch: TorchNamespace) -> Callable[..., Any]:
    namespace, values = torch.torch, op.frequencies()
    functions = [getattr(namespace, kind.lower()) for kind in FUNCTIONS[op.functions]]

    def apply(positions: Any) -> Any:
        frequencies = namespace.tensor(values, device=positions.device)
        angles = (positions + op.offset).to(namespace.float32).unsqueeze(-1) * frequencies
        parts = [function(angles) for function in functions]
        return namespace.cat(parts, -1) if op.halves else namespace.stack(parts, -1).flatten(-2)

    return apply


@to_onnx.rule(Sinusoid)
def _sinusoid_onnx(op: Sinusoid, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    index = onnx.op("Add", *inputs, op.offset) if op.offset else inputs[0]
    positions = onnx.op("Unsqueeze", onnx.op("Cast", index, to=1), [-1])
    angles = onnx.op("Mul", positions, op.frequencies())
    if op.functions != "both":
        return (onnx.op(*FUNCTIONS[op.functions], angles),)
    if op.halves:
        return (onnx.op("Concat", *(onnx.op(kind, angles) for kind in FUNCTIONS[op.functions]), axis=-1),)
    pairs = [onnx.op("Unsqueeze", onnx.op(kind, angles), [-1]) for kind in FUNCTIONS[op.functions]]
    rank = len(node.inputs[0].type.axes)
    shape = [*([0] * rank), op.width]
    return (onnx.op("Reshape", onnx.op("Concat", *pairs, axis=-1), shape),)


@cost.rule(Positions)
def _positions_cost(op: Positions, node: Node) -> Cost:
    return Cost(written=size_in_bytes(node.outputs[0].type))


cost.rule(Sinusoid)(per_result(2))


@dataclass(frozen=True)
class At(Op):
    """The row of a table at a position along `axis`, which then has size 1. Inputs: the table, an int64 scalar."""

    kind: ClassVar[str] = "at"
    axis: str


@types.rule(At)
def _at_types(op: At, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    table, position = inputs
    require(op.axis in table.names and position == Type("int64"), f"no row of {table} along {op.axis} at {position}")
    return (Type(table.dtype, tuple(Axis(op.axis, 1) if axis.name == op.axis else axis for axis in table.axes)),)


@mixes.rule(At)
def _at_mixes(op: At, node: Node) -> frozenset[str]:
    return frozenset({op.axis})


@to_torch.rule(At)
def _at_torch(op: At, node: Node, torch: TorchNamespace) -> Callable[[Any, Any], Any]:
    index = node.inputs[0].type.names.index(op.axis)
    return lambda table, position: table.index_select(index, position.reshape(1))


@to_onnx.rule(At)
def _at_onnx(op: At, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    table, position = inputs
    row = onnx.once(f"row {position}", lambda: onnx.op("Unsqueeze", position, [0]))
    return (onnx.op("Gather", table, row, axis=node.inputs[0].type.names.index(op.axis)),)


cost.rule(At)(per_result(0))


def longest(graph: Graph, axis: str) -> int | None:
    """The largest size of an input's axis of positions that the graph has encodings for, or None if unlimited."""
    made = dict(made_lengths(graph.nodes))
    limits = [
        limit
        for node in graph.nodes
        if isinstance(node.op, Positions) and node.op.limit is not None
        if (limit := limit_of(axis, node.op.axis, node.op.limit, made)) is not None
    ]
    return min(limits, default=None)


def limit_of(axis: str, limited: str, limit: int, made: Mapping[str, Length]) -> int | None:
    """The largest size of `axis` for which the axis `limited`, made of it, has a size of at most `limit`."""
    if limited == axis:
        return limit
    length = made.get(limited)
    if length is None:
        return None
    others = {name: item for name, item in made.items() if name != limited}  # a slice may give an earlier axis back
    limits = (limit_of(axis, each, (limit - length.more) // length.times * length.stride, others) for each in length.of)
    return next((found for found in limits if found is not None), None)


@primitive("learned_positions", limit="axis", to=optional("axis"), at=optional("number"))
def _learned_positions(site: Site, x: Value, limit: Axis, to: Axis | None = None, at: float | None = None) -> Value:
    """A learned vector for each position of `x`, as wide as its last axis or as `to`, for at most `limit` positions.

    `at`: the vector of this one position instead, such as the index of a turn.
    """
    index = _index(site, x, at, limit.size)
    return site.emit(Embedding(), index, table(site, limit, to or x.type.axes[-1]))


@primitive(
    "sinusoid",
    functions=optional("word"),
    at=optional("number"),
    base=optional("number"),
    offset=optional("number"),
    halves=optional("flag"),
    endpoint=optional("flag"),
)
def _sinusoid(  # noqa: PLR0917 (called by name)
    site: Site,
    x: Value,
    functions: str = "both",
    at: float | None = None,
    base: float = BASE,
    offset: float = 0,
    halves: bool = False,
    endpoint: bool = False,
) -> Value:
    """Sines and cosines of each position of `x`, interleaved, as wide as its last axis.

    `functions`: `both`, or `sin` or `cos` for one of them alone. `at`: the vector of this one position instead, such as
    the index of a turn. The first position is `offset` (default: 0). `halves`: all sines, then all cosines. `endpoint`:
    the lowest frequency is 1 / base; without it, it is one step higher. tensor2tensor and Whisper have `halves` and
    `endpoint`, fairseq also `offset: 2`.
    """
    if functions not in FUNCTIONS:
        raise site.refuse(f"'functions' must be both, sin or cos, found '{functions}'")
    if halves and functions != "both":
        raise site.refuse(f"halves has no effect on {functions} alone", "remove halves or functions")
    check_base(site, base)
    if offset != int(offset) or not 0 <= offset < MAX_POSITION:
        message = f"the offset must be a whole number from 0 to {MAX_POSITION - 1}"
        raise site.refuse_number("offset", offset, message)
    width = site.last(x)
    op = Sinusoid(width.name, width.size or 0, functions, float(base), int(offset), halves, endpoint)
    return site.emit(op, _index(site, x, at, None))


def check_base(site: Site, base: float) -> None:
    """Check the base of frequencies. Raises: UserError at the argument if it is out of range."""
    if not 1 < base <= MAX_BASE:
        raise site.refuse_number("base", base, f"the base must be greater than 1 and at most {MAX_BASE:g}")


def _index(site: Site, x: Value, at: float | None, limit: int | None) -> Value:
    """The positions of `x`, or the one position `at`, which must be below `limit`."""
    if at is None:
        return site.emit(Positions(site.positions(x), limit), x, name="index")
    if at != int(at) or not 0 <= at < (limit or MAX_POSITION):
        message = f"a position must be a whole number from 0 to {(limit or MAX_POSITION) - 1}"
        raise site.refuse_number("at", at, message)
    return site.emit(Index(int(at)), name="index")
