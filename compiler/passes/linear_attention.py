"""Replaces queries on running sums of outer products by one op, which never computes the sums of single positions.

This is linear attention, as the blocks write it or as a recurrence that the pass `scan` has replaced: a product of keys
and values, its cumulative sum or its scan with a factor, and a contraction with queries.
"""

from collections import Counter
from dataclasses import dataclass

from xformc.compiler.graph.graph import Graph, Node, Value, pruned
from xformc.compiler.graph.graph_builder import copy_node, rebuild
from xformc.compiler.ops.contract import Contract
from xformc.compiler.ops.elementwise import Multiply
from xformc.compiler.ops.layout import Align
from xformc.compiler.ops.linear_attention import LinearAttention
from xformc.compiler.ops.linear_scan import LinearScan
from xformc.compiler.ops.reduction import CumulativeSum


def fuse_linear_attention(graph: Graph) -> Graph:
    """The graph with a LinearAttention node for each query on such sums; other nodes stay as they are."""
    reader = _Reader(graph)
    builder, values = rebuild(graph, graph.name, {})
    for node in graph.nodes:
        found = reader.read(node)
        if found is None:
            copy_node(builder, values, node)
            continue
        (result,) = node.outputs
        inputs = (values[value.name] for value in found.inputs)
        values[result.name] = builder.emit(found.op, inputs, result.name, node.place)
    return pruned(builder.finish(values[value.name] for value in graph.outputs))


@dataclass(frozen=True)
class _Found:
    op: LinearAttention
    inputs: tuple[Value, ...]


@dataclass(frozen=True)
class _Sums:
    """Running sums of `terms`, and the factor by which they decay: a value or a number."""

    positions: str
    terms: Value
    factor: Value | float


class _Reader:
    """Matches such contractions in a graph. Their sums must have no other user."""

    def __init__(self, graph: Graph) -> None:
        self.producers = graph.producers()
        self.uses = Counter(value.name for node in graph.nodes for value in node.inputs)
        self.uses.update(value.name for value in graph.outputs)

    def read(self, node: Node) -> _Found | None:
        if not isinstance(node.op, Contract):
            return None
        for query, sums in (node.inputs, node.inputs[::-1]):
            found = self._sums(sums)
            if found is not None and (fused := self._fused(node, query, found)) is not None:
                return fused
        return None

    def _sums(self, value: Value) -> _Sums | None:
        node = self.producers.get(value.name)
        if node is None or self.uses[value.name] > 1:
            return None
        match node.op:
            case CumulativeSum(axis):
                return _Sums(axis, node.inputs[0], 1.0)
            case LinearScan(positions, False, factor, False, False):
                return _Sums(positions, node.inputs[0], node.inputs[1] if factor is None else factor)
            case _:
                return None

    def _fused(self, node: Node, query: Value, sums: _Sums) -> _Found | None:
        assert isinstance(node.op, Contract)
        product = self.producers.get(sums.terms.name)
        if product is not None and isinstance(product.op, Align):
            product = self.producers.get(product.inputs[0].name)
        if product is None or not isinstance(product.op, Multiply):
            return None
        over = node.op.over
        key, value = sorted(product.inputs, key=lambda item: over not in item.type.names)
        columns = {*value.type.names} - {*key.type.names, *query.type.names}
        vectors = all(sums.positions in item.type.names for item in (query, key, value))
        if not vectors or over in value.type.names or not columns:
            return None
        factors = (sums.factor,) if isinstance(sums.factor, Value) else ()
        if any(columns & {*item.type.names} for item in factors):
            return None
        number = None if factors else sums.factor
        assert not isinstance(number, Value)
        op = LinearAttention(sums.positions, over, number, node.outputs[0].type.names)
        return _Found(op, (query, key, value, *factors))
