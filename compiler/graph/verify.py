"""Verifies graphs: every value is made once, before its use, with the type that its op's rule infers."""

from xformc.compiler.graph.graph import Graph, Value
from xformc.compiler.graph.rules import infer_types


class GraphError(Exception):
    """A pass made an illegal graph: a bug in the compiler, never a mistake of the user."""


def verify(graph: Graph) -> Graph:
    """Check a graph and return it. Raises: GraphError naming the first node or value that is illegal."""
    made: dict[str, Value] = {}
    for value in (*graph.inputs, *(parameter.value for parameter in graph.parameters)):
        _make(made, value)
    for parameter in graph.parameters:
        if any(axis.size is None or axis.size < 1 for axis in parameter.type.axes):
            raise GraphError(f"parameter {parameter.name} has an axis without a positive size: {parameter.type}")
    for node in graph.nodes:
        label = f"{node.op.kind} -> {node.outputs[0].name}"
        for value in node.inputs:
            _use(made, value, label)
        inferred = infer_types(node.op, tuple(value.type for value in node.inputs), node.place)
        if inferred != tuple(value.type for value in node.outputs):
            found = ", ".join(str(value.type) for value in node.outputs)
            raise GraphError(f"{label}: the rule infers {', '.join(map(str, inferred))}, the node has {found}")
        for inner in vars(node.op).values():
            if isinstance(inner, Graph):
                verify(inner)
        for value in node.outputs:
            if len(set(value.type.names)) != len(value.type.names):
                raise GraphError(f"{value.name} has the same axis twice: {value.type}")
            _make(made, value)
    for value in graph.outputs:
        _use(made, value, "output")
    return graph


def _make(made: dict[str, Value], value: Value) -> None:
    if value.name in made:
        raise GraphError(f"{value.name} is made twice")
    made[value.name] = value


def _use(made: dict[str, Value], value: Value, label: str) -> None:
    if value.name not in made:
        raise GraphError(f"{label}: {value.name} is used before it is made")
    if made[value.name] != value:
        raise GraphError(f"{label}: {value.name} is {made[value.name].type} but used as {value.type}")
