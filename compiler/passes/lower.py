"""Lowers graphs for the target `native`: replaces nodes that one operator of docs/kernels.md computes with one node.

A projection absorbs the activation, residual and normalization after it; plain projections of the same value are merged
into one node. Other normalizations, rotations and products of like values have operators, so that they do not part the
others. Attention reads keys in the layout that projections write. In a step, caches are updated in place, and
reordering a beam moves only its ancestor indices. Sums over positions are added in order, so that padding does not
change their last bits. Other nodes stay as they are.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import prod

from xformc.compiler.graph.axes import Axis, DType, Type
from xformc.compiler.graph.graph import Graph, Node, Op, Value, pruned
from xformc.compiler.graph.graph_builder import GraphBuilder, copy_node
from xformc.compiler.graph.weight import LayoutName
from xformc.compiler.ops.elementwise import Add, Multiply, Scale
from xformc.compiler.ops.embedding import Embedding
from xformc.compiler.ops.functions import Unary
from xformc.compiler.ops.fused_attention import Attention
from xformc.compiler.ops.keys import Append
from xformc.compiler.ops.linear import Linear
from xformc.compiler.ops.native import (
    ACTIVATIONS,
    Attend,
    AttendCached,
    Embed,
    Narrow,
    Normalize,
    Pairwise,
    Project,
    QuantizeRows,
    RowAt,
    Turn,
    has_row_at,
    quantized_axis,
    repeats,
)
from xformc.compiler.ops.normalization import LayerNorm, RMSNorm
from xformc.compiler.ops.positions import At
from xformc.compiler.ops.reduction import Reduce
from xformc.compiler.ops.rotary import Rotate
from xformc.compiler.passes.makers import PrecisionOf, maker
from xformc.compiler.passes.step import Decoder, Resident
from xformc.compiler.quantize.formats import FORMATS
from xformc.format.precision import Caches

LARGE_VOCABULARY = 16384
"""The vocabulary from which screening logits is faster than computing all in float32; at 10,000 both are equal."""

SLOTS = "step/slots"
"""The axis of prepared values and caches, one entry per sentence; a row of the batch finds its entry by its slot."""

ANCESTORS = Value("step/ancestors", Type("int64", (Axis("batch"), Axis("beam"), Axis("past"))))
"""The beam index of each hypothesis at each earlier position."""


def lower_graph(graph: Graph, precision_of: PrecisionOf, screened: frozenset[str] = frozenset()) -> Graph:
    """Lower a graph to kernels where possible; `screened`: see `screened_weights`."""
    return _Lowering(graph, _packable([graph], precision_of) - screened, precision_of, screened).run()


def lower_decoder(
    decoder: Decoder, precision_of: PrecisionOf, screened: frozenset[str] = frozenset(), caches: Caches = "auto"
) -> Decoder:
    """Lower a tabulated decoder to kernels where possible; the inputs that only kernels need are its `resident`.

    `screened`: see `screened_weights`. `caches`: how the keys and values of attention are stored.
    """
    packable = _packable(_graphs(decoder), precision_of) - screened
    slotted = _slotted(decoder)
    small: DType = "int8" if caches == "int8" else "float16"
    narrowed = _narrowed(decoder, slotted, precision_of, small)
    made = zip(decoder.constants, decoder.prepare.outputs, strict=False)
    outputs = frozenset(value.name for constant, value in made if constant.name in narrowed)
    prepare = _Lowering(decoder.prepare, packable, precision_of, screened, narrowed=outputs, small=small).run()
    producers = decoder.step.producers()
    cached = [
        replace(
            item,
            stored=small
            if all(_shrinks(node.inputs[1], producers, precision_of, small) for node in item.appends)
            else "float32",
        )
        for item in _cached(decoder)
    ]
    lowering = _Lowering(
        decoder.step, packable, precision_of, screened, cached, slotted, narrowed, small, decoder.position
    )
    step = lowering.run()
    kept = {value.name: value for value in step.inputs}
    constants = tuple(kept[value.name] for value in decoder.constants)
    moving = [state for state in decoder.states if state.past.name not in lowering.in_place]
    states = tuple(
        replace(state, past=kept[state.past.name], new=new) for state, new in zip(moving, step.outputs[1:], strict=True)
    )
    extend = decoder.extend
    if extend is not None:
        cached = [_extended(item, extend) for item in cached]
        extend = replace(lowering, graph=extend, cached=cached).run()
    slots = lowering.slots
    resident = None if slots is None else Resident(slots, lowering.ancestors, tuple(lowering.caches))
    return replace(
        decoder, prepare=prepare, step=step, extend=extend, constants=constants, states=states, resident=resident
    )


def split_vocabulary(decoder: Decoder) -> Decoder:
    """Move the final projection of a lowered decoder out of the step, without a beam out of that of several tokens: its
    `projection` computes the logits from the step's first output. If the logits do not come from a plain projection,
    the decoder is returned unchanged.
    """
    beam = "beam" in decoder.token.type.names
    graph = decoder.step if beam or decoder.extend is None else decoder.extend
    last = graph.producers().get(graph.outputs[0].name)
    if last is None or not isinstance(last.op, Project):
        return decoder
    if last.op != Project(last.op.over, 1, last.op.biased, layout=last.op.layout):
        return decoder
    nodes = tuple(node for node in graph.nodes if node is not last)
    graph = replace(graph, nodes=nodes, outputs=(last.inputs[0], *graph.outputs[1:]))
    return replace(decoder, projection=last, **{"step" if beam else "extend": graph})


def screened_weights(decoder: Decoder, precision_of: PrecisionOf) -> frozenset[str]:
    """The weight of a large vocabulary, whose logits a search screens, in a decoder that is not lowered: if its number
    format can be screened, and nothing else reads it but embeddings. All models of an engine then store it so."""
    last = decoder.step.producers().get(decoder.logits.name)
    if last is None or not isinstance(last.op, Linear):
        return frozenset()
    weight = last.inputs[1]
    nodes = [node for graph in (decoder.prepare, decoder.step) for node in graph.nodes]
    alone = sum(isinstance(node.op, Linear) and weight in node.inputs for node in nodes) == 1
    large = prod(weight.type.sizes()[: -len(last.op.over)]) >= LARGE_VOCABULARY
    screens = "screened" in FORMATS[precision_of(weight.name)].layouts
    packs = weight.name in _packable(_graphs(decoder), precision_of)
    return frozenset({weight.name} if alone and large and screens and packs else ())


def _graphs(decoder: Decoder) -> list[Graph]:
    return [graph for graph in (decoder.prepare, decoder.step, decoder.extend) if graph is not None]


def _packable(graphs: Iterable[Graph], precision_of: PrecisionOf) -> frozenset[str]:
    """The parameters that are used only as weights of projections, and quantized ones used as embedding tables."""
    projected, others = set[str](), set[str]()
    looked_up = set[str]()
    for graph in graphs:
        names = {parameter.name for parameter in graph.parameters}
        for node in graph.nodes:
            for index, value in enumerate(node.inputs):
                if value.name not in names:
                    continue
                if index == 1 and isinstance(node.op, Linear):
                    projected.add(value.name)
                elif index == 1 and isinstance(node.op, Embedding) and len(value.type.axes) == 2:
                    looked_up.add(value.name)
                else:
                    others.add(value.name)
    rounded = {name for name in looked_up if precision_of(name) != "float32"}
    packed = (projected | rounded) - others
    return frozenset(name for name in packed if "panels" in FORMATS[precision_of(name)].layouts)


@dataclass(frozen=True)
class _Cached:
    """An attention of a step, the nodes that append to its two caches, its rows, and the heads of its keys.

    `stored` is the type of its caches.
    """

    node: Node
    keys: Node
    values: Node
    window: int | None
    rows: tuple[str, ...]
    shared: tuple[str, ...]
    stored: DType = "float32"

    @property
    def appends(self) -> tuple[Node, Node]:
        return self.keys, self.values

    @property
    def caches(self) -> tuple[Value, Value]:
        return self.keys.inputs[0], self.values.inputs[0]


def _cached(decoder: Decoder) -> list[_Cached]:
    """The attentions of the step that are the only readers of their two caches."""
    producers = decoder.step.producers()
    uses = Counter(value.name for node in decoder.step.nodes for value in node.inputs)
    carried = {state.past.name: state for state in decoder.states}

    def appends(item: Node | None) -> Append | None:
        """The op of the node if it appends to an initially empty cache of one attention."""
        if item is None or not isinstance(item.op, Append):
            return None
        cache, seen = item.inputs[0], item.outputs[0]
        state = carried.get(cache.name)
        own = (
            state is not None
            and state.initial is None
            and state.new == seen
            and uses[cache.name] == uses[seen.name] == 1
            and cache.type.names[-1] == seen.type.names[-1]
        )
        return item.op if own else None

    found: list[_Cached] = []
    for node in decoder.step.nodes:
        if not isinstance(node.op, Attention) or node.op.masks:
            continue
        keys, values = (producers.get(value.name) for value in node.inputs[1:3])
        first, second = appends(keys), appends(values)
        if keys is None or values is None or keys is values or first is None or second is None:
            continue
        if first.window == second.window:
            found += _read_cached(node.op, node, keys, values, first.window, decoder.time)
    return found


def _read_cached(op: Attention, node: Node, keys: Node, values: Node, window: int | None, time: str) -> list[_Cached]:
    """The attention, if its axes are in the kernel's order."""
    query, key = node.inputs[0].type, keys.inputs[1].type
    rows = tuple(name for name in ("batch", "beam", time) if name in query.names)
    shared = key.names[len(rows) : -1]
    fits = _reads(query, rows, shared) and key.names[: len(rows)] == rows
    fits = fits and _plain(op, node, query.names[len(rows) : -1])
    return [_Cached(node, keys, values, window, rows, shared)] if fits else []


