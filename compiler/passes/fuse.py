"""Fuses scaled dot-product attention (contract, scale, bias, mask, softmax, contract) into one op."""

from collections import Counter
from dataclasses import dataclass, field, replace

from xformc.compiler.graph.graph import Graph, Node, Value, pruned
from xformc.compiler.graph.graph_builder import GraphBuilder, copy_node, rebuild
from xformc.compiler.ops.attention_weights import ALL_POSITIONS
from xformc.compiler.ops.contract import Contract
from xformc.compiler.ops.elementwise import Add, Dropout, Scale
from xformc.compiler.ops.functions import Unary
from xformc.compiler.ops.fused_attention import Attention
from xformc.compiler.ops.keys import AsKeys
from xformc.compiler.ops.layout import Align
from xformc.compiler.ops.masks import MASKED, NEVER, Fill, LocalMask
from xformc.compiler.ops.recurrence import Recurrence
from xformc.compiler.ops.softmax import Softmax

SMALLEST_SCALE = 1e-3
"""The smallest factor of masked scores; with a smaller one, masks would no longer outweigh all other scores."""


@dataclass(frozen=True)
class _Operand:
    """One side of the product of queries and keys, and the axis that it is summed over."""

    value: Value
    depth: str


@dataclass
class _Found:
    """The parts of an attention matched so far, from its result back to its scores."""

    keys: str
    value: Value
    last: Node
    inner: list[Node] = field(default_factory=list[Node])
    query: _Operand | None = None
    key: _Operand | None = None
    scale: float = 1.0
    dropout: float = 0.0
    cap: float = 0.0
    local: LocalMask | None = None
    masks: list[Value] = field(default_factory=list[Value])
    edges: list[Value] = field(default_factory=list[Value])
    biases: list[Value] = field(default_factory=list[Value])


def fuse_attention(graph: Graph, *, arranged: bool = True, plain: str | None = None) -> Graph:
    """The graph with an Attention node for each softmax dot-product attention; other nodes stay as they are.

    With `arranged`, the axes of its inputs are reordered for matrix products, so that caches are stored in that order.
    Our own kernels take them as projections write them. The attention with the weights `plain` is not fused.
    """
    reader = _Reader(graph)
    read = [item for node in graph.nodes if (item := reader.read(node)) is not None]
    found = {item.last.outputs[0].name: item for item in read if plain not in _names(item)}
    gone = {id(node) for item in found.values() for node in item.inner}
    builder, values = rebuild(graph, graph.name, {})
    for node in graph.nodes:
        item = found.get(node.outputs[0].name)
        if item is not None:
            values[node.outputs[0].name] = _write(builder, values, item, reader, arranged)
        elif id(node) not in gone:
            copy_node(builder, values, _inside(node, arranged, plain))
    return pruned(builder.finish(tuple(values[value.name] for value in graph.outputs)))


def _names(found: _Found) -> set[str]:
    return {value.name for node in found.inner for value in node.outputs}


def _inside(node: Node, arranged: bool, plain: str | None) -> Node:
    """The node, with the attentions in its body fused if it is a recurrence."""
    if not isinstance(node.op, Recurrence):
        return node
    plain = None if plain is None else plain.removesuffix(ALL_POSITIONS)
    return replace(node, op=replace(node.op, body=fuse_attention(node.op.body, arranged=arranged, plain=plain)))


class _Reader:
    """Matches attentions in a graph. Every value inside one must be used by that attention only.

    An attention with two edge masks is not fused: masks are added, and two edge masks would hide as much as one padding
    mask.
    """

    def __init__(self, graph: Graph) -> None:
        self.producers = graph.producers()
        self.uses = Counter(value.name for node in graph.nodes for value in node.inputs)
        self.uses.update(value.name for value in graph.outputs)

    def read(self, node: Node) -> _Found | None:
        if not isinstance(node.op, Contract):
            return None
        for weights, value in (node.inputs, node.inputs[::-1]):
            found = self._weights(_Found(node.op.over, value, node), weights)
            if found is not None and _fits(found):
                return found
        return None

    def own(self, value: Value) -> Node | None:
        """The node that makes the value, if the value has only one user."""
        return self.producers.get(value.name) if self.uses[value.name] == 1 else None

    def _weights(self, found: _Found, value: Value) -> _Found | None:
        node = self.own(value)
        if node is not None and isinstance(node.op, Dropout) and node.op.each is None:
            found.dropout = node.op.probability
            found.inner.append(node)
            node = self.own(node.inputs[0])
        if node is None or node.op != Softmax(found.keys):
            return None
        found.inner.append(node)
        return self._scores(found, node.inputs[0])

    def _scores(self, found: _Found, value: Value) -> _Found | None:
        node = self.own(value)
        if node is None or (found.cap and not isinstance(node.op, Scale | Contract)):
            return None
        found.inner.append(node)
        if isinstance(node.op, Contract):
            return _product(found, node)
        if node.op == Unary("tanh") and found.scale > 0:
            found.cap, found.scale = found.scale, 1.0
        elif isinstance(node.op, Scale):
            found.scale *= node.op.factor
        elif isinstance(node.op, LocalMask | Fill) and found.scale < SMALLEST_SCALE:
            return None
        elif isinstance(node.op, LocalMask) and node.op.keys == found.keys and found.local is None:
            found.local = node.op
        elif isinstance(node.op, Fill) and node.op.value == NEVER:
            found.masks.append(node.inputs[1])
        elif isinstance(node.op, Fill) and node.op.value == MASKED and not found.edges:
            found.edges.append(node.inputs[1])
        elif isinstance(node.op, Add) and found.scale == 1.0:
            return self._biased(found, node)
        else:
            return None
        return self._scores(found, node.inputs[0])

    def _biased(self, found: _Found, node: Node) -> _Found | None:
        """Match a sum of the scores and a bias that has no axes beyond those of the scores."""
        for scores, bias in (node.inputs, node.inputs[::-1]):
            if set(scores.type.names) == set(node.outputs[0].type.names):
                kept = {"inner": [*found.inner], "masks": [*found.masks], "edges": [*found.edges]}
                trial = replace(found, **kept, biases=[*found.biases, bias])
                if (done := self._scores(trial, scores)) is not None:
                    return done
        return None


