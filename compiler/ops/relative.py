"""Relative positions: attention biases that depend on the distance between key and query."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import log2
from typing import Any, ClassVar

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.cost import per_result
from xformc.compiler.graph.graph import Initial, Node, Op, Value
from xformc.compiler.graph.primitives import Site, optional, primitive
from xformc.compiler.graph.rules import (
    OnnxEmitter,
    Stepper,
    TorchNamespace,
    cost,
    mixes,
    mixes_nothing,
    require,
    to_onnx,
    to_step,
    to_torch,
    types,
)
from xformc.compiler.ops.buckets import Buckets, SignedBuckets, require_distances
from xformc.compiler.ops.elementwise import Add
from xformc.compiler.ops.embedding import Embedding
from xformc.compiler.ops.positions import Positions

MAX_DISTANCE = 2**16
"""The largest `max_distance` of buckets."""

MIN_SIGNED = 4
"""The smallest number of buckets of distances to both sides."""


@dataclass(frozen=True)
class Distance(Op):
    """The position of each key minus that of each query: int64 [queries, keys].

    Input: the positions of the queries, int64 [queries]; the keys have the same positions. `newest`: in a step, the
    queries are the newest positions. The keys are those of the second input, int64 [room]; without it, there is one
    query, and they are the positions up to it, or the last `window` of these. If each row has positions of its own,
    int64 [batch, queries], the result has the axis batch as well.
    """

    kind: ClassVar[str] = "distance"
    queries: str
    keys: str
    window: int | None = None
    newest: bool = False


@dataclass(frozen=True)
class Slopes(Op):
    """`-slope[head] * |distance|` (Press et al. 2022, section 3), with a new first axis `heads` of size `count`.

    If `count` is a power of two, the slopes are a geometric sequence with first term and ratio 2^(-8/count). Otherwise
    they are the slopes of the next smaller power of two, then every other slope of the next larger one.
    """

    kind: ClassVar[str] = "slopes"
    heads: str
    count: int

    def slopes(self) -> list[float]:
        """The slope of each head."""
        smaller = 2 ** int(log2(self.count))
        return [*_geometric(smaller), *_geometric(2 * smaller)[::2]][: self.count]


def _geometric(count: int) -> list[float]:
    return [2 ** (-8 * (index + 1) / count) for index in range(count)]


@types.rule(Distance)
def _distance_types(op: Distance, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    index, *places = inputs
    fits = index.dtype == "int64" and index.names[-1:] == (op.queries,) and index.names[:-1] in ((), ("batch",))
    require(fits, f"{index} must be the positions of {op.queries}")
    require(not places or (op.newest and places[0].dtype == "int64" and len(places[0].axes) == 1), "invalid keys")
    queries = index.axes[-1]
    return (Type("int64", (*index.axes, Axis(op.keys, None if op.newest else queries.size))),)


@types.rule(Slopes)
def _slopes_types(op: Slopes, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    require_distances(inputs[0])
    return (Type("float32", (Axis(op.heads, op.count), *inputs[0].axes)),)


@mixes.rule(Distance)
def _distance_mixes(op: Distance, node: Node) -> frozenset[str]:
    return frozenset({op.queries})


mixes.rule(Slopes)(mixes_nothing)
for _op in (Distance, Slopes):
    cost.rule(_op)(per_result(1))


@to_step.rule(Distance)
def _distance_step(op: Distance, node: Node, step: Stepper) -> tuple[Value, ...]:
    inputs = (step.value(node.inputs[0]), *([step.places(op.window)] if step.fixed or step.several else []))
    return (step.emit(replace(op, newest=True), inputs, node.outputs[0].name),)


@to_torch.rule(Distance)
def _distance_torch(op: Distance, node: Node, torch: TorchNamespace) -> Callable[..., Any]:
    def newest(index: Any) -> Any:
        seen = int(index) + 1 if op.window is None else min(int(index) + 1, op.window)
        return torch.torch.arange(1 - seen, 1, device=index.device).unsqueeze(0)

    def between(index: Any, keys: Any = None) -> Any:
        return (index if keys is None else keys) - index.unsqueeze(-1)

    return newest if op.newest and len(node.inputs) == 1 else between


@to_onnx.rule(Distance)
def _distance_onnx(op: Distance, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    index, keys = inputs[0], inputs[-1]
    if not op.newest or len(inputs) == 2:
        return (onnx.op("Sub", keys, onnx.op("Unsqueeze", index, [-1])),)
    first = onnx.op("Neg", onnx.op("Squeeze", index))
    if op.window is not None:
        first = onnx.op("Max", first, 1 - op.window)
    return (onnx.op("Unsqueeze", onnx.op("Range", first, 1, 1), [0]),)


@to_torch.rule(Slopes)
def _slopes_torch(op: Slopes, node: Node, torch: TorchNamespace) -> Callable[[Any], Any]:
    shape, values = [-1] + [1] * len(node.inputs[0].type.axes), [-slope for slope in op.slopes()]
    return lambda distance: torch.torch.tensor(values, device=distance.device).view(shape) * distance.abs()


@to_onnx.rule(Slopes)
def _slopes_onnx(op: Slopes, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    after = [1 + index for index in range(len(node.inputs[0].type.axes))]
    slopes = onnx.op("Unsqueeze", [-slope for slope in op.slopes()], after)
    return (onnx.op("Mul", slopes, onnx.op("Cast", onnx.op("Abs", *inputs), to=1)),)


@primitive("alibi", heads="axis")
def _alibi(site: Site, x: Value, heads: Axis) -> Value:
    """Scores minus the distance between query and key times a slope; each of the `heads` has its own slope."""
    distance = _distance(site, x, heads)
    return site.emit(Add(), x, site.emit(Slopes(heads.name, heads.size or 1), distance, name="bias"), name="sum")


@primitive("relative_bias", heads="axis", buckets="axis", max_distance=optional("number"), causal=optional("flag"))
def _relative_bias(
    site: Site, x: Value, heads: Axis, buckets: Axis, max_distance: float = 128, causal: bool = False
) -> Value:
    """Scores plus a learned bias for each head and bucket of distances.

    Buckets of near keys hold one distance each; buckets of far keys hold more and more, up to `max_distance`. Later
    keys have buckets of their own, unless `causal` hides them.
    """
    distance = _distance(site, x, heads)
    op = _buckets(site, buckets, max_distance, not causal)
    rows = site.parameter("weight", (buckets, heads), Initial("normal", (heads.size or 1) ** -0.5))
    bias = site.emit(Embedding(), site.emit(op, distance, name="buckets"), rows, name="bias")
    return site.emit(Add(), x, bias, name="sum")


@primitive("distance_buckets", on=None, buckets="axis", max_distance=optional("number"))
def _distance_buckets(site: Site, x: Value, buckets: Axis, max_distance: float | None = None) -> Value:
    """For scores over keys, the bucket of the distance of each query from each key, an index for `take`.

    The middle bucket holds distance 0, those of earlier keys follow, those of later keys precede. Half of the buckets,
    around the middle, hold one distance each; the others hold more and more, up to `max_distance` (default: all
    buckets hold one distance each). The buckets at both ends hold all larger distances.
    """
    count, exact = buckets.size or 0, (buckets.size or 0) // 4
    if count < MIN_SIGNED or count % 2:
        raise site.refuse_number("buckets", count, f"distances need an even number of buckets, at least {MIN_SIGNED}")
    if max_distance is not None and (max_distance != int(max_distance) or not exact + 1 < max_distance <= MAX_DISTANCE):
        bounds = f"a whole number of positions, more than {exact + 1} and at most {MAX_DISTANCE:,}"
        raise site.refuse_number("max_distance", max_distance, f"max_distance must be {bounds}")
    op = SignedBuckets(count, None if max_distance is None else int(max_distance))
    return site.emit(op, pair_distance(site, x))


def pair_distance(site: Site, x: Value) -> Value:
    """The position of each key of scores minus that of each query: int64 [positions, keys]."""
    keys = site.keys(x)
    if keys.positions not in x.type.names:
        raise site.refuse(f"{x.type} has no queries at {keys.positions}, the positions of its keys")
    index = site.emit(Positions(keys.positions), x, name="index")
    return site.emit(Distance(keys.positions, keys.name, keys.window), index, name="keys")


def _buckets(site: Site, buckets: Axis, max_distance: float, bidirectional: bool) -> Buckets:
    count = buckets.size or 0
    side = count // 2 if bidirectional else count
    if side < 2 or (bidirectional and count % 2):
        kind = "an even number of buckets, at least 4" if bidirectional else "at least 2 buckets"
        raise site.refuse_number("buckets", count, f"distances need {kind}")
    if max_distance != int(max_distance) or not side // 2 < max_distance <= MAX_DISTANCE:
        bounds = f"a whole number of positions, more than {side // 2} and at most {MAX_DISTANCE:,}"
        raise site.refuse(f"max_distance must be {bounds}, found {max_distance:g}")
    return Buckets(count, int(max_distance), bidirectional)


def _distance(site: Site, x: Value, heads: Axis) -> Value:
    keys = site.keys(x)
    if keys.positions not in x.type.names:
        raise site.refuse(f"{x.type} has no queries at {keys.positions}, the positions of its keys")
    if heads not in x.type.axes:
        raise site.refuse(f"the scores {x.type} have no axis {heads}")
    index = site.emit(Positions(keys.positions), x, name="index")
    return site.emit(Distance(keys.positions, keys.name, keys.window), index, name="distance")