def _extended(item: _Cached, extend: Graph) -> _Cached:
    """The same attention of several positions; its mask hides what the kernel never reads."""
    producers = extend.producers()
    node = producers[item.node.outputs[0].name]
    keys, values = (producers[value.name] for value in node.inputs[1:3])
    return replace(item, node=node, keys=keys, values=values)


def _plain(op: Attention, node: Node, heads: tuple[str, ...]) -> bool:
    """Whether the sum of its biases has the axis of keys, else only those of heads and queries."""
    biases = [value.type.names for value in node.inputs[3 + op.masks :]]
    names = {name for bias in biases for name in bias}
    return op.edges == 0 and (not biases or op.keys in names) and names <= {*heads, op.queries, op.keys}


def _reads(query: Type, rows: tuple[str, ...], shared: tuple[str, ...]) -> bool:
    """Whether the query's axes are rows, heads of the keys, other heads, and depth, and all heads have a size."""
    heads = query.axes[len(rows) : -1]
    ordered = query.names[: len(rows)] == rows and query.names[len(rows) : len(rows) + len(shared)] == shared
    return ordered and all(axis.size is not None for axis in heads)


def _slotted(decoder: Decoder) -> frozenset[str]:
    """The constants that only attention reads, as keys, values or mask, so that rows can address them by slot.

    A step of several tokens may read in a loop what the step of one token reads by attention.
    """
    nodes = [*decoder.step.nodes, *(() if decoder.extend is None else decoder.extend.nodes)]
    memories = [
        {value.name for value in node.inputs[1 : 3 + node.op.masks]}
        for node in nodes
        if isinstance(node.op, Attention) and _attends(node.op, node)
    ]
    uses = Counter(value.name for node in nodes for value in node.inputs)
    attended = Counter(name for names in memories for name in names)
    found = {value.name for value in decoder.constants if 0 < uses[value.name] == attended[value.name]}
    return _whole(memories, found)