def _product(found: _Found, node: Node) -> _Found | None:
    """Match the product of queries and keys; the side with the axis of keys is the keys."""
    for query, key in (node.inputs, node.inputs[::-1]):
        if found.keys in key.type.names and found.keys not in query.type.names:
            assert isinstance(node.op, Contract)
            if found.scale <= 0:
                return None
            return replace(found, query=_Operand(query, node.op.over), key=_Operand(key, node.op.over))
    return None


def _fits(found: _Found) -> bool:
    """Whether key and value differ in one axis only, and the query has all axes of the key except the axis of keys."""
    query, key, value = found.query, found.key, found.value
    assert query is not None and key is not None
    shared = {name for name in key.value.type.names if name not in (found.keys, key.depth)}
    own = [name for name in value.type.names if name not in shared and name != found.keys]
    queries = [name for name in query.value.type.names if name not in shared and name != key.depth]
    return len(own) == 1 and shared <= set(value.type.names) & set(query.value.type.names) and bool(queries)


def _write(builder: GraphBuilder, values: dict[str, Value], found: _Found, reader: _Reader, arranged: bool) -> Value:
    """Write the op. If `arranged`, its inputs have the axis order of the computation; otherwise the depth is last."""
    assert found.query is not None and found.key is not None
    name, place = found.last.outputs[0].name, found.last.place
    depth = found.key.depth
    shared = tuple(item for item in found.key.value.type.names if item not in (found.keys, depth))
    (width,) = (item for item in found.value.type.names if item not in (*shared, found.keys))
    free = [item for item in found.query.value.type.names if item not in (*shared, depth)]
    positions = [item for item in free if found.query.value.type.axis(item).size is None]  # not heads of a group
    queries = (positions or free)[-1] if found.local is None else found.local.queries

    def aligned(value: Value, last: tuple[str, ...], part: str) -> Value:
        if value.type.names[-len(last) :] == last:
            return value
        return builder.emit(Align(last), (value,), f"{name}/{part}", place)

    def laid_out(value: Value, width: str, part: str) -> Value:
        """The value in the order [shared.., keys, width]; reorders before AsKeys if possible."""
        source = reader.own(value)
        if source is not None and isinstance(source.op, AsKeys):
            inner = ordered(values[source.inputs[0].name], source.op.positions, width, part)
            return builder.emit(source.op, (inner,), f"{name}/{part}s", source.place)
        return ordered(values[value.name], found.keys, width, part)

    def ordered(value: Value, positions: str, width: str, part: str) -> Value:
        in_order = tuple(item for item in value.type.names if item in shared) == shared
        return aligned(value, (*(() if in_order else _after_batch(shared)), positions, width), part)

    def operands() -> tuple[Value, Value, Value]:
        assert found.query is not None and found.key is not None
        query, key = values[found.query.value.name], values[found.key.value.name]
        if arranged:
            turned = aligned(query, (*((queries,) if queries in free else ()), depth), "query")
            return turned, laid_out(found.key.value, depth, "key"), laid_out(found.value, width, "value")
        key, value = aligned(key, (depth,), "key"), values[found.value.name]
        order = (*key.type.names[:-1], width)
        value = value if value.type.names == order else aligned(value, _after_batch(order), "value")
        return aligned(query, (depth,), "query"), key, value

    op = Attention(
        queries,
        found.keys,
        found.scale,
        found.local is not None and found.local.causal,
        None if found.local is None else found.local.window,
        len(found.masks) + len(found.edges),
        len(found.edges),
        found.dropout,
        found.cap,
    )
    inputs = (*operands(), *(values[item.name] for item in (*found.masks, *found.edges, *found.biases)))
    result = builder.emit(op, inputs, f"{name}/mixed", place)
    wanted = found.last.outputs[0].type.names
    if result.type.names == wanted:
        return result
    return builder.emit(Align(_after_batch(wanted)), (result,), name, place)


def _after_batch(names: tuple[str, ...]) -> tuple[str, ...]:
    """The order without the axis batch, which always comes first, also before a beam."""
    return names[1:] if names[:1] == ("batch",) else names
