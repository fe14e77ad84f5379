"""Moves the nodes of a recurrence's cell that need no state before it, where they run for all positions at once."""

from dataclasses import replace

from xformc.compiler.graph.graph import Graph, Node, Value
from xformc.compiler.graph.graph_builder import GraphBuilder, copy_node, rebuild
from xformc.compiler.graph.rules import mixed_axes
from xformc.compiler.ops.recurrence import Recurrence


def hoist(graph: Graph) -> Graph:
    """The graph with minimal bodies of its recurrences; same values, same parameters."""
    builder, values = rebuild(graph, graph.name, {})
    for node in graph.nodes:
        if isinstance(node.op, Recurrence):
            values[node.outputs[0].name] = _hoist(builder, values, node, node.op)
        else:
            copy_node(builder, values, node)
    return builder.finish(values[value.name] for value in graph.outputs)


def _hoist(builder: GraphBuilder, values: dict[str, Value], node: Node, op: Recurrence) -> Value:
    """Write the nodes of the body that need no state, then the recurrence."""
    inputs = [values[value.name] for value in node.inputs]
    first = op.sequences + op.states
    states = op.body.inputs[op.sequences : first]
    outside = dict(zip((value.name for value in op.body.inputs[: op.sequences]), inputs, strict=False))
    outside |= dict(
        zip((value.name for value in op.body.inputs[first:]), inputs[op.sequences + op.started :], strict=True)
    )
    inside: list[Node] = []
    for item in op.body.nodes:
        if op.positions in mixed_axes(item) or any(value.name not in outside for value in item.inputs):
            inside.append(item)
        else:
            copy_node(builder, outside, item)
    used = {value.name: value for item in inside for value in item.inputs}
    used |= {value.name: value for value in op.body.outputs}
    entering = [value for name, value in used.items() if name in outside]
    sequences = [value for value in entering if op.positions in value.type.names] or [op.body.inputs[0]]
    captured = [value for value in entering if value not in sequences]
    body = replace(op.body, inputs=(*sequences, *states, *captured), nodes=tuple(inside))
    arguments = [outside[value.name] for value in sequences]
    arguments += inputs[op.sequences : op.sequences + op.started]
    arguments += [outside[value.name] for value in captured]
    result = replace(op, sequences=len(sequences), body=body)
    return builder.emit(result, arguments, node.outputs[0].name, node.place)
