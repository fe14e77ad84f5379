"""Adds the losses to the training graph, with projections to logits fused into their cross entropies."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from xformc.compiler.graph.graph import Graph, Node, Op, Value
from xformc.compiler.graph.graph_builder import GraphBuilder, copy_node, rebuild
from xformc.compiler.ops.linear import Linear
from xformc.compiler.ops.loss import (
    AuxiliaryLoss,
    CrossEntropy,
    LaterLabels,
    LaterTokenLoss,
    LinearCrossEntropy,
    MeanLoss,
)
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
    for node in graph.nodes:
        if isinstance(node.op, LaterTokenLoss):
            values[node.outputs[0].name] = values[node.inputs[0].name]
        else:
            copy_node(builder, values, node)
    producers, outputs = graph.producers(), list[Value]()
    for result, value, target in zip(results, graph.outputs, targets, strict=True):
        smoothing = label_smoothing if result.smoothing is None else result.smoothing
        op, name = KINDS[result.kind].loss(result, smoothing), f"loss/{result.name}" if outputs else "loss"
        op = replace(op, agreement=r_drop) if isinstance(op, CrossEntropy) else op
        last = producers.get(value.name)
        outputs += builder.emit_all(op, (values[value.name], target), name, None if last is None else last.place)
    written = next((pair for pair in zip(results, targets, strict=True) if pair[0].kind == "text"), None)
    return _fused(builder.finish([*outputs, *_auxiliary(graph, builder, values, written)]))


def _auxiliary(
    graph: Graph, builder: GraphBuilder, values: dict[str, Value], written: tuple[Declared, Value] | None
) -> list[Value]:
    """The auxiliary losses; `written` is the text that the model writes, with its labels."""
    found: list[Value] = []
    for node in graph.nodes:
        if isinstance(node.op, AuxiliaryLoss):
            value, name = values[node.outputs[0].name], f"auxiliary_loss_{len(found) // 3}"
            if isinstance(node.op, LaterTokenLoss):
                assert written is not None, "the primitive refuses models that write no text"
                result, labels = written
                later = builder.emit(LaterLabels(node.op.ahead - 1, result.ignore), (labels,), f"{name}/labels")
                op = CrossEntropy(0.0, result.ignore)
                value = builder.emit_all(op, (value, later), f"{name}/tokens", node.place)[0]
            # The name is in no block: it stands behind them all.
            found += builder.emit_all(MeanLoss(node.op.weight), (value,), name, node.place)
    return found


def _fused(graph: Graph) -> Graph:
    """The graph whose cross entropies compute the projections to logits that nothing else needs."""
    used = Counter(value.name for values in (*(node.inputs for node in graph.nodes), graph.outputs) for value in values)
    producers, projections = graph.producers(), dict[str, Node]()
    for node in graph.nodes:
        last = producers.get(node.inputs[0].name) if isinstance(node.op, CrossEntropy) else None
        if last is not None and _projects(last.op, last.inputs[0]) and used[last.outputs[0].name] == 1:
            projections[last.outputs[0].name] = last
    builder, values = rebuild(graph, graph.name, {})
    for node in graph.nodes:
        if node.outputs[0].name in projections:
            continue
        last = projections.get(node.inputs[0].name) if node.inputs else None
        if last is not None and isinstance(node.op, CrossEntropy):
            x, *weights = last.inputs
            op = LinearCrossEntropy(node.op.smoothing, node.op.ignore, node.op.agreement)
            node = replace(node, op=op, inputs=(x, node.inputs[1], *weights))  # noqa: PLW2901
        copy_node(builder, values, node)
    return builder.finish(values[value.name] for value in graph.outputs)


def _projects(op: Op, x: Value) -> bool:
    return isinstance(op, Linear) and x.type.names[-1:] == op.over
