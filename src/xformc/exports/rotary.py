"""Turns rotary pairs of neighbours into pairs of halves: the rows of queries and keys in another order, the same
function.
"""

from collections.abc import Sequence
from dataclasses import replace

from xformc.compiler.graph.graph import Graph, Node
from xformc.compiler.ops.linear import Linear
from xformc.compiler.ops.positions import Positions
from xformc.compiler.ops.rotary import Rotate, rotated_width
from xformc.exports.compare import document
from xformc.exports.source import Source, spec_of


def with_halves(source: Source) -> Source | None:
    """The same model with pairs of halves, to the bit; None if it has no pairs of neighbours, or rotates what is not
    the result of linear maps alone.
    """
    graph = source.spec.graph()
    turned = [node for node in graph.nodes if isinstance(node.op, Rotate) and not node.op.halves]
    orders = _orders(graph, turned)
    if not turned or orders is None:
        return None
    ordered = {path: source.arrays[path].take(order, axis) for path, (axis, order) in orders.items()}
    content = document(source.spec)
    defaults = content.get("defaults", {})
    assert isinstance(defaults, dict)
    rope = defaults.get("rope", {})
    assert isinstance(rope, dict)
    spec = spec_of({**content, "defaults": {**defaults, "rope": {**rope, "halves": True}}})
    return replace(source, spec=spec, arrays={**source.arrays, **ordered})


def _orders(graph: Graph, turned: Sequence[Node]) -> dict[str, tuple[int, list[int]]] | None:
    """The axis that is put in another order, and the order, of each parameter; None if others see that axis, too."""
    makers = {value.name: node for node in graph.nodes for value in node.outputs}
    found: dict[str, tuple[int, list[int]]] = {}
    maps: list[Node] = []
    for node in turned:
        maker = makers.get(node.inputs[0].name)
        if maker is None or not isinstance(maker.op, Linear):
            return None
        maps.append(maker)
        axis = len(maker.inputs[1].type.axes) - len(maker.op.over) - 1
        order = _halves_first(rotated_width(node.inputs[1].type), node.inputs[0].type.axes[-1].size or 0)
        found |= {parameter.name: (axis, order) for parameter in maker.inputs[1:]}
    results = {one.outputs[0].name for one in maps}
    for node in graph.nodes:
        names = {value.name for value in node.inputs}
        seen = names & results and node not in turned and not isinstance(node.op, Positions)
        if seen or (names & found.keys() and node not in maps):
            return None
    return found


def _halves_first(width: int, size: int) -> list[int]:
    """The places of the first numbers of the pairs, then of the second ones, then of those that are not rotated."""
    return [*range(0, width, 2), *range(1, width, 2), *range(width, size)]
