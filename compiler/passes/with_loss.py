"""Adds the losses to the training graph, with the last projection fused into a cross entropy."""

from collections.abc import Sequence
from dataclasses import replace

from xformc.compiler.graph.graph import Graph, Node, Value
from xformc.compiler.graph.graph_builder import GraphBuilder, copy_node, rebuild
from xformc.compiler.ops.linear import Linear
from xformc.compiler.ops.loss import AuxiliaryLoss, CrossEntropy, LinearCrossEntropy, MeanLoss
from xformc.compiler.results.kind import KINDS, Declared, target_of


def with_loss(graph: Graph, results: Sequence[Declared], label_smoothing: float = 0.0, r_drop: float = 0.0) -> Graph:
    """The graph with the losses of its results, which are its outputs in this order, and its auxiliary losses.

    Each loss gives three outputs: the mean over what counts; the sum, for a cross entropy without label smoothing, in
    nats; and the count. The targets are additional inputs (see `target_of`). With `r_drop`, the model in training mode
    takes each row twice (see `CrossEntropy`).
    """
    builder, values = rebuild(graph, f"{graph.name} loss", {})
    targets = [
        builder.input(target_of(result, results), KINDS[result.kind].target(value.type, result.settings))
        for result, value in zip(results, graph.outputs, strict=True)
    ]
    fused = _fused(graph, results)
    for node in graph.nodes:
        if node not in fused:
            copy_node(builder, values, node)
    outputs: list[Value] = []
    for result, value, target in zip(results, graph.outputs, targets, strict=True):
        smoothing = label_smoothing if result.smoothing is None else result.smoothing
        op, name = KINDS[result.kind].loss(result, smoothing), f"loss/{result.name}" if outputs else "loss"
        op = replace(op, agreement=r_drop) if isinstance(op, CrossEntropy) else op
        last = graph.producers().get(value.name)
        if last in fused and isinstance(op, CrossEntropy):
            x, *weights = (values[item.name] for item in last.inputs)
            linear = LinearCrossEntropy(op.smoothing, op.ignore, op.agreement)
            outputs += builder.emit_all(linear, (x, target, *weights), name, last.place)
        else:
            place = None if last is None else last.place
            outputs += builder.emit_all(op, (values[value.name], target), name, place)
    return builder.finish([*outputs, *_auxiliary(graph, builder, values)])


def _fused(graph: Graph, results: Sequence[Declared]) -> list[Node]:
    """The projections to logits that nothing but the loss of a result needs."""
    used = [value.name for node in graph.nodes for value in node.inputs] + [value.name for value in graph.outputs]
    producers = graph.producers()
    last = [
        producers.get(value.name)
        for result, value in zip(results, graph.outputs, strict=True)
        if isinstance(KINDS[result.kind].loss(result, 0.0), CrossEntropy)
    ]
    return [
        node
        for node in last
        if node is not None
        and isinstance(node.op, Linear)
        and node.inputs[0].type.names[-1:] == node.op.over
        and used.count(node.outputs[0].name) == 1
    ]


def _auxiliary(graph: Graph, builder: GraphBuilder, values: dict[str, Value]) -> list[Value]:
    found: list[Value] = []
    for node in graph.nodes:
        if isinstance(node.op, AuxiliaryLoss):
            (value,) = node.outputs
            name = f"auxiliary_loss_{len(found) // 3}"  # in no block: it stands behind them all
            found += builder.emit_all(MeanLoss(node.op.weight), (values[value.name],), name, node.place)
    return found
