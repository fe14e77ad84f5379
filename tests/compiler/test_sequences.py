"""Nodes that follow one another are one node, and its parts are the same nodes again."""

from collections.abc import Sequence
from typing import Any

import onnx
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from xformc.compiler.backends.onnx.graphs import lift, merge, needed_names, used
from xformc.compiler.backends.onnx.sequences import SEQUENCE, WHILE, join, split
from xformc.format.operators import DOMAIN

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def link(kind: str, inputs: list[str], *outputs: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(kind, inputs, outputs, domain=DOMAIN, **attributes)


def infos(names: Sequence[str], kind: int = INT64) -> list[onnx.ValueInfoProto]:
    return [helper.make_tensor_value_info(name, kind, None) for name in names]


def rewritten(nodes: list[onnx.NodeProto], *results: str, inputs: Sequence[str] = ("ids",)) -> list[onnx.NodeProto]:
    graph = helper.make_graph(nodes, "model", infos(inputs), infos(results))
    join(graph)
    return list(graph.node)


def kinds(nodes: Sequence[onnx.NodeProto]) -> list[str]:
    return [node.op_type for node in nodes]


def attributes(node: onnx.NodeProto) -> dict[str, Any]:
    return {one.name: helper.get_attribute_value(one) for one in node.attribute}


def test_nodes_that_follow_one_another_are_a_sequence() -> None:
    nodes = [
        link("Embed", ["ids", "table"], "x", width=4),
        link("Project", ["x", "", "w"], "y", "z", depth=2),
        helper.make_node("Sign", ["ids"], ["other"]),
        link("Attend", ["y", "z", "z"], "last"),
        helper.make_node("Exp", ["z"], ["negative"]),
    ]
    found = rewritten(nodes, "last", "negative")
    assert kinds(found) == ["Sign", SEQUENCE, "Exp"]
    assert (list(found[1].input), list(found[1].output)) == (["ids", "table", "w"], ["z", "last"])
    given = attributes(found[1])
    assert given["kinds"] == b"Embed Project Attend"
    assert (given["operands"], given["results"]) == ([0, 1, 3, -1, 2, 4, 5, 5], [5, 6])
    assert (given["node0_width"], given["node1_depth"]) == (4, 2)


def test_operators_of_onnx_are_in_it_if_their_types_are_known() -> None:
    nodes = [
        helper.make_node("Shape", ["ids"], ["size"], start=0, end=1),
        helper.make_node("Add", ["size", "ids"], ["sum"]),
        helper.make_node("Add", ["table", "table"], ["unknown"]),
        helper.make_node("Cast", ["sum"], ["text"], to=TensorProto.STRING),
        helper.make_node("Pad", ["ids", "size"], ["padded"], mode="edge"),
        helper.make_node("ReduceSum", ["floats"], ["total"]),
        helper.make_node("Cast", ["sum"], ["float"], to=FLOAT),
    ]
    graph = helper.make_graph(
        nodes, "model", [*infos(["ids"]), *infos(["floats"], FLOAT)], infos(["text", "padded", "total", "float"])
    )
    join(graph)
    assert kinds(graph.node) == ["Add", "ReduceSum", SEQUENCE, "Cast", "Pad"]
    assert attributes(graph.node[2])["kinds"] == b"onnx.Shape onnx.Add onnx.Cast"
    types = {value.name: value.type.tensor_type.elem_type for value in graph.value_info}
    assert types == {"size": INT64, "sum": INT64}, "the types of results that are not the model's"


def test_waves_are_always_in_one() -> None:
    """So that all models of an engine have the same bits."""
    nodes = [helper.make_node("Cast", ["ids"], ["x"], to=FLOAT), helper.make_node("Sin", ["x"], ["y"])]
    assert kinds(rewritten(nodes, "y")) == [SEQUENCE]
    graph = helper.make_graph(nodes[1:], "model", infos(["x"], FLOAT), infos(["y"], FLOAT))
    join(graph)
    assert kinds(graph.node) == [SEQUENCE]


def test_what_depends_on_constants_alone_is_left_to_onnx_runtime() -> None:
    """It computes them when it loads the model."""
    nodes = [
        helper.make_node("Transpose", ["weight"], ["turned"], perm=[1, 0]),
        helper.make_node("Shape", ["turned"], ["size"]),
        helper.make_node("Size", ["ids"], ["count"]),
        helper.make_node("Mul", ["size", "count"], ["y"]),
    ]
    assert kinds(rewritten(nodes, "y")) == ["Transpose", "Shape", SEQUENCE]
    inside = helper.make_node("Unsqueeze", ["width", "axis"], ["wide"])
    inner, outer = loop_of(search(inside, link("Add", ["wide", "position"], "sum")))
    assert (kinds(inner), kinds(outer)) == ([WHILE], ["Unsqueeze", "Loop"]), "also those of a body"


def test_outside_of_loops_a_sequence_has_few_kernels() -> None:
    nodes = [link("Project", [f"v{i}"], f"v{i + 1}") for i in range(18)]
    found = rewritten(nodes, "v18", inputs=["v0"])
    assert [(node.op_type, list(node.input), list(node.output)) for node in found] == [
        (SEQUENCE, ["v0"], ["v8"]),
        (SEQUENCE, ["v8"], ["v16"]),
        (SEQUENCE, ["v16"], ["v18"]),
    ]


def test_a_node_that_waits_for_another_kind_begins_a_sequence() -> None:
    nodes = [
        link("Embed", ["ids"], "a"),
        link("Embed", ["ids"], "b"),
        helper.make_node("MatMul", ["a", "b"], ["sum"]),
        link("Project", ["sum"], "c"),
        link("Project", ["c"], "d"),
    ]
    assert kinds(rewritten(nodes, "d")) == [SEQUENCE, "MatMul", SEQUENCE]
    assert kinds(rewritten(nodes[1:4], "c")) == ["Embed", "MatMul", "Project"], "one node is none"


def test_what_a_graph_inside_a_node_needs_is_a_result() -> None:
    inner = helper.make_graph([helper.make_node("Neg", ["a"], ["n"])], "inner", [], infos(["n"]))
    nodes = [
        link("Embed", ["ids"], "a"),
        link("Project", ["a"], "b"),
        helper.make_node("If", ["b"], ["c"], then_branch=inner, else_branch=inner),
        link("Project", ["c"], "d"),
    ]
    found = rewritten(nodes, "d")
    assert kinds(found) == [SEQUENCE, "If", "Project"]
    assert list(found[0].output) == ["a", "b"]


def test_nodes_whose_results_nothing_needs_are_kept() -> None:
    """They may write to caches."""
    [found] = rewritten([link("Project", ["x"], "a"), link("AttendCached", ["a"], "b")], inputs=["x"])
    assert (found.op_type, list(found.output)) == (SEQUENCE, ["b"])


def search(*others: onnx.NodeProto) -> list[onnx.NodeProto]:
    """The body of a search, with other nodes at its beginning."""
    return [
        *others,
        link("Last", ["tokens"], "newest"),
        link("Embed", ["newest", "table"], "x"),
        link("ProjectCandidates", ["x", "", "scores"], "offered", "next", "parents"),
        link("Advance", ["width", "position", "offered", "next", "parents", "tokens"], "go_on", "after", "longer"),
    ]


INPUTS, RESULTS = ["turn", "alive", "position", "tokens"], ["go_on", "after", "longer"]


def loop_of(
    nodes: list[onnx.NodeProto], inputs: list[str] = INPUTS, results: list[str] = RESULTS, trips: str = ""
) -> tuple[list[onnx.NodeProto], list[onnx.NodeProto]]:
    """The nodes of the body of a loop, and those of the model around it, after they were joined."""
    body = helper.make_graph(nodes, "body", infos(inputs), infos(results))
    outputs = [f"last_{name}" for name in results[1:]]
    loop = helper.make_node("Loop", [trips, "", *inputs[2:]], outputs, body=body)
    outer = rewritten([loop], *outputs, inputs=["ids", "trips", *inputs[2:], "scores"])
    return list(outer[-1].attribute[0].g.node), outer


def test_a_body_of_nodes_that_can_be_joined_is_one_node() -> None:
    counted = [
        helper.make_node("Add", ["position", "position"], ["one"]),
        helper.make_node("Identity", ["one"], ["more"]),
    ]
    for others, results in (
        ([], RESULTS),
        (counted, ["go_on", "after", "longer"]),
        (counted, ["go_on", "more", "longer"]),
    ):
        [node], _ = loop_of(search(*others), results=results)
        assert (node.op_type, list(node.output)) == (WHILE, results)
        names = list(node.input)
        assert sorted(names) == ["position", "scores", "table", "tokens", "width"]
        assert attributes(node)["carried"] == [names.index("position"), names.index("tokens")]
        graph = helper.make_graph([node], "body", [], [])
        split(graph)
        assert kinds(graph.node) == [*kinds(others), "Last", "Embed", "ProjectCandidates", "Advance"]
        assert set(results) <= {name for one in graph.node for name in one.output}


def test_what_a_body_carries_may_be_read_by_none() -> None:
    [node], _ = loop_of(search(), ["turn", "alive", "position", "unread"])
    assert attributes(node)["carried"][1] == -1


def test_other_bodies_are_no_while() -> None:
    def is_left(nodes: list[onnx.NodeProto], **changed: Any) -> bool:
        return WHILE not in kinds(loop_of(nodes, **changed)[0])

    assert not is_left(search())
    assert is_left(search(helper.make_node("Sign", ["position"], ["n"])))
    assert is_left(search(), inputs=["position", "alive", "turn", "tokens"]), "it does not count its turns"
    assert is_left(search(), trips="trips"), "it has no number of turns"
    assert is_left(search(), inputs=INPUTS[:3]), "it collects nothing"
    assert is_left(search(), results=["go_on", "after", "tokens"]), "its results are values of its nodes"


def test_a_branch_keeps_its_results_and_what_needs_them() -> None:
    """Nodes of constants alone move out of it, but not its results."""
    branch = [
        helper.make_node("Add", ["c", "c"], ["result"]),
        helper.make_node("Mul", ["result", "c"], ["of_result"]),
        helper.make_node("Mul", ["c", "c"], ["moved"]),
        helper.make_node("Add", ["of_result", "moved"], ["other"]),
    ]
    inner = helper.make_graph(branch, "branch", [], infos(["result", "other"]))
    node = helper.make_node("If", ["flag"], ["a", "b"], then_branch=inner, else_branch=inner)
    graph = helper.make_graph([node], "graph", infos(["flag"], BOOL), infos(["a", "b"]))
    lift(graph, {"c"})
    assert [list(one.output) for one in graph.node][:-1] == [["moved"], ["moved"]]
    for attribute in graph.node[-1].attribute:
        assert [list(one.output) for one in attribute.g.node] == [["result"], ["of_result"], ["other"]]


def test_nodes_that_compute_the_same_are_one() -> None:
    inner = helper.make_graph([helper.make_node("Neg", ["b"], ["n"])], "inner", [], infos(["n"]))
    graph = helper.make_graph(
        [
            helper.make_node("Neg", ["x"], ["a"]),
            helper.make_node("Neg", ["x"], ["b"]),
            helper.make_node("Abs", ["b"], ["c"]),
            helper.make_node("Abs", ["a"], ["d"]),
            helper.make_node("Cast", ["a"], ["e"], to=FLOAT),
            helper.make_node("Cast", ["a"], ["f"], to=BOOL),
            link("Cache", ["a"], "g"),
            link("Cache", ["b"], "h"),
            helper.make_node("If", ["c"], ["i"], then_branch=inner, else_branch=inner),
            helper.make_node("Abs", ["d"], ["j"]),
        ],
        "graph",
        infos(["x"]),
        infos(["d", "e", "f", "g", "h", "i", "j"]),
    )
    merge(graph, {"Neg", "Abs", "Cast"})
    assert [list(node.output) for node in graph.node] == [["a"], ["c"], ["d"], ["e"], ["f"], ["g"], ["h"], ["i"], ["j"]]
    assert list(graph.node[1].input) == list(graph.node[6].input) == ["a"]
    assert list(graph.node[7].attribute[0].g.node[0].input) == ["a"], "in graphs inside a node, too"


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
def test_the_parts_of_sequences_are_the_same_nodes_in_an_order_that_runs(
    drawn: list[tuple[bool, list[int], int]],
) -> None:
    names, nodes = ["x"], list[onnx.NodeProto]()
    for index, (own, inputs, count) in enumerate(drawn):
        taken = ["" if one == 0 and own else names[one % len(names)] for one in inputs]
        outputs = [f"v{index}_{i}" for i in range(count)]
        nodes.append(
            helper.make_node("Project" if own else "Other", taken, outputs, domain=DOMAIN if own else "", index=index)
        )
        names += outputs
    results = names[-1:]
    joined = rewritten(nodes, *results, inputs=["x"])
    known = {"x"}
    for node in joined:
        assert needed_names(node) <= known
        known.update(node.output)
    graph = helper.make_graph(joined, "graph", [], [])
    split(graph)
    parts = sorted(graph.node, key=lambda node: next(one.i for one in node.attribute if one.name == "index"))
    renamed = {"": ""} | {"x": "x"}
    for node, part in zip(nodes, parts, strict=True):
        assert (node.op_type, [renamed[name] for name in node.input]) == (part.op_type, list(part.input))
        renamed |= dict(zip(node.output, part.output, strict=True))
    assert all(renamed[name] == name for name in results)
