"""The graph: values, nodes and parameters, all frozen; a pass returns a new one."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from xformc.compiler.graph.axes import Type


@dataclass(frozen=True)
class Op:
    """What a node computes. Every subclass registers under its `kind`; its attributes are its dataclass fields."""

    kind: ClassVar[str]
    registry: ClassVar[dict[str, type["Op"]]] = {}

    def __init_subclass__(cls) -> None:
        """Register the subclass under its `kind`, so that the text form can be read back."""
        Op.registry[cls.kind] = cls


@dataclass(frozen=True)
class Value:
    """A named, typed result."""

    name: str
    type: Type


@dataclass(frozen=True)
class Node:
    """One application of an op. `place` is the `file:line:column` of the spec that asked for it."""

    op: Op
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    place: str | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Initial:
    """How a fresh parameter is drawn: `constant(value)`, `normal(deviation)` or `uniform(bound)`."""

    kind: Literal["constant", "normal", "uniform"]
    value: float


@dataclass(frozen=True)
class Parameter:
    """A value that is learned, or drawn once and kept. Two users of one path share it: that is what tied means."""

    value: Value
    initial: Initial
    trained: bool = True

    @property
    def name(self) -> str:
        """The path, such as `encoder/3/self_attention/query/weight`."""
        return self.value.name

    @property
    def type(self) -> Type:
        """The type; every size is an integer."""
        return self.value.type

    @property
    def count(self) -> int:
        """How many numbers it holds."""
        count = 1
        for size in self.type.sizes():
            count *= size
        return count


@dataclass(frozen=True)
class Graph:
    """Nodes in an order in which every value is made before it is used."""

    name: str
    inputs: tuple[Value, ...]
    parameters: tuple[Parameter, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Value, ...]

    def parameter_count(self) -> int:
        """How many numbers are trained."""
        return sum(parameter.count for parameter in self.parameters if parameter.trained)

    def producers(self) -> dict[str, Node]:
        """The node that makes each value, by the value's name; inputs and parameters have none."""
        return {output.name: node for node in self.nodes for output in node.outputs}


@dataclass
class GraphBuilder:
    """Collects nodes in order, infers their types by the `types` rules and keeps names unique."""

    name: str
    inputs: list[Value] = field(default_factory=list[Value])
    parameters: dict[str, Parameter] = field(default_factory=dict[str, Parameter])
    nodes: list[Node] = field(default_factory=list[Node])
    names: set[str] = field(default_factory=set[str])
    _numbers: dict[str, int] = field(default_factory=dict[str, int], init=False)

    def input(self, name: str, type: Type, *, renamed: bool = False) -> Value:
        """Declare an input. Raises: ValueError where the name is taken, unless it may be `renamed` then."""
        value = Value(self._unique(name) if renamed else self._claim(name), type)
        self.inputs.append(value)
        return value

    def parameter(self, path: str, type: Type, initial: Initial, *, trained: bool = True) -> Value:
        """Declare a parameter, or use the one that already has this path (it must have the same sizes)."""
        known = self.parameters.get(path)
        if known is None:
            self.parameters[path] = Parameter(Value(self._claim(path), type), initial, trained)
            return self.parameters[path].value
        if known.type.sizes() != type.sizes():
            raise ValueError(f"parameter {path} is {known.type} and cannot also be {type}")
        return known.value

    def take_parameters(self, graph: Graph) -> dict[str, Value]:
        """Declare the parameters of another graph, or use them where they are known; the values by name."""
        return {
            parameter.name: self.parameter(parameter.name, parameter.type, parameter.initial, trained=parameter.trained)
            for parameter in graph.parameters
        }

    def emit(self, op: Op, inputs: Iterable[Value], name: str, place: str | None = None) -> Value:
        """Append a node with one output called `name` (made unique) and return that output."""
        (output,) = self.emit_all(op, inputs, name, place)
        return output

    def emit_all(self, op: Op, inputs: Iterable[Value], name: str, place: str | None = None) -> tuple[Value, ...]:
        """Append a node and return its outputs, called `name`, `name.1`, ... Raises: RuleError for wrong types."""
        from xformc.compiler.graph.rules import infer_types  # noqa: PLC0415 (rules refer to nodes)

        arguments = tuple(inputs)
        types = infer_types(op, tuple(value.type for value in arguments), place)
        outputs = tuple(
            Value(self._unique(name if index == 0 else f"{name}.{index}"), type) for index, type in enumerate(types)
        )
        self.nodes.append(Node(op, arguments, outputs, place))
        return outputs

    def finish(self, outputs: Iterable[Value]) -> Graph:
        """The finished graph."""
        return Graph(self.name, tuple(self.inputs), tuple(self.parameters.values()), tuple(self.nodes), tuple(outputs))

    def _claim(self, name: str) -> str:
        if name in self.names:
            raise ValueError(f"the name {name} is taken")
        self.names.add(name)
        return name

    def _unique(self, name: str) -> str:
        candidate, number = name, self._numbers.get(name, 2)
        while candidate in self.names:
            candidate, number = f"{name}~{number}", number + 1
        self._numbers[name] = number
        return self._claim(candidate)


def rebuild(graph: Graph, name: str, inputs: Mapping[str, Type]) -> tuple[GraphBuilder, dict[str, Value]]:
    """A builder with the graph's inputs (types replaced by `inputs` where named) and parameters, and a value map."""
    builder = GraphBuilder(name)
    values: dict[str, Value] = {}
    for value in graph.inputs:
        values[value.name] = builder.input(value.name, inputs.get(value.name, value.type))
    return builder, values | builder.take_parameters(graph)


def copy_node(builder: GraphBuilder, values: dict[str, Value], node: Node) -> None:
    """Append the node with its inputs looked up in `values`, and enter its outputs there."""
    inputs = [values[value.name] for value in node.inputs]
    outputs = builder.emit_all(node.op, inputs, node.outputs[0].name, node.place)
    values.update({old.name: new for old, new in zip(node.outputs, outputs, strict=True)})


def pruned(graph: Graph) -> Graph:
    """The graph without the nodes and parameters that its outputs do not need."""
    needed = {value.name for value in graph.outputs}
    nodes: list[Node] = []
    for node in reversed(graph.nodes):
        if any(value.name in needed for value in node.outputs):
            needed.update(value.name for value in node.inputs)
            nodes.append(node)
    parameters = tuple(parameter for parameter in graph.parameters if parameter.name in needed)
    return Graph(graph.name, graph.inputs, parameters, tuple(reversed(nodes)), graph.outputs)
