"""Carries how much of the source a text has looked at: the coverage penalty of Wu et al. 2016, equation 14.

Only the decoder of a search has it. The penalty is a state that no step reads: the search takes it for texts that end.
"""

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.graph import Graph, Op, Value
from xformc.compiler.graph.graph_builder import GraphBuilder, copy_node, rebuild
from xformc.compiler.ops.attention_weights import attentions_between
from xformc.compiler.ops.elementwise import Add, Binary, Scale
from xformc.compiler.ops.functions import Unary
from xformc.compiler.ops.keys import AsKeys
from xformc.compiler.ops.masks import PaddingMask
from xformc.compiler.ops.numbers import Number
from xformc.compiler.ops.recurrence import Recurrence
from xformc.compiler.ops.reduction import Reduce
from xformc.compiler.passes.alignment import mean_over_heads

COVERAGE = "step/coverage"
"""The state with the coverage of each hypothesis."""

LEAST = 2.0**-126
"""The least coverage of a position, the smallest normal number of float32: the logarithm of none is infinite."""


def with_coverage(graph: Graph, weights: str, target: str, source: str, pad: int) -> Graph:
    """The graph with one more result, the second: the coverage of the source after each token, [batch, target].

    `weights` is the name of the attention weights, which are not fused. Their mean over the heads is added up over the
    target; the coverage is the sum over the tokens of the source of the logarithm of these sums, which count up to 1.
    """
    exposed, found = attentions_between(graph, target, source)
    (one,) = (item for item in found if item.value.name == weights)
    builder, values = rebuild(exposed, graph.name, {})
    for node in exposed.nodes:
        copy_node(builder, values, node)

    def then(name: str, op: Op, *inputs: Value) -> Value:
        return builder.emit(op, inputs, f"coverage/{name}")

    tokens = then("tokens", AsKeys(source, one.keys), values[source])
    none = then("none", Scale(0.0), then("number", Number(), tokens))
    attention = mean_over_heads(builder, values[one.value.name], one, target, "coverage/attention")
    total = then("total", _running_sum(attention.type, target), attention, none)
    bounded = then("bounded", Binary("maximum", LEAST), then("capped", Binary("minimum", 1.0), total))
    logarithm, real = then("logarithm", Unary("log"), bounded), then("real", PaddingMask(pad), tokens)
    coverage = then("sum", Reduce("sum", one.keys), logarithm, real)
    first, *others = (values[value.name] for value in graph.outputs)
    return builder.finish((first, coverage, *others))


def _running_sum(type: Type, target: str) -> Recurrence:
    """The sums along `target` of values [batch, target, keys], which begin with a second input [batch, keys]."""
    batch, _, keys = type.axes
    builder = GraphBuilder("running sum")
    now = builder.input("now", Type("float32", (batch, Axis(target, 1), keys)))
    before = builder.input("before", Type("float32", (batch, keys)))
    summed = builder.emit(Add(), (now, before), "coverage/total/sum")
    after = builder.emit(Reduce("first", target), (summed,), "coverage/total/after")
    return Recurrence(target, 1, 1, 1, reverse=False, body=builder.finish((summed, after)))
