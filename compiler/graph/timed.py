"""The values of a graph that depend on one of its inputs, such as a text that is written token by token."""

from xformc.compiler.graph.graph import Graph, Value
from xformc.compiler.graph.rules import RuleError


def outputs_of(graph: Graph, time: str) -> tuple[Value, ...]:
    """The outputs after the first one that depend on the input `time`."""
    timed = timed_values(graph, time)
    return tuple(value for value in graph.outputs[1:] if value.name in timed)


def timed_values(graph: Graph, time: str) -> frozenset[str]:
    """The names of the values that depend on the input `time`. Raises: RuleError if another input has its axis."""
    if time not in {value.name for value in graph.inputs}:
        raise RuleError(f"the graph has no input '{time}' to decode")
    timed = {time}
    for value in graph.inputs:
        if time in value.type.names and value.name != time:
            raise RuleError(f"the input '{value.name}' has the axis '{time}', whose positions are not known in advance")
    for node in graph.nodes:
        if any(value.name in timed for value in node.inputs):
            timed.update(value.name for value in node.outputs)
    return frozenset(timed)
