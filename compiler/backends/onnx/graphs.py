"""The graphs of a model: loops and branches are nodes with graphs inside them."""

from collections.abc import Collection, Iterator, Sequence

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


def taken_names(graph: onnx.GraphProto) -> set[str]:
    """The names of all inputs of nodes, in the graph and in graphs inside it."""
    return {name for _, inner in all_graphs(graph) for node in inner.node for name in node.input}


def needed_names(node: onnx.NodeProto) -> set[str]:
    """The names that a node needs, by itself or in graphs inside it."""
    names = {name for graph in inner_graphs(node) for name in taken_names(graph) | {one.name for one in graph.output}}
    return {*node.input, *names} - {""}


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
