"""Removes dropout, which only training needs."""

from dataclasses import replace

from xformc.compiler.graph.graph import Graph
from xformc.compiler.graph.graph_builder import copy_node, rebuild
from xformc.compiler.ops.elementwise import Dropout
from xformc.compiler.ops.recurrence import Recurrence


def inference(graph: Graph) -> Graph:
    """The graph without dropout nodes, also in cells. The dropout of Attention has no effect outside training."""
    builder, values = rebuild(graph, graph.name, {})
    for node in graph.nodes:
        if isinstance(node.op, Dropout):
            values[node.outputs[0].name] = values[node.inputs[0].name]
        elif isinstance(node.op, Recurrence):
            copy_node(builder, values, replace(node, op=replace(node.op, body=inference(node.op.body))))
        else:
            copy_node(builder, values, node)
    return builder.finish(values[value.name] for value in graph.outputs)
