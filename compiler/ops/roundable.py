"""The parameters of a graph that can be quantized: weights of linear maps, and token embedding tables."""

from collections.abc import Iterator

from xformc.compiler.graph.graph import Graph, Node
from xformc.compiler.ops.embedding import Embedding
from xformc.compiler.ops.expert_linear import ExpertLinear
from xformc.compiler.ops.linear import Linear
from xformc.compiler.ops.positions import Positions
from xformc.compiler.ops.recurrence import Recurrence


def roundable(graph: Graph) -> tuple[str, ...]:
    """The names of parameters with two or more axes that are used only in linear maps or as token embeddings."""
    matrices = {parameter.name for parameter in graph.parameters if len(parameter.type.axes) > 1}
    rounded, others = set[str](), set[str]()
    for node, positions in _nodes(graph):
        for index, value in enumerate(node.inputs):
            if value.name not in matrices or isinstance(node.op, Recurrence):
                continue
            table = isinstance(node.op, Embedding) and node.inputs[0].name not in positions
            weight = index == 1 and (table or isinstance(node.op, Linear))
            weight |= isinstance(node.op, ExpertLinear) and index - 2 in range(node.op.experts)
            (rounded if weight else others).add(value.name)
    return tuple(parameter.name for parameter in graph.parameters if parameter.name in rounded - others)


def linear_axes(graph: Graph) -> dict[str, int]:
    """The weights of linear maps in a graph or its cells by name, and how many of their last axes are of the inputs."""
    return {node.inputs[1].name: len(node.op.over) for node, _ in _nodes(graph) if isinstance(node.op, Linear)}


def linear_weights(graph: Graph) -> frozenset[str]:
    """The names of the parameters that are weights of linear maps in a graph or its cells."""
    return frozenset(linear_axes(graph))


def _nodes(graph: Graph) -> Iterator[tuple[Node, frozenset[str]]]:
    """The nodes of a graph and of its cells, each with the names of the values that are positions."""
    positions = frozenset(
        output.name for node in graph.nodes if isinstance(node.op, Positions) for output in node.outputs
    )
    for node in graph.nodes:
        yield node, positions
        if isinstance(node.op, Recurrence):
            yield from _nodes(node.op.body)