def _whole(groups: list[set[str]], found: set[str]) -> frozenset[str]:
    """Remove from `found` the groups that are not entirely in it."""
    while strange := [names for names in groups if names & found and not names <= found]:
        found.difference_update(*strange)
    return frozenset(found)


def _narrowed(decoder: Decoder, slotted: frozenset[str], precision_of: PrecisionOf, small: DType) -> frozenset[str]:
    """The constants that are keys and values of attention and are stored in the type `small`."""
    pairs = [
        {value.name for value in node.inputs[1:3]}
        for node in decoder.step.nodes
        if isinstance(node.op, Attention) and _attends(node.op, node)
    ]
    pairs = [names for names in pairs if names <= slotted]
    uses = Counter(value.name for value in decoder.prepare.outputs)
    producers = decoder.prepare.producers()
    rounded = {
        constant.name
        for constant, made in zip(decoder.constants, decoder.prepare.outputs, strict=False)
        if uses[made.name] == 1 and _shrinks(made, producers, precision_of, small)
    }
    return _whole(pairs, rounded & set[str]().union(*pairs))


def _shrinks(value: Value, producers: Mapping[str, Node], precision_of: PrecisionOf, small: DType) -> bool:
    """Whether keys or values are stored in the type `small`: all are in int8; in float16, those of coarser products."""
    return small == "int8" or _rounded(value, producers, precision_of)


