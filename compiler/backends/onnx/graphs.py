"""The graphs of a model: loops and branches are nodes with graphs inside them."""

from collections.abc import Collection, Iterator, Mapping, Sequence

import onnx

from xformc.format.operators import DOMAIN


def inner_graphs(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """The graphs of a node's attributes."""
    return [one.g for one in node.attribute if one.type == onnx.AttributeProto.GRAPH]


def all_graphs(graph: onnx.GraphProto, depth: int = 0) -> Iterator[tuple[int, onnx.GraphProto]]:
    """The graph and the graphs inside it, the outer first, each with its depth."""
    yield depth, graph
    for node in graph.node:
        for inner in inner_graphs(node):
            yield from all_graphs(inner, depth + 1)


def set_nodes(graph: onnx.GraphProto, nodes: Sequence[onnx.NodeProto]) -> None:
    """Give a graph these nodes in place of its own, some of which may be among them."""
    del graph.node[:]
    graph.node.extend(nodes)


def taken_names(graph: onnx.GraphProto) -> set[str]:
    """The names of all inputs of nodes, in the graph and in graphs inside it."""
    return {name for _, inner in all_graphs(graph) for node in inner.node for name in node.input}


def made_names(graph: onnx.GraphProto) -> set[str]:
    """The names of all inputs of graphs and outputs of nodes, in the graph and in graphs inside it."""
    made = {name for _, inner in all_graphs(graph) for node in inner.node for name in node.output}
    return made | {value.name for _, inner in all_graphs(graph) for value in inner.input}


def needed_names(node: onnx.NodeProto) -> set[str]:
    """The names that a node needs, by itself or in graphs inside it."""
    names = {name for graph in inner_graphs(node) for name in taken_names(graph) | {one.name for one in graph.output}}
    return {*node.input, *names} - {""}


def merge(graph: onnx.GraphProto, operators: Collection[str]) -> None:
    """Leave out nodes of these operators of ONNX that compute what an earlier one in the same graph computes.

    None of them reads a cache, which kernels write to.
    """
    results, known = {value.name for value in graph.output}, dict[object, onnx.NodeProto]()
    nodes, same = list[onnx.NodeProto](), dict[str, str]()
    for node in graph.node:
        _rename(node, same)
        if not node.domain and node.op_type in operators and results.isdisjoint(node.output):
            attributes = sorted(one.SerializeToString() for one in node.attribute)
            earlier = known.setdefault((node.op_type, len(node.output), *node.input, *attributes), node)
            if earlier is not node:
                same |= dict(zip(node.output, earlier.output, strict=True))
                continue
        nodes.append(node)
        for inner in inner_graphs(node):
            merge(inner, operators)
    set_nodes(graph, nodes)


def is_fixed(node: onnx.NodeProto, fixed: Collection[str]) -> bool:
    """Whether a node needs nothing but what is fixed, the same in each call, and so makes what is.

    A node without inputs may draw random numbers.
    """
    own = node.domain == DOMAIN or bool(inner_graphs(node)) or not node.input
    return not own and all(name in fixed for name in node.input if name)


def lift(graph: onnx.GraphProto, constants: Collection[str]) -> None:
    """Move the nodes that depend on constants alone out of the graphs inside a graph."""
    fixed, lifted = set(constants), list[onnx.NodeProto]()
    for depth, inner in all_graphs(graph):
        kept, results = list[onnx.NodeProto](), {value.name for value in inner.output}
        for node in inner.node:
            lifts = is_fixed(node, fixed) and (depth == 0 or results.isdisjoint(node.output))
            fixed.update(node.output if lifts else ())
            (lifted if lifts and depth > 0 else kept).append(node)
        set_nodes(inner, kept)
    first = [node for node in graph.node if is_fixed(node, fixed)]
    set_nodes(graph, [*first, *lifted, *(node for node in graph.node if not is_fixed(node, fixed))])


def _rename(node: onnx.NodeProto, names: Mapping[str, str]) -> None:
    """Give inputs other names, of the node and of those in graphs inside it."""
    for place, name in enumerate(node.input):
        node.input[place] = names.get(name, name)
    for inner in inner_graphs(node):
        for one in inner.node:
            _rename(one, names)


def used(nodes: Sequence[onnx.NodeProto], results: Collection[str]) -> list[onnx.NodeProto]:
    """The nodes of a scope that its results need, and all those that may write to caches: kernels."""
    needs, kept = set(results), list[onnx.NodeProto]()
    for node in reversed(nodes):
        if not needs.isdisjoint(node.output) or _has_kernels(node):
            kept.append(node)
            needs |= needed_names(node)
    return kept[::-1]


def _has_kernels(node: onnx.NodeProto) -> bool:
    return node.domain == DOMAIN or any(_has_kernels(one) for graph in inner_graphs(node) for one in graph.node)
