"""Nodes of the kernels that follow one another are one node, and its parts are the same nodes again."""

from typing import Any

import onnx
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from xformc.compiler.backends.onnx.chains import CHAIN, REPEAT, chained, repeated, unchain
from xformc.compiler.backends.onnx.graphs import needed_names, used
from xformc.format.operators import DOMAIN


def link(kind: str, inputs: list[str], *outputs: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(kind, inputs, outputs, domain=DOMAIN, **attributes)


def rewritten(nodes: list[onnx.NodeProto], *results: str) -> list[onnx.NodeProto]:
    names = iter(range(1000))
    return chained(nodes, results, lambda hint: f"{hint}.{next(names)}")


def kinds(nodes: list[onnx.NodeProto]) -> list[str]:
    return [node.op_type for node in nodes]


def test_nodes_that_follow_one_another_are_a_chain() -> None:
    nodes = [
        link("Embed", ["ids", "table"], "x", width=4),
        link("Project", ["x", "", "w"], "y", "z", depth=2),
        helper.make_node("Abs", ["ids"], ["other"]),
        link("Attend", ["y", "z", "z"], "last"),
        helper.make_node("Neg", ["z"], ["negative"]),
    ]
    found = rewritten(nodes, "last", "negative")
    assert kinds(found) == ["Abs", "Chain", "Neg"]
    assert (list(found[1].input), list(found[1].output)) == (["ids", "table", "w"], ["z", "last"])
    given = {one.name: helper.get_attribute_value(one) for one in found[1].attribute}
    assert given["kinds"] == b"Embed Project Attend"
    assert (given["operands"], given["results"]) == ([0, 1, 3, -1, 2, 4, 5, 5], [5, 6])
    assert (given["node0_width"], given["node1_depth"]) == (4, 2)


def test_a_chain_may_have_a_longest_length() -> None:
    nodes = [link("Project", [f"v{i}"], f"v{i + 1}") for i in range(5)]
    found = chained(nodes, ["v5"], lambda hint: hint, 2)
    assert [(node.op_type, list(node.input), list(node.output)) for node in found] == [
        ("Chain", ["v0"], ["v2"]),
        ("Chain", ["v2"], ["v4"]),
        ("Project", ["v4"], ["v5"]),
    ]


def test_a_node_that_waits_for_another_kind_begins_a_chain() -> None:
    nodes = [
        link("Embed", ["ids"], "a"),
        link("Embed", ["ids"], "b"),
        helper.make_node("Add", ["a", "b"], ["sum"]),
        link("Project", ["sum"], "c"),
        link("Project", ["c"], "d"),
    ]
    assert kinds(rewritten(nodes, "d")) == ["Chain", "Add", "Chain"]
    assert kinds(rewritten(nodes[1:4], "c")) == ["Embed", "Add", "Project"], "one node is no chain"


def test_what_a_graph_inside_a_node_needs_is_a_result() -> None:
    inner = helper.make_graph([helper.make_node("Neg", ["a"], ["n"])], "inner", [], [])
    nodes = [
        link("Embed", ["ids"], "a"),
        link("Project", ["a"], "b"),
        helper.make_node("If", ["b"], ["c"], then_branch=inner, else_branch=inner),
        link("Project", ["c"], "d"),
    ]
    found = rewritten(nodes, "d")
    assert kinds(found) == ["Chain", "If", "Project"]
    assert list(found[0].output) == ["a", "b"]


def test_nodes_whose_results_nothing_needs_are_kept() -> None:
    """They may write to caches."""
    [found] = rewritten([link("Project", ["x"], "a"), link("AttendCached", ["a"], "b")])
    assert (found.op_type, list(found.output)) == (CHAIN, ["b"])


def search(*others: onnx.NodeProto) -> list[onnx.NodeProto]:
    """The body of a search, with other nodes at its beginning."""
    return [
        *others,
        link("Last", ["tokens"], "newest"),
        link("Embed", ["newest", "table"], "x"),
        link("ProjectCandidates", ["x", "", "scores"], "offered", "next", "parents"),
        link("Advance", ["width", "position", "offered", "next", "parents", "tokens"], "go_on", "after", "longer"),
    ]


def test_a_body_of_kernels_alone_is_one_node() -> None:
    found = repeated(search(), ["turn", "alive", "position", "tokens"], ["go_on", "after", "longer"], lambda hint: hint)
    assert found is not None
    [node] = found
    assert (node.op_type, list(node.output)) == (REPEAT, ["go_on", "after", "longer"])
    names = list(node.input)
    assert sorted(names) == ["position", "scores", "table", "tokens", "width"]
    given = {one.name: helper.get_attribute_value(one) for one in node.attribute}
    assert given["carried"] == [names.index("position"), names.index("tokens")]
    assert given["results"] == [given["given"] + i for i in range(5, 8)]
    graph = helper.make_graph(found, "body", [], [])
    unchain(graph)
    assert kinds(list(graph.node)) == ["Last", "Embed", "ProjectCandidates", "Advance"]
    assert list(graph.node[-1].output) == ["go_on", "after", "longer"]


def test_what_a_body_carries_may_be_read_by_none() -> None:
    found = repeated(search(), ["turn", "alive", "position", "unread"], ["go_on", "after", "longer"], lambda hint: hint)
    assert found is not None
    assert next(one.ints[1] for one in found[0].attribute if one.name == "carried") == -1


def test_other_bodies_are_left_alone() -> None:
    inputs, results = ["turn", "alive", "position", "tokens"], ["go_on", "after", "longer"]

    def is_left(nodes: list[onnx.NodeProto], results: list[str], inputs: list[str] = inputs) -> bool:
        return repeated(nodes, inputs, results, lambda hint: hint) is None

    assert is_left(search(helper.make_node("Neg", ["position"], ["n"])), results)
    assert is_left(search(link("DrawToken", ["position"], "n")), results)
    assert is_left(search(), [*results[:2], "offered"])
    assert is_left([*search(), link("Embed", ["after", "table"], "y")], results)
    assert is_left([], [])
    assert is_left(search(), results, ["position", "alive", "turn", "tokens"]), "a Repeat does not count its turns"
    assert is_left(search(), results[:1], inputs[:2])


def test_nodes_that_nothing_needs_are_left_out_unless_they_write_to_caches() -> None:
    writing = helper.make_graph([link("ExtendCached", ["c"], "e")], "inner", [], [])
    idle = helper.make_graph([helper.make_node("Neg", ["c"], ["e"])], "inner", [], [])
    nodes = [
        helper.make_node("Neg", ["x"], ["a"]),
        helper.make_node("Abs", ["a"], ["b"]),
        helper.make_node("Abs", ["a"], ["c"]),
        link("AttendCached", ["x"], "d"),
        helper.make_node("If", ["x"], ["f"], then_branch=writing, else_branch=idle),
        helper.make_node("If", ["x"], ["g"], then_branch=idle, else_branch=idle),
        helper.make_node("Neg", ["a"], ["y"]),
    ]
    assert [node.output[0] for node in used(nodes, ["y"])] == ["a", "c", "d", "f", "y"]


@given(
    st.lists(
        st.tuples(st.booleans(), st.lists(st.integers(0, 30), min_size=1, max_size=3), st.integers(1, 2)), max_size=16
    )
)
def test_the_parts_of_chains_are_the_same_nodes_in_an_order_that_runs(drawn: list[tuple[bool, list[int], int]]) -> None:
    names, nodes = ["x"], list[onnx.NodeProto]()
    for index, (own, inputs, count) in enumerate(drawn):
        taken = ["" if one == 0 and own else names[one % len(names)] for one in inputs]
        outputs = [f"v{index}_{i}" for i in range(count)]
        nodes.append(
            helper.make_node("Project" if own else "Other", taken, outputs, domain=DOMAIN if own else "", index=index)
        )
        names += outputs
    results = names[-1:]
    joined = rewritten(nodes, *results)
    known = {"x"}
    for node in joined:
        assert needed_names(node) <= known
        known.update(node.output)
    graph = helper.make_graph(joined, "graph", [], [])
    unchain(graph)
    parts = sorted(graph.node, key=lambda node: next(one.i for one in node.attribute if one.name == "index"))
    renamed = {"": ""} | {"x": "x"}
    for node, part in zip(nodes, parts, strict=True):
        assert (node.op_type, [renamed[name] for name in node.input]) == (part.op_type, list(part.input))
        renamed |= dict(zip(node.output, part.output, strict=True))
    assert all(renamed[name] == name for name in results)
