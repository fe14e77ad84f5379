"""How many operations lie between two positions: the shortest way of information through a graph."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, inf

from xformc.compiler.graph.axes import Type
from xformc.compiler.graph.cost import Reach
from xformc.compiler.graph.graph import Graph, Node, Value
from xformc.compiler.graph.rules import cost_of
from xformc.compiler.ops.positions import Positions
from xformc.compiler.ops.recurrence import Recurrence
from xformc.compiler.report.complexity import position_axes


@dataclass(frozen=True)
class _Way:
    """Information has gone `distance` (1 is from the first position to the last) in `hops` operations.

    Each further one takes it `pace` on, where it may go on like that; else 0.
    """

    hops: int
    distance: float
    pace: float = 0.0

    def arrival(self) -> float:
        """The operations that it takes to the last position; infinite if it does not get there."""
        if self.distance > 1 - 1e-9:
            return self.hops
        return self.hops + ceil((1 - self.distance) / self.pace - 1e-9) if self.pace else inf

    def beats(self, other: "_Way") -> bool:
        return self.hops <= other.hops and self.distance >= other.distance and self.pace >= other.pace


_Ways = tuple[_Way, ...]
"""The ways of which none beats another."""


@dataclass(frozen=True)
class Path:
    """The most operations between a position of `source` and one of the result, by the shortest way.

    `hops` is None where not every position of the result depends on every one of the input: then `seen` tells how
    many neighbouring positions a position depends on, those on one side and itself.
    """

    source: str
    hops: int | None
    seen: int


def longest_paths(graph: Graph, length: int) -> list[Path]:
    """The path of each input of the graph that carries information, where each has `length` positions."""
    inputs = [value for value in graph.inputs if value.type.dtype != "bool"]
    return [_path(graph, value, length) for value in inputs]


def _path(graph: Graph, source: Value, length: int) -> Path:
    walk = _Walk(graph, length)
    found = walk.run(source)
    hops = _arrival(found)
    furthest = max((way.distance for way in found), default=0.0)
    return Path(source.name, None if hops == inf else int(hops), round(min(furthest, 1) * (length - 1)) + 1)


class _Walk:
    """Carries the ways from one input through the nodes of a graph."""

    def __init__(self, graph: Graph, length: int) -> None:
        self.graph = graph
        self.axes = position_axes(graph)
        self.keys = {name for node in graph.nodes for name in (getattr(node.op, "keys", None),) if name}
        self.length = length

    def run(self, source: Value) -> _Ways:
        ways: dict[str, _Ways] = {source.name: (_Way(0, 0.0),)}
        for node in self.graph.nodes:
            found = self.node(node, [ways.get(value.name, ()) for value in node.inputs])
            ways.update((value.name, () if value.type.dtype == "bool" else found) for value in node.outputs)
        return ways.get(self.graph.outputs[0].name, ())

    def node(self, node: Node, given: Sequence[_Ways]) -> _Ways:
        if not any(given) or isinstance(node.op, Positions):
            return ()
        result = node.outputs[0].type
        gathered = [
            _gathered(ways) if self.placed(result) and not self.placed(value.type) else ways
            for ways, value in zip(given, node.inputs, strict=True)
        ]
        reach = cost_of(node).reach
        if reach is None or reach.axis not in self.axes:
            return _best(way for ways in gathered for way in ways)
        moved = [self.moved(ways, reach, node.inputs[index].type) for index, ways in enumerate(gathered)]
        if isinstance(node.op, Recurrence) and node.op.started:
            start = gathered[node.op.sequences]
            moved[node.op.sequences] = tuple(_Way(way.hops, 0.0, self.pace(result, reach)) for way in start)
        return _best(way for ways in moved for way in ways)

    def moved(self, ways: _Ways, reach: Reach, type: Type) -> _Ways:
        """The ways after an op that mixes positions, for an input that has this axis of them."""
        if reach.axis not in type.names:
            return ways
        pace = self.pace(type, reach)
        if reach.kind == "serial":
            return tuple(_Way(way.hops, way.distance, pace) for way in ways)
        step = 1.0 if reach.kind == "all" else reach.span * pace
        further = (_Way(way.hops + 1, min(1.0, way.distance + step), way.pace) for way in ways)
        return (*ways, *further)

    def pace(self, type: Type, reach: Reach) -> float:
        """One position as a part of the distance from the first to the last."""
        size = type.axis(reach.axis).size or self.length
        return 1 / max(size - 1, 1)

    def placed(self, type: Type) -> bool:
        return any(name in self.axes or name in self.keys for name in type.names)


def _gathered(ways: _Ways) -> _Ways:
    """What a value without positions tells to every position: only what has come all the way."""
    hops = _arrival(ways)
    return () if hops == inf else (_Way(int(hops), 1.0),)


def _arrival(ways: Iterable[_Way]) -> float:
    return min((way.arrival() for way in ways), default=inf)


def _best(ways: Iterable[_Way]) -> _Ways:
    kept: list[_Way] = []
    for way in sorted(set(ways), key=lambda way: (way.hops, -way.distance, -way.pace)):
        if not any(other.beats(way) for other in kept):
            kept.append(way)
    return tuple(kept)


def path_formula(reaches: Sequence[Reach]) -> str | None:
    """The maximum path length through layers of one type, as in Table 1 of Vaswani et al. (2017); None without any.

    `reaches` are those of the layers that there are. Those that look k positions wide take O(n/k) layers, or O(log_k n)
    where each one's dilation is a multiple of the one before.
    """
    kinds = {reach.kind for reach in reaches}
    if not kinds:
        return None
    if "all" in kinds:
        return "O(1)"
    local = [reach for reach in reaches if reach.kind == "local"]
    if not local:
        return "O(n)"
    name = local[0].width.name if local[0].width is not None else "k"
    dilations = sorted({reach.dilation for reach in local})
    grows = len(dilations) > 1 and all(
        later >= 2 * earlier for earlier, later in zip(dilations, dilations[1:], strict=False)
    )
    return f"O(log_{name}(n))" if grows else f"O(n/{name})"