def _rounded(value: Value, producers: Mapping[str, Node], precision_of: PrecisionOf) -> bool:
    """Whether it comes from a matrix product whose number format is much coarser than float16."""
    made = maker(value, producers, precision_of)
    return made is not None and FORMATS[made].coarse


def _sums_positions(op: Reduce, type: Type) -> bool:
    """Whether it adds values whose number is known only at run time."""
    return op.function in ("sum", "mean") and type.axis(op.axis).size is None


def _ordered(node: Node) -> tuple[Value, Value] | None:
    """The inputs of a sum or a product, such that the second has the last axes of the first; None if neither has."""
    first, second = node.inputs
    if repeats(first.type, second.type):
        return first, second
    return (second, first) if repeats(second.type, first.type) else None


def _attends(op: Attention, node: Node) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """The names of the rows and of the shared heads, if `Attend` can compute this attention."""
    if op.window is not None or op.masks > 1:
        return None
    query, key = (value.type for value in node.inputs[:2])
    rows = tuple(name for name in query.names[:-1] if name in ("batch", "beam", op.queries))
    shared = key.names[2:-1]
    if key.names[:2] != ("batch", op.keys) or not _reads(query, rows, shared) or rows[:1] != ("batch",):
        return None
    if not _plain(op, node, query.names[len(rows) : -1]):
        return None
    if op.masks and node.inputs[3].type.axes != key.axes[:2]:
        return None
    return None if op.causal and len(rows) != 2 else (rows, shared)


@dataclass
class _Chain:
    """A projection and the following nodes that it absorbs."""

    nodes: list[Node]
    activation: str = "none"
    residual: Value | None = None
    norm: Node | None = None

    @property
    def last(self) -> Node:
        return self.nodes[-1]


