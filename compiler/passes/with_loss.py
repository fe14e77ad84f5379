"""Adds the loss to the training graph, with the last projection fused into it."""

from xformc.compiler.graph.axes import Type
from xformc.compiler.graph.graph import Graph
from xformc.compiler.graph.graph_builder import copy_node, rebuild
from xformc.compiler.ops.linear import Linear
from xformc.compiler.ops.loss import CrossEntropy, LinearCrossEntropy
from xformc.format.tokens import PAD


def with_loss(graph: Graph, label_smoothing: float, ignore: int = PAD) -> Graph:
    """The graph with an additional input `labels` and the results loss, nll and count.

    `labels` has the axes of the graph's result, [batch, .., classes], without the last. loss: mean label-smoothed cross
    entropy over the labels that are not `ignore`; nll: sum of their unsmoothed cross entropies, in nats; count: their
    number.
    """
    builder, values = rebuild(graph, f"{graph.name} loss", {})
    (logits,) = graph.outputs
    labels = builder.input("labels", Type("int64", logits.type.axes[:-1]))
    last = graph.producers()[logits.name]
    fused = isinstance(last.op, Linear) and graph.nodes[-1] == last and last.inputs[0].type.names[-1:] == last.op.over
    for node in graph.nodes[:-1] if fused else graph.nodes:
        copy_node(builder, values, node)
    if fused:
        x, *weights = (values[value.name] for value in last.inputs)
        op = LinearCrossEntropy(label_smoothing, ignore)
        return builder.finish(builder.emit_all(op, (x, labels, *weights), "loss", last.place))
    return builder.finish(
        builder.emit_all(CrossEntropy(label_smoothing, ignore), (values[logits.name], labels), "loss", last.place)
    )
