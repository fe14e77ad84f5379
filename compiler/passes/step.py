"""Derives the decoder from a training graph: the part that runs once, and the part that runs per token.

A node that does not depend on the time axis goes to `prepare`. A node that maps the time axis position by position is
its own step, on one position. A node that mixes positions of the time axis needs a `to_step` rule, its causal form. A
node that mixes keys of the time axis is allowed if the `hidden` rules show that later keys do not count. Anything else
is an error at its place in the spec.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.graph import Graph, Node, Op, Value, pruned
from xformc.compiler.graph.graph_builder import GraphBuilder, copy_node, rebuild
from xformc.compiler.graph.rules import HIDING, UNREAD, Hidden, RuleError, hidden, mixed_axes, mixture, to_step
from xformc.compiler.graph.timed import outputs_of, timed_values
from xformc.compiler.ops.convolution import Convolution
from xformc.compiler.ops.elementwise import Add
from xformc.compiler.ops.keys import PAST, ROOM, AsKeys, Grow, Places
from xformc.compiler.ops.layout import Expand
from xformc.compiler.ops.positions import Positions
from xformc.compiler.ops.reduction import CumulativeSum
from xformc.format.inputs import USUAL, Vocabularies
from xformc.format.tokens import SpecialTokens


@dataclass(frozen=True)
class State:
    """A state between steps: `new` of one step is `past` of the next.

    It starts as `initial`, a constant of the decoder, or else as zero; axes whose names begin with PAST then have
    size 0.
    """

    past: Value
    new: Value
    initial: Value | None = None


@dataclass(frozen=True)
class Resident:
    """The inputs of a native step that its kernels read and write in place (docs/kernels.md).

    `slots` [batch]: the row of each sentence in the initial batch. `ancestors` [batch, beam, past], with a beam: the
    beam index of each hypothesis at each earlier position. `caches`: [slots, capacity, beam, width].
    """

    slots: Value
    ancestors: Value | None
    caches: tuple[Value, ...]


@dataclass(frozen=True)
class Lineage:
    """The inputs of a step whose `caches`, states by name, have the entries of a whole beam in fixed places.

    `ancestors` [batch, beam, room]: the beam index of each hypothesis at each position, its own one at the current
    position. `ranks` [beam]: 0, 1, ..
    """

    ancestors: Value
    ranks: Value
    caches: frozenset[str]


@dataclass(frozen=True)
class Decoder:
    """Two graphs: `prepare` computes the constants; `step` computes the logits and the new states of one token.

    The inputs of `step`, in order: `token`, int64 [batch, time=1], or [batch, beam, time=1] with a beam; `position`,
    its index, an int64 scalar; the `constants`; the `past` of each of the `states`; and the inputs of `resident` or of
    `lineage`, if any. Its outputs are the logits and then the new states. With a `projection`, its first output
    (without a beam, that of `extend`) is the input of that node instead, which computes the logits.

    `extend` is the step of several tokens at once, from the same states to the same states: its token has the axis
    `time` of any size, and `position` is that of the first. Without a beam only, and not with fixed caches.

    The outputs of `prepare` are the constants, the initial states that are not zero, and the `heads`, which are the
    results of the model that do not depend on the time axis; together they are `prepared`. Its input
    `positions`, if any, is 0, 1, 2, .. up to the last position to decode; with fixed caches it is also a constant.
    `vocabularies` are the special tokens of the inputs.
    """

    time: str
    prepare: Graph
    step: Graph
    extend: Graph | None
    token: Value
    position: Value
    constants: tuple[Value, ...]
    states: tuple[State, ...]
    resident: Resident | None = None
    lineage: Lineage | None = None
    positions: Value | None = None
    projection: Node | None = None
    heads: tuple[Value, ...] = ()
    vocabularies: Vocabularies = USUAL

    @property
    def written(self) -> SpecialTokens:
        """The special tokens of the written text."""
        return self.vocabularies.written

    @property
    def given(self) -> tuple[Value, ...]:
        """The inputs of `prepare` that are inputs of the model."""
        return tuple(value for value in self.prepare.inputs if value != self.positions)

    @property
    def initial(self) -> tuple[Value, ...]:
        """The initial states that are not zero."""
        return tuple(state.initial for state in self.states if state.initial is not None)

    @property
    def prepared(self) -> tuple[Value, ...]:
        """The outputs of `prepare`: the constants, the initial states, and the heads."""
        return (*self.constants, *self.initial, *self.heads)

    @property
    def logits(self) -> Value:
        """The scores over the vocabulary."""
        return self.step.outputs[0] if self.projection is None else self.projection.outputs[0]


_ZERO = "softmax, sigmoid, relu, exp and mask_to_zero of masked scores are zero"
_ALONE = "compute it by an engine of its own that reads the text"
_WHOLE = "one result of the whole text is possible, such as a mean over its positions"


def derive_step(graph: Graph, time: str = "target", *, fixed: bool = False, beside: str | None = None) -> Decoder:
    """Split the training graph along its input and axis `time`. Its first output are the logits of the next token.

    Caches grow by one position in each step. `fixed` caches have an axis `room` from the start: a step writes its own
    position, and later positions are masked as in training. Other outputs that depend on `time` are left out: see
    `outputs_of`.

    Raises: RuleError at a node that is not causal, and at another output that depends on nothing but `time` or has one
    result for each of its positions. The second output may have one, if it has a name: `beside`. It is a state of this
    name, which no step reads; then there is no step of several tokens.
    """
    apart = () if beside is None else graph.outputs[1:2]
    timed = timed_values(graph, time)
    late = tuple(value for value in outputs_of(graph, time) if value not in apart)
    heads = [value for value in graph.outputs[1:] if value not in (*late, *apart)]
    for value in late:
        place, alone = graph.producers()[value.name].place, len(graph.inputs) == 1
        reason = f"{value.name} is a result {'' if alone else 'of each position '}of '{time}', which the engine writes"
        if alone or time in value.type.names:
            raise RuleError(reason, hint=_ALONE if alone else _WHOLE, place=place)
    graph = pruned(replace(graph, outputs=tuple(value for value in graph.outputs if value not in late)))
    once = [node for node in graph.nodes if node.outputs[0].name not in timed]
    steps = [node for node in graph.nodes if node.outputs[0].name in timed]
    derivation = _Derivation(graph, time, timed, fixed=fixed)
    step, constants = derivation.run(steps, dict.fromkeys(apart, beside or ""))
    prepare, values = rebuild(graph, f"{graph.name} prepare", {})
    prepare.inputs = [value for value in prepare.inputs if value.name != time]
    for node in once:
        copy_node(prepare, values, node)
    places = derivation.used_places
    if places is not None:
        values[places.name] = prepare.input(places.name, places.type)
    decoder = Decoder(
        time=time,
        prepare=prepare.finish(()),
        step=step,
        extend=None if fixed or apart else _extend(graph, time, timed, steps, step),
        token=derivation.token,
        position=derivation.position(),
        constants=constants,
        states=tuple(derivation.states),
        positions=places,
        heads=tuple(heads),
    )
    return replace(decoder, prepare=pruned(prepare.finish(values[value.name] for value in decoder.prepared)))


def _extend(graph: Graph, time: str, timed: frozenset[str], nodes: list[Node], step: Graph) -> Graph:
    """The step of several tokens, with the inputs of the step of one."""
    derivation = _Derivation(graph, time, timed, several=True)
    extend, _ = derivation.run(nodes)
    assert [value.name for value in extend.inputs] == [value.name for value in step.inputs]
    return extend


def with_beam(decoder: Decoder) -> Decoder:
    """Add an axis `beam` to the token, the states and all values that depend on them.

    A state without the axis batch, such as keys made of positions, is the same for all hypotheses and stays as it is.
    """
    moved = [decoder.token, *(state.past for state in decoder.states if "batch" in state.past.type.names)]
    lifted = {value.name: with_beam_axis(value) for value in moved}
    builder, values = rebuild(decoder.step, decoder.step.name, lifted)
    for node in decoder.step.nodes:
        copy_node(builder, values, node)
    step = builder.finish(values[value.name] for value in decoder.step.outputs)
    states = rebuilt(decoder.states, values)
    return replace(decoder, step=step, extend=None, token=values[decoder.token.name], states=states)


def rebuilt(states: Iterable[State], values: Mapping[str, Value]) -> tuple[State, ...]:
    """The states of a step that was built again; `values` are the new ones, by the names of the old ones."""
    return tuple(replace(state, past=values[state.past.name], new=values[state.new.name]) for state in states)


def with_beam_axis(value: Value) -> Type:
    """The type with the axis beam behind batch. Raises: RuleError if batch is not the first axis."""
    if value.type.names[0] != "batch":
        raise RuleError(f"{value.name}: {value.type} must have the axis batch first for beam search")
    return Type(value.type.dtype, (value.type.axes[0], Axis("beam"), *value.type.axes[1:]))


class _Derivation:
    """Builds the step graph; implements `Stepper` for the `to_step` rules."""

    def __init__(
        self, graph: Graph, time: str, timed: frozenset[str], *, fixed: bool = False, several: bool = False
    ) -> None:
        self.time = time
        self.fixed = fixed
        self.several = several
        self.graph = graph
        self.producers = graph.producers()
        self.timed = timed
        self.builder = GraphBuilder(f"{graph.name} {'extend' if several else 'step'}")
        token = next(value for value in graph.inputs if value.name == time)
        self.token = self.builder.input(time, self._narrow(token.type))
        # No value of a spec is called step/..: the name is reserved.
        self._position = self.builder.input("step/position", Type("int64"))
        self.values = {time: self.token, **self.builder.take_parameters(graph)}
        self.states: list[State] = []
        self._pending: dict[str, tuple[Value, Value | None]] = {}
        self.keys: dict[str, int | None] = {}
        self.held: dict[str, Hidden] = {}
        self.hidden: dict[tuple[str, str], Hidden] = {}
        self.node: Node | None = None
        self.used_places: Value | None = None
        self._index: Value | None = None
        self._places: dict[int | None, Value] = {}

    def run(
        self, nodes: list[Node], beside: Mapping[Value, str] = MappingProxyType({})
    ) -> tuple[Graph, tuple[Value, ...]]:
        """The step graph of these nodes, and which of its inputs are constants; values `beside` are states of these
        names."""
        for node in nodes:
            self.add(node)
        for value, name in beside.items():
            new = self.values[value.name]
            self.states.append(State(self.builder.input(name, new.type), new))
        return self.finish()

    def add(self, node: Node) -> None:
        self.node = node
        if isinstance(node.op, AsKeys) and node.op.positions == self.time:
            self.keys[node.op.keys] = node.op.window
        mixed = mixed_axes(node)
        self.held = {axis: self._hide(node, axis) for axis in self.keys}
        for axis in mixed & self.keys.keys():
            if self.held[axis] not in HIDING | UNREAD:
                raise self.refuse("every position sees the ones after it", self._unmasked(node, axis))
        if self.time not in mixed:
            for value in node.inputs:
                self.value(value)
            copy_node(self.builder, self.values, node)
            return
        if not to_step.has(node.op):
            raise self.refuse(f"'{node.op.kind}' mixes positions of '{self.time}' and has no step rule")
        outputs = to_step.of(node.op)(node.op, node, self)
        self.values.update({old.name: new for old, new in zip(node.outputs, outputs, strict=True)})

    def finish(self) -> tuple[Graph, tuple[Value, ...]]:
        """The step graph, and which of its inputs are constants."""
        results = [self.values[self.graph.outputs[0].name]]
        changing, states = (self.token, self._position), [state.past for state in self.states]
        constants = tuple(value for value in self.builder.inputs if value not in (*changing, *states))
        self.builder.inputs = [*changing, *constants, *states]
        return pruned(self.builder.finish([*results, *(state.new for state in self.states)])), constants

    def value(self, value: Value) -> Value:
        made = self.producers.get(value.name)
        if value.name not in self.values and made is not None and not made.inputs:
            copy_node(self.builder, self.values, made)
        elif value.name not in self.values:
            self.values[value.name] = self.builder.input(value.name, value.type)
        return self.values[value.name]

    def carries_time(self, value: Value) -> bool:
        return self.time in value.type.names

    def emit(self, op: Op, inputs: tuple[Value, ...], name: str) -> Value:
        (output,) = self.emit_all(op, inputs, name)
        return output

    def emit_all(self, op: Op, inputs: tuple[Value, ...], name: str) -> tuple[Value, ...]:
        assert self.node is not None
        return self.builder.emit_all(op, inputs, name, self.node.place)

    def state(self, name: str, type: Type, initial: Value | None = None) -> Value:
        grown = [axis for axis in type.names if axis in self.keys]
        if len(grown) > 1:
            raise self.refuse(f"its state has the axes {' and '.join(grown)}, which grow with each step")
        if grown:
            return self._growing(name, type, grown[0])
        state = self.builder.input(name, type)
        self._pending[state.name] = (state, initial)
        return state

    def _growing(self, name: str, type: Type, keys: str) -> Value:
        """A state of each key so far. In the steps before its own, a key had no content: so the new keys' is zero."""
        if self.held[keys] not in UNREAD:
            reason = f"its state has the axis {keys}, which grows with each step"
            raise self.refuse(reason, f"for keys after the query, {_ZERO}")
        if self.keys[keys] is not None:
            hint = "leave the window out, or mask by `distance`"
            raise self.refuse(f"its state has the axis {keys}, of which a window is left in each step", hint)
        past = ROOM if self.fixed else PAST
        state = self.builder.input(name, type.replaced(keys, Axis(past)))
        if self.fixed:
            grown = self.emit(AsKeys(past, keys), (state,), f"{name}/keys")
        else:
            grown = self.emit(Grow(past, self.time, keys), (state, self.token), f"{name}/keys")
        self._pending[grown.name] = (state, None)
        return grown

    def carry(self, state: Value, new: Value) -> None:
        past, initial = self._pending.pop(state.name)
        if self.fixed and ROOM in past.type.names and ROOM not in new.type.names:
            keys = new.type.names[past.type.names.index(ROOM)]
            new = self.emit(AsKeys(keys, ROOM), (new,), f"{past.name}/room")
        self.states.append(State(past, new, initial))

    def position(self) -> Value:
        return self._position

    def index(self) -> Value:
        if self._index is None:
            assert self.node is not None
            name = f"{self.node.outputs[0].name.removesuffix('/index')}/index"
            if self.several:
                new = self.emit(Positions(self.time), (self.token,), f"{name}/new")
                self._index = self.emit(Add(), (new, self._position), name)
            else:
                self._index = self.emit(Expand(self.time), (self._position,), name)
        return self._index

    def places(self, window: int | None = None) -> Value:
        if self.several:
            if window not in self._places:
                self._places[window] = self.emit(Places("step/keys", window), (self.index(),), "step/places")
            return self._places[window]
        if self.used_places is None:
            self.used_places = self.builder.input("step/places", Type("int64", (Axis(ROOM),)))
        return self.used_places

    def refuse(self, reason: str, hint: str | None = None) -> RuleError:
        assert self.node is not None
        name = self.node.outputs[0].name
        return RuleError(f"{name} cannot be decoded step by step: {reason}", hint=hint, place=self.node.place)

    def _hide(self, node: Node, axis: str) -> Hidden:
        """The content of the node's results at keys along `axis` that come after the query."""
        inputs: tuple[Hidden, ...] = tuple(self.hidden.get((value.name, axis), "open") for value in node.inputs)
        known = (
            hidden.of(node.op)(node.op, node, inputs, frozenset({axis})) if hidden.has(node.op) else mixture(*inputs)
        )
        for value in node.outputs:
            if axis in value.type.names:
                self.hidden[value.name, axis] = "open" if known == "unread" else known
        return known

    def _unmasked(self, node: Node, axis: str) -> str:
        """The hint for a node that sees later keys along `axis`."""
        exposing = self._exposing(node, axis)
        if exposing is None:
            return "make the mask causal"
        at = f" at {exposing.place}" if exposing.place and exposing is not node else ""
        if isinstance(exposing.op, CumulativeSum | Convolution) and exposing is node:
            return f"the mask is causal, but what '{exposing.op.kind}' sees of masked keys must be zero; there {_ZERO}"
        return f"the mask is causal, but '{exposing.op.kind}'{at} lets masked keys count; mask the scores after it"

    def _exposing(self, node: Node, axis: str) -> Node | None:
        """The last node before or at this one that makes of hidden keys what is not hidden; None if no keys were."""
        todo, seen = [node], {id(node)}
        while todo:
            current = todo.pop(0)
            if any(self.hidden.get((value.name, axis)) in {*HIDING, "zero"} for value in current.inputs):
                return current
            scores = (value for value in current.inputs if axis in value.type.names)
            makers = [self.producers[value.name] for value in scores if value.name in self.producers]
            todo += [maker for maker in makers if id(maker) not in seen]
            seen.update(map(id, makers))
        return None

    def _narrow(self, type: Type) -> Type:
        if self.several:
            return type
        return type.replaced(self.time, Axis(self.time, 1))