@dataclass
class _Lowering:
    """Lowers one graph."""

    graph: Graph
    packable: frozenset[str]
    precision_of: PrecisionOf
    screened: frozenset[str] = frozenset()
    cached: list[_Cached] = field(default_factory=list[_Cached])
    slotted: frozenset[str] = frozenset()
    narrowed: frozenset[str] = frozenset()
    small: DType = "float16"
    position: Value | None = None

    def __post_init__(self) -> None:
        self.builder = GraphBuilder(self.graph.name)
        self.values: dict[str, Value] = {}
        self.slots: Value | None = None
        self.ancestors: Value | None = None
        self.caches: list[Value] = []
        self.users: dict[str, list[Node]] = defaultdict(list)
        for node in self.graph.nodes:
            for value in node.inputs:
                self.users[value.name].append(node)
        self.results = {value.name for value in self.graph.outputs}
        self.in_place = {cache.name for item in self.cached for cache in item.caches}
        self.appends = [
            node for node in self.graph.nodes if isinstance(node.op, Append) and node.inputs[0].name in self.in_place
        ]

    def run(self) -> Graph:
        self._declare()
        attentions = {item.node.outputs[0].name: item for item in self.cached}
        chains, groups = self._projections()
        done = {id(node) for node in self.appends}
        for node in self.graph.nodes:
            if id(node) in done:
                continue
            if (group := groups.get(id(node))) is not None:
                self._project_all(group)
                done.update(id(item) for item in group)
            elif (chain := chains.get(id(node))) is not None:
                if node is chain.last:
                    self._project(chain)
            elif node.outputs[0].name in attentions:
                self._attend_cached(attentions[node.outputs[0].name])
            else:
                self._lower(node)
        gone = {node.outputs[0].name for node in self.appends}
        results = [self._result(value) for value in self.graph.outputs if value.name not in gone]
        return pruned(self.builder.finish(results))

    def _result(self, value: Value) -> Value:
        result = self.values[value.name]
        store = QuantizeRows() if self.small == "int8" else Narrow()
        return self.builder.emit(store, (result,), value.name) if value.name in self.narrowed else result

    def _declare(self) -> None:
        """Declare the inputs and parameters; the inputs for kernels come last."""
        for value in self.graph.inputs:
            if value.name in self.in_place:
                continue
            axes = value.type.axes
            if value.name in self.slotted:
                axes = (Axis(SLOTS), *axes[1:])
            dtype = self.small if value.name in self.narrowed else value.type.dtype
            if dtype == "int8":
                axes = (*axes[:-1], quantized_axis(axes[-1]))
            self.values[value.name] = self.builder.input(value.name, Type(dtype, axes))
        if self.slotted or self.cached:
            self.slots = self.builder.input(SLOTS, Type("int64", (Axis("batch"),)))
        beam = any("beam" in item.rows for item in self.cached)
        if beam:
            self.ancestors = self.builder.input(ANCESTORS.name, ANCESTORS.type)
        for item in self.cached:
            for cache in item.caches:
                depth = cache.type.axes[-1]
                rows = (*cache.type.axes[:-1], quantized_axis(depth) if item.stored == "int8" else depth)
                width = prod(axis.size or 1 for axis in rows)
                axes = (Axis(SLOTS), Axis("capacity"), Axis("beam", None if beam else 1), Axis("width", width))
                self.caches.append(self.builder.input(cache.name, Type(item.stored, axes)))
                self.values[cache.name] = self.caches[-1]
        self.values |= self.builder.take_parameters(self.graph)

    def _projections(self) -> tuple[dict[int, _Chain], dict[int, list[Node]]]:
        """The chains by each of their nodes, and groups of plain projections to merge, by the first of each group."""
        chains: dict[int, _Chain] = {}
        alike: dict[tuple[object, ...], list[Node]] = defaultdict(list)
        for node in self.graph.nodes:
            if not isinstance(node.op, Linear) or self._layout(node.inputs[1]) == "rows":
                continue
            chain = self._chain(node, chains)
            if len(chain.nodes) > 1:
                chains.update((id(item), chain) for item in chain.nodes)
                continue
            stored = self.precision_of(node.inputs[1].name), self._layout(node.inputs[1])
            alike[node.inputs[0].name, node.op.over, len(node.inputs), stored].append(node)
        return chains, {id(group[0]): group for group in alike.values()}

    def _layout(self, weight: Value) -> LayoutName:
        return "screened" if weight.name in self.screened else "panels" if weight.name in self.packable else "rows"

    def _chain(self, node: Node, taken: Mapping[int, _Chain]) -> _Chain:
        """The projection with the following nodes that it can absorb, unless another chain has them."""
        chain = _Chain([node])
        after = self._only_user(node)
        if after is not None and isinstance(after.op, Unary) and after.op.function in ACTIVATIONS:
            chain.activation = after.op.function
            chain.nodes.append(after)
            after = self._only_user(after)
        result = chain.last.outputs[0]
        if after is not None and isinstance(after.op, Add) and id(after) not in taken:
            other = after.inputs[1] if after.inputs[0] == result else after.inputs[0]
            if other.type == result.type == after.outputs[0].type and other != result:
                chain.residual = other
                chain.nodes.append(after)
                after = self._only_user(after)
        if after is not None and isinstance(after.op, LayerNorm | RMSNorm) and after.inputs[0] == chain.last.outputs[0]:
            assert isinstance(node.op, Linear)
            new = node.inputs[1].type.axes[: -len(node.op.over)]
            # The kernel has a gain, after LayerNorm also a bias, and one axis.
            learned = [value.type.axes for value in after.inputs[1:]]
            if learned == [new] * (2 if isinstance(after.op, LayerNorm) else 1) and len(new) == 1:
                chain.norm = after
                chain.nodes.append(after)
        return chain

    def _only_user(self, node: Node) -> Node | None:
        """The only node that uses the result, or None."""
        (result,) = node.outputs
        users = self.users[result.name]
        return users[0] if len(users) == 1 and result.name not in self.results else None

    def _project(self, chain: _Chain) -> None:
        first, op = chain.nodes[0], chain.nodes[0].op
        assert isinstance(op, Linear)
        norm = chain.norm
        kind = "none" if norm is None else "layer" if isinstance(norm.op, LayerNorm) else "rms"
        epsilon = norm.op.epsilon if norm is not None and isinstance(norm.op, LayerNorm | RMSNorm) else 0.0
        extra = [*([chain.residual] if chain.residual else []), *(norm.inputs[1:] if norm else ())]
        inputs = (first.inputs[0], *extra, *first.inputs[1:])
        absorbed = chain.activation, chain.residual is not None, kind, epsilon
        project = Project(op.over, 1, len(first.inputs) == 3, *absorbed, self._layout(first.inputs[1]))
        self._emit(project, inputs, chain.last)

    def _project_all(self, group: list[Node]) -> None:
        first = group[0]
        assert isinstance(first.op, Linear)
        project = Project(first.op.over, len(group), len(first.inputs) == 3, layout=self._layout(first.inputs[1]))
        inputs = [self.values[first.inputs[0].name]]
        inputs += [self.values[value.name] for node in group for value in node.inputs[1:]]
        results = self.builder.emit_all(project, inputs, first.outputs[0].name, first.place)
        self.values.update({node.outputs[0].name: value for node, value in zip(group, results, strict=True)})

    def _emit(self, op: Op, inputs: Iterable[Value], like: Node) -> None:
        arguments = [self.values.get(value.name, value) for value in inputs]
        name = like.outputs[0].name
        self.values[name] = self.builder.emit(op, arguments, name, like.place)

    def _bias(self, attention: Node) -> list[Value]:
        """The sum of its biases, or nothing."""
        assert isinstance(attention.op, Attention)
        parts = [self.values[value.name] for value in attention.inputs[3 + attention.op.masks :]]
        for part in parts[1:]:
            name = f"{attention.outputs[0].name}/bias"
            parts[0] = self.builder.emit(Add(), (parts[0], part), name, attention.place)
        return parts[:1]

    def _attend_cached(self, item: _Cached) -> None:
        op, query = item.node.op, item.node.inputs[0]
        assert isinstance(op, Attention) and self.position is not None and self.slots is not None
        biases = self._bias(item.node)
        inputs = (
            query,
            item.keys.inputs[1],
            item.values.inputs[1],
            *item.caches,
            self.position,
            self.slots,
            *([self.ancestors] if self.ancestors is not None else []),
            *biases,
        )
        several = item.keys.inputs[1].type.axis(op.queries).size is None
        attend = AttendCached(
            op.scale, item.shared, len(item.rows), op.queries, item.window, bool(biases), several, op.cap
        )
        self._emit(attend, inputs, item.node)

    def _lower(self, node: Node) -> None:
        op = node.op
        if isinstance(op, Attention) and (found := _attends(op, node)) is not None:
            rows, shared = found
            slotted = all(value.name in self.slotted for value in node.inputs[1 : 3 + op.masks])
            bias = self._bias(node)
            given = op.queries, op.causal, bool(op.masks), bool(bias), slotted, op.cap
            attend = Attend(op.scale, shared, len(rows), *given)
            extra = [self.slots] if slotted and self.slots is not None else []
            self._emit(attend, (*node.inputs[: 3 + op.masks], *bias, *extra), node)
        elif isinstance(op, Embedding) and node.inputs[1].name in self.packable | self.screened:
            layout = self._layout(node.inputs[1])
            users = self.users[node.outputs[0].name]
            scaled = users[0] if len(users) == 1 and isinstance(users[0].op, Scale) else None
            if scaled is not None and node.outputs[0].name not in self.results:
                assert isinstance(scaled.op, Scale)
                self._emit(Embed(scaled.op.factor, layout), node.inputs, scaled)
            else:
                self._emit(Embed(1.0, layout), node.inputs, node)
        elif isinstance(op, LayerNorm | RMSNorm):
            self._emit(Normalize(op), node.inputs, node)
        elif isinstance(op, Rotate):
            self._emit(Turn(op), node.inputs, node)
        elif isinstance(op, Add | Multiply) and (ordered := _ordered(node)) is not None:
            self._emit(Pairwise(op), ordered, node)
        elif isinstance(op, At) and has_row_at(op, node.inputs[0].type):
            self._emit(RowAt(op), node.inputs, node)
        elif isinstance(op, Reduce) and _sums_positions(op, node.inputs[0].type):
            self._emit(replace(op, ordered=True), node.inputs, node)
        elif node.outputs[0].name not in self.values:
            copy_node(self.builder, self.values, node)
