"""Removes dropout, noise and auxiliary losses, which only training needs."""

from dataclasses import replace

from xformc.compiler.graph.graph import Graph, pruned
from xformc.compiler.graph.graph_builder import copy_node, rebuild
from xformc.compiler.ops.batch_norm import LEARNED, BatchNorm
from xformc.compiler.ops.loss import AuxiliaryLoss
from xformc.compiler.ops.recurrence import Recurrence
from xformc.compiler.ops.training import TRAINING_ONLY


def inference(graph: Graph) -> Graph:
    """The graph without dropout, noise and auxiliary losses, also in cells, and without what only these need.

    The dropout of Attention has no effect outside training.
    """
    builder, values = rebuild(graph, graph.name, {})
    for node in graph.nodes:
        if isinstance(node.op, (*TRAINING_ONLY, AuxiliaryLoss)):
            values[node.outputs[0].name] = values[node.inputs[0].name]
        elif isinstance(node.op, Recurrence):
            copy_node(builder, values, replace(node, op=replace(node.op, body=inference(node.op.body))))
        elif isinstance(node.op, BatchNorm):
            copy_node(builder, values, replace(node, inputs=node.inputs[:LEARNED]))
        else:
            copy_node(builder, values, node)
    finished = builder.finish(values[value.name] for value in graph.outputs)
    return pruned(finished) if any(isinstance(node.op, AuxiliaryLoss | BatchNorm) for node in graph.nodes) else finished
