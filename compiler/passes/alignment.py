"""The graph of one attention: what a text that is written looks at in its source, as `decode.alignment` chooses it."""

from collections.abc import Callable

from xformc.compiler.graph.graph import Graph, Op, Value, pruned
from xformc.compiler.graph.graph_builder import copy_node, rebuild
from xformc.compiler.ops.attention_weights import attentions_between
from xformc.compiler.ops.layout import Align
from xformc.compiler.ops.reduction import Reduce


def alignment_graph(
    graph: Graph, target: str, source: str, chosen: Callable[[str], bool] | None = None
) -> Graph | None:
    """The graph of one attention, of a graph without dropout that is not fused: [batch, target, source], the mean over
    the heads.

    Without a choice among the names of its weights, it is that of the last layer but one (Garg et al. 2019),
    or of the only one. None for a model without attention of the target to the source.
    """
    exposed, found = attentions_between(graph, target, source)
    if chosen is not None:
        found = [one for one in found if chosen(one.value.name)]
    if not found:
        return None
    one = found[-2:][0]
    builder, values = rebuild(exposed, f"{graph.name} alignments", {})
    for node in exposed.nodes:
        copy_node(builder, values, node)
    last = values[one.value.name]

    def then(op: Op, value: Value) -> Value:
        return builder.emit(op, (value,), "alignments")

    for axis in last.type.names:
        if axis not in ("batch", target, one.keys):
            last = then(Reduce("mean", axis), last)
    return pruned(builder.finish((then(Align((target, one.keys)), last),)))
