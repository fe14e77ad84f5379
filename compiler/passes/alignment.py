"""The graph of one attention: what a text that is written looks at in its source, as `decode.alignment` chooses it."""

from collections.abc import Callable, Sequence

from xformc.compiler.graph.graph import Graph, Value, pruned
from xformc.compiler.graph.graph_builder import GraphBuilder, copy_node, rebuild
from xformc.compiler.ops.attention_weights import AttentionWeights, attentions_between
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
    one = chosen_attention(found, chosen)
    if one is None:
        return None
    builder, values = rebuild(exposed, f"{graph.name} alignments", {})
    for node in exposed.nodes:
        copy_node(builder, values, node)
    return pruned(builder.finish((mean_over_heads(builder, values[one.value.name], one, target, "alignments"),)))


def chosen_attention(
    found: Sequence[AttentionWeights], chosen: Callable[[str], bool] | None = None
) -> AttentionWeights | None:
    """The one that is chosen by its name, or without a choice that of the last layer but one, or the only one."""
    fitting = [one for one in found if chosen is None or chosen(one.value.name)]
    return fitting[-2:][0] if fitting else None


def mean_over_heads(builder: GraphBuilder, weights: Value, one: AttentionWeights, target: str, name: str) -> Value:
    """Write the mean of attention weights over all axes but those of the batch, the target and the keys, which remain
    in this order."""
    for axis in weights.type.names:
        if axis not in ("batch", target, one.keys):
            weights = builder.emit(Reduce("mean", axis), (weights,), name)
    return builder.emit(Align((target, one.keys)), (weights,), name)
