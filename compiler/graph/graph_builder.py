"""Builds graphs: appends nodes in order, infers their types, keeps their names unique."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from xformc.compiler.graph.axes import Type
from xformc.compiler.graph.graph import Graph, Initial, Node, Op, Parameter, Value
from xformc.compiler.graph.rules import infer_types


@dataclass
class GraphBuilder:
    """Collects nodes in order, infers their types with the `types` rules, and keeps names unique."""

    name: str
    inputs: list[Value] = field(default_factory=list[Value])
    parameters: dict[str, Parameter] = field(default_factory=dict[str, Parameter])
    nodes: list[Node] = field(default_factory=list[Node])
    names: set[str] = field(default_factory=set[str])
    _numbers: dict[str, int] = field(default_factory=dict[str, int], init=False)

    def input(self, name: str, type: Type, *, renamed: bool = False) -> Value:
        """Declare an input. Raises: ValueError if the name is taken and the input may not be `renamed`."""
        value = Value(self._unique(name) if renamed else self._claim(name), type)
        self.inputs.append(value)
        return value

    def parameter(self, path: str, type: Type, initial: Initial, *, trained: bool = True) -> Value:
        """Declare a parameter, or return the one that already has this path; it must have the same sizes."""
        known = self.parameters.get(path)
        if known is None:
            self.parameters[path] = Parameter(Value(self._claim(path), type), initial, trained)
            return self.parameters[path].value
        if known.type.sizes() != type.sizes():
            raise ValueError(f"parameter {path} is {known.type} and cannot also be {type}")
        return known.value

    def take_parameters(self, graph: Graph) -> dict[str, Value]:
        """Declare the parameters of another graph unless already declared; return the values by name."""
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
    """A builder with the graph's parameters and inputs (types overridden by `inputs`), and a map of its values."""
    builder = GraphBuilder(name)
    values: dict[str, Value] = {}
    for value in graph.inputs:
        values[value.name] = builder.input(value.name, inputs.get(value.name, value.type))
    return builder, values | builder.take_parameters(graph)


def copy_node(builder: GraphBuilder, values: dict[str, Value], node: Node) -> None:
    """Append the node with its inputs looked up in `values`, and record its outputs there."""
    inputs = [values[value.name] for value in node.inputs]
    outputs = builder.emit_all(node.op, inputs, node.outputs[0].name, node.place)
    values.update({old.name: new for old, new in zip(node.outputs, outputs, strict=True)})
