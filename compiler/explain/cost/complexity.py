"""Complexities in the notation of the paper: n positions, d the width of a vector, k and r other widths."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from xformc.compiler.graph.axes import Axis
from xformc.compiler.graph.cost import Cost, Polynomial
from xformc.compiler.graph.graph import Graph, Node, all_nodes
from xformc.compiler.graph.rules import cost_of, made_lengths
from xformc.compiler.ops.embedding import Embedding
from xformc.compiler.ops.keys import AsKeys
from xformc.compiler.ops.linear import Linear

POSITIONS, WIDTH, WINDOW = "n", "d", "r"
_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Symbols:
    """The symbols of a graph's axes in complexities.

    `positions`: the axes of positions. `keys`: the symbol of each axis of keys, n or, with a window, r. `widths`:
    groups of axes that form the width of a vector, such as heads and d_k, since a linear map reads or writes them
    together.
    """

    positions: frozenset[str]
    keys: Mapping[str, str]
    widths: tuple[tuple[str, ...], ...]

    @cached_property
    def parts(self) -> frozenset[str]:
        """The axes that are part of the width of a vector."""
        return frozenset(name for width in self.widths for name in width)

    def order(self, polynomial: Polynomial) -> str:
        """The leading terms without constants and batch, such as `O(n²·d + n·d²)`."""
        terms = [self._term(axes) for axes, _ in polynomial.terms]
        unique = list({tuple(sorted(term.items())): term for term in terms}.values())
        leading = [term for term in unique if not any(self._below(term, other) for other in unique if other != term)]
        leading.sort(key=lambda term: (-term[POSITIONS], -term[WIDTH]))
        return f"O({' + '.join(map(_product, leading)) or '0'})"

    def _term(self, axes: Iterable[Axis]) -> "Counter[str]":
        left = Counter(self._name(axis.name) for axis in axes if axis.name != "batch")
        for width in self.widths:
            times = min(left[name] for name in width)
            left.subtract({name: times for name in width})
            left[WIDTH] += times
        return +left

    def _name(self, axis: str) -> str:
        return POSITIONS if axis in self.positions else self.keys.get(axis, axis)

    def _below(self, term: "Counter[str]", other: "Counter[str]") -> bool:
        """Whether a term grows no faster than another: each of its factors divides the other, a part of d also d."""
        missing = term - other
        spare = other[WIDTH] - term[WIDTH]
        return set(missing) <= self.parts and missing.total() <= max(spare, 0)


def _product(term: "Counter[str]") -> str:
    if not term:
        return "1"
    place = {POSITIONS: 1, WIDTH: 2}
    names = sorted(term, key=lambda name: (place.get(name, 0 if len(name) == 1 else 3), name))
    return "·".join(name + (str(term[name]).translate(_SUPERSCRIPTS) if term[name] > 1 else "") for name in names)


CostOf = Callable[[Node], Cost]


def remembered() -> CostOf:
    """A version of `cost_of` that computes the cost of each node once."""
    known: dict[int, tuple[Node, Cost]] = {}

    def of(node: Node) -> Cost:
        if id(node) not in known:
            known[id(node)] = node, cost_of(node)
        return known[id(node)][1]

    return of


def symbols(graph: Graph, positions: frozenset[str]) -> Symbols:
    """The symbols of a graph's axes; `positions` are its axes of positions."""
    nodes = list(all_nodes(graph.nodes))
    looking = [node.op for node in nodes if isinstance(node.op, AsKeys)]
    keys = {op.keys: POSITIONS if op.window is None else WINDOW for op in looking}
    classes = {node.inputs[1].type.names[0] for node in nodes if isinstance(node.op, Embedding)}
    apart = {*positions, *keys, *classes, *graph.outputs[0].type.names[-1:]}
    widths: set[tuple[str, ...]] = set()
    for node in nodes:
        if isinstance(node.op, Linear):
            weight = node.inputs[1].type.names
            widths |= {weight[: -len(node.op.over)], node.op.over}
    kept = [width for width in widths if width and not apart.intersection(width)]
    return Symbols(positions, keys, tuple(sorted(kept, key=lambda width: (-len(width), width))))


def position_axes(graph: Graph, costs: CostOf) -> frozenset[str]:
    """The axes of positions: axes with a run-time size but keys, and axes that an op mixes as positions."""
    found = {axis.name for value in graph.inputs for axis in value.type.axes if axis.size is None}
    for node in all_nodes(graph.nodes):
        if not isinstance(node.op, AsKeys):
            found |= {name for name, _ in made_lengths((node,))}
        reach = costs(node).reach
        if reach is not None and (reach.kind != "all" or isinstance(node.op, AsKeys)):
            found.add(reach.axis)
    return frozenset(found - {"batch"})
