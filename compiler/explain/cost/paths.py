"""Path lengths: the number of operations on the shortest path of information between two positions."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from xformc.compiler.explain.cost.complexity import CostOf
from xformc.compiler.graph.axes import Type
from xformc.compiler.graph.cost import Reach
from xformc.compiler.graph.graph import Graph, Node, Value
from xformc.compiler.graph.rules import made_lengths
from xformc.compiler.ops.fused_attention import Attention
from xformc.compiler.ops.keys import AsKeys
from xformc.compiler.ops.masks import LocalMask
from xformc.compiler.ops.positions import Positions
from xformc.compiler.ops.recurrence import Recurrence
from xformc.compiler.ops.reshape import Merge

Ways = NDArray[np.float32]
"""The fewest operations in which information moves by each offset, from -(n - 1) to n - 1 positions.

Infinite if it does not get there.
"""


@dataclass(frozen=True)
class Path:
    """The maximum over pairs of positions, of the input `source` and the result, of the shortest path length.

    Only operations that mix positions count. In a causal graph, only the direction with paths counts. `hops` is None if
    some of the `positions` of the result do not depend on every position of the input in that direction; `seen` is the
    number of positions that they depend on.
    """

    source: str
    positions: int
    hops: int | None
    seen: int


def longest_paths(graph: Graph, length: int, positions: frozenset[str], costs: CostOf) -> list[Path]:
    """The path of each input of the graph that carries information, if every input has `length` positions.

    `positions` are the axes of positions.
    """
    reaches = {id(node): reach for node in graph.nodes if (reach := costs(node).reach) and reach.axis in positions}
    causal = _causal_keys(graph)
    for node in graph.nodes:
        if isinstance(node.op, AsKeys) and node.op.keys in causal and id(node) in reaches:
            reaches[id(node)] = replace(reaches[id(node)], after=0)
    walk = _Walk(graph, length, positions, reaches, _strides(graph))
    inputs = [value for value in graph.inputs if value.type.dtype != "bool"]
    found = [(value.name, walk.run(value)) for value in inputs]
    return [_path(name, ways) for name, ways in found if len(ways) > 1]


def _causal_keys(graph: Graph) -> frozenset[str]:
    """The axes of keys of which each mask hides the later ones."""
    masks = [node.op for node in graph.nodes if isinstance(node.op, LocalMask | Attention)]
    return frozenset(op.keys for op in masks if op.causal) - {op.keys for op in masks if not op.causal}


def _path(source: str, ways: Ways) -> Path:
    worst, count = _worst(ways), len(ways) // 2 + 1
    seen = np.convolve(np.isfinite(ways), np.ones(count), "valid").max()  # by each position, of those that there are
    return Path(source, count, None if np.isinf(worst) else int(worst), int(seen))


def _worst(ways: Ways) -> float:
    """The longest of the paths, in the directions that have any."""
    length = len(ways) // 2
    sides = (ways[: length + 1], ways[length:])
    return float(max((side.max() for side in sides if np.isfinite(side).sum() > 1), default=ways[length]))


@dataclass(frozen=True)
class _Walk:
    """Propagates path lengths from one input through a graph. `reaches` is keyed by the ids of nodes.

    `strides`: how many positions of an input lie between two of an axis that is made from it.
    """

    graph: Graph
    length: int
    axes: frozenset[str]
    reaches: Mapping[int, Reach]
    strides: Mapping[str, int]

    def run(self, source: Value) -> Ways:
        start = np.full(2 * self.size(source.type) - 1, np.inf, np.float32)
        start[len(start) // 2] = 0
        ways: dict[str, Ways] = {source.name: start}
        for node in self.graph.nodes:
            given = [(value, ways[value.name]) for value in node.inputs if value.name in ways]
            if given and not isinstance(node.op, Positions) and node.outputs[0].type.dtype != "bool":
                found = self.node(node, given)
                ways.update((value.name, found) for value in node.outputs)
        return ways.get(self.graph.outputs[0].name, start)

    def node(self, node: Node, given: Sequence[tuple[Value, Ways]]) -> Ways:
        reach, result = self.reach(node), node.outputs[0].type
        count = 2 * self.size(result) - 1 if self.positions(result) else None
        starts = node.inputs[node.op.sequences :][:1] if isinstance(node.op, Recurrence) and node.op.started else ()
        found: list[Ways] = []
        for value, ways in given:
            arriving = _placed(ways, count) if isinstance(node.op, Merge) else _spread(ways, count)
            if reach is not None and value in starts:
                found.append(_moved(_entering(arriving, reach), reach))
            else:
                found.append(
                    _moved(arriving, reach) if reach is not None and reach.axis in value.type.names else arriving
                )
        return _shortest(found)

    def reach(self, node: Node) -> Reach | None:
        """How the node mixes positions, in positions of the input."""
        found = self.reaches.get(id(node))
        if found is None or (stride := self.strides.get(found.axis, 1)) == 1:
            return found
        before, after = found.before * stride, found.after * stride
        return replace(found, before=before, after=after, dilation=found.dilation * stride)

    def positions(self, type: Type) -> str | None:
        """The axis of positions of a value, or None."""
        return next((name for name in type.names if name in self.axes), None)

    def size(self, type: Type) -> int:
        """The number of positions of a value; 1 without such an axis."""
        name = self.positions(type)
        return 1 if name is None else type.axis(name).size or self.length


def _strides(graph: Graph) -> dict[str, int]:
    """The stride of each axis of positions that is made from one other axis."""
    strides: dict[str, int] = {}
    for name, length in made_lengths(graph.nodes):
        strides[name] = max(1, length.stride * strides.get(length.of[0], 1) // length.times)
    return strides


def _spread(ways: Ways, count: int | None) -> Ways:
    """The path lengths of a value with `count` offsets; coming from another axis, all positions must have arrived."""
    if count is None or len(ways) == count:
        return ways
    return np.full(count, _worst(ways), np.float32)


def _placed(ways: Ways, count: int | None) -> Ways:
    """The path lengths of positions made from other axes: each position knows about itself."""
    if count is None or len(ways) > 1:
        return _spread(ways, count)
    placed = np.full(count, np.inf, np.float32)
    placed[count // 2] = ways[0]
    return placed


def _entering(ways: Ways, reach: Reach) -> Ways:
    """The path lengths before the first position (the last one, for a reverse recurrence)."""
    first = np.full_like(ways, np.inf)
    first[len(ways) // 2] = ways.min()
    return first


def _moved(ways: Ways, reach: Reach) -> Ways:
    """The path lengths after an op that mixes positions: as before, or with one more move."""
    if reach.kind == "all":
        return np.minimum(ways, ways.min() + 1)
    if reach.kind == "serial":
        return _serial(ways) if reach.before else _serial(ways[::-1])[::-1]
    steps = [*range(-reach.after, 0, reach.dilation), *range(reach.dilation, reach.before + 1, reach.dilation)]
    return _shortest([ways, *(_shifted(ways, step) + 1 for step in steps if abs(step) < len(ways))])


def _serial(ways: Ways) -> Ways:
    """Move by any number of positions, with one operation per position."""
    places = np.arange(len(ways), dtype=np.float32)
    return np.minimum.accumulate(ways - places) + places


def _shifted(ways: Ways, step: int) -> Ways:
    moved = np.full_like(ways, np.inf)
    if step > 0:
        moved[step:] = ways[:-step]
    else:
        moved[:step] = ways[-step:]
    return moved


def _shortest(found: Iterable[Ways]) -> Ways:
    first, *others = found
    for ways in others:
        first = first if ways is first else np.minimum(first, ways)
    return first


def path_formula(reaches: Sequence[Reach]) -> str | None:
    """The maximum path length through layers of one type, as in Table 1 of Vaswani et al. (2017); None without layers.

    `reaches` are the reaches of the layers. Layers of width k need O(n/k) layers, or O(log_k n) if each dilation is a
    multiple of the one before.
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
    grows = len(dilations) > 1 and all(later >= 2 * earlier for earlier, later in pairwise(dilations))
    return f"O(log_{name}(n))" if grows else f"O(n/{name})"
