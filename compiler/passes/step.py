"""The decoder, derived: from a training graph to what is done once and what is done for each token.

A node that does not depend on the time axis goes to `prepare`. A node that carries the time axis through is its own
step, on one position. A node that mixes positions of the time axis has a `to_step` rule that says how it does so
causally, or it is refused with its place in the spec.
"""

from dataclasses import dataclass

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.graph import Graph, GraphBuilder, Node, Op, Value, copy_node, rebuild
from xformc.compiler.graph.rules import RuleError, mixed_axes, to_step


@dataclass(frozen=True)
class State:
    """What one step leaves to the next: `new` of a step is `past` of the one after it.

    An axis called `past` has size 0 before the first step; all else is zero then.
    """

    past: Value
    new: Value


@dataclass(frozen=True)
class Decoder:
    """`prepare` makes the constants; `step(token, position, *constants, *pasts)` gives logits and the new states.

    The token is int64 [batch, target=1]; position is int64 without axes. The outputs of `step` are the logits and then
    the new states; the outputs of `prepare` are the constants.
    """

    prepare: Graph
    step: Graph
    states: tuple[State, ...]

    @property
    def token(self) -> Value:
        """The step's input for the newest token."""
        return self.step.inputs[0]

    @property
    def constants(self) -> tuple[Value, ...]:
        """The step's inputs that are the outputs of `prepare`, in its order."""
        return self.step.inputs[2 : len(self.step.inputs) - len(self.states)]

    @property
    def logits(self) -> Value:
        """The step's scores over the vocabulary."""
        return self.step.outputs[0]


def derive_step(graph: Graph, time: str = "target") -> Decoder:
    """Split the training graph along its input and axis `time`. Raises: RuleError at what is not causal."""
    timed = _timed_values(graph, time)
    fixed = [node for node in graph.nodes if node.outputs[0].name not in timed]
    steps = [node for node in graph.nodes if node.outputs[0].name in timed]
    used = {value.name: value for node in steps for value in node.inputs if value.name not in timed}
    parameters = {parameter.name for parameter in graph.parameters}
    constants = [value for name, value in used.items() if name not in parameters]
    prepare, values = rebuild(graph, f"{graph.name} prepare", {})
    prepare.inputs = [value for value in prepare.inputs if value.name != time]
    for node in fixed:
        copy_node(prepare, values, node)
    derivation = _Derivation(graph, time, constants)
    for node in steps:
        derivation.add(node)
    step = derivation.finish()
    states = tuple(State(past, new) for past, new in derivation.carried)
    return Decoder(_used_only(prepare.finish(values[value.name] for value in constants)), step, states)


def with_beam(decoder: Decoder) -> Decoder:
    """The decoder of several hypotheses a sentence: token, states and all that depends on them get an axis `beam`."""
    for value in (decoder.token, *(state.past for state in decoder.states)):
        if value.type.names[:1] != ("batch",):
            raise RuleError(f"{value.name}: {value.type} needs the axis batch first to be searched with a beam")
    lifted = {
        value.name: Type(value.type.dtype, (value.type.axes[0], Axis("beam"), *value.type.axes[1:]))
        for value in (decoder.token, *(state.past for state in decoder.states))
    }
    builder, values = rebuild(decoder.step, decoder.step.name, lifted)
    for node in decoder.step.nodes:
        copy_node(builder, values, node)
    step = builder.finish(values[value.name] for value in decoder.step.outputs)
    states = tuple(State(values[state.past.name], values[state.new.name]) for state in decoder.states)
    return Decoder(decoder.prepare, step, states)


def _timed_values(graph: Graph, time: str) -> frozenset[str]:
    if time not in {value.name for value in graph.inputs}:
        raise RuleError(f"the graph has no input '{time}' to decode")
    timed = {time}
    for node in graph.nodes:
        if any(value.name in timed or time in value.type.names for value in node.inputs):
            timed.update(value.name for value in node.outputs)
    return frozenset(timed)


def _used_only(graph: Graph) -> Graph:
    used = {value.name for node in graph.nodes for value in node.inputs}
    kept = tuple(parameter for parameter in graph.parameters if parameter.name in used)
    return Graph(graph.name, graph.inputs, kept, graph.nodes, graph.outputs)


class _Derivation:
    """Builds the step graph; it is the `Stepper` that the `to_step` rules are given."""

    def __init__(self, graph: Graph, time: str, constants: list[Value]) -> None:
        self.time = time
        self.graph = graph
        self.builder = GraphBuilder(f"{graph.name} step")
        token = next(value for value in graph.inputs if value.name == time)
        self.values = {time: self.builder.input(time, self._narrow(token.type))}
        self._position = self.builder.input("position", Type("int64"))
        for value in constants:
            self.values[value.name] = self.builder.input(value.name, value.type)
        for parameter in graph.parameters:
            self.values[parameter.name] = self.builder.parameter(parameter.name, parameter.type, parameter.initial)
        self.carried: list[tuple[Value, Value]] = []
        self.node: Node | None = None

    def add(self, node: Node) -> None:
        self.node = node
        if self.time not in mixed_axes(node):
            copy_node(self.builder, self.values, node)
            return
        if not to_step.has(node.op):
            raise self.refuse(f"'{node.op.kind}' mixes positions of '{self.time}' and has no step")
        outputs = to_step.of(node.op)(node.op, node, self)
        self.values.update({old.name: new for old, new in zip(node.outputs, outputs, strict=True)})

    def finish(self) -> Graph:
        logits = [self.values[value.name] for value in self.graph.outputs]
        return _used_only(self.builder.finish([*logits, *(new for _, new in self.carried)]))

    def value(self, value: Value) -> Value:
        return self.values[value.name]

    def carries_time(self, value: Value) -> bool:
        return self.time in value.type.names

    def emit(self, op: Op, inputs: tuple[Value, ...], name: str) -> Value:
        assert self.node is not None
        return self.builder.emit(op, inputs, name, self.node.place)

    def state(self, name: str, type: Type) -> Value:
        return self.builder.input(name, type)

    def carry(self, state: Value, new: Value) -> None:
        self.carried.append((state, new))

    def position(self) -> Value:
        return self._position

    def refuse(self, reason: str) -> RuleError:
        assert self.node is not None
        name = self.node.outputs[0].name
        return RuleError(f"{name} cannot be decoded step by step: {reason}", place=self.node.place)

    def _narrow(self, type: Type) -> Type:
        axes = tuple(Axis(axis.name, 1) if axis.name == self.time else axis for axis in type.axes)
        return Type(type.dtype, axes)
