"""Sequence and While: the bits of their nodes, in memory that they share, and errors for what no compiler writes."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import DTypeLike

from tests.runtime.kernel_session import Array, alone, kernel_library, kernel_session, new_cache, node, run_node
from tests.runtime.small_engines import SmallEngines
from xformc.compiler.backends.onnx.graphs import all_graphs
from xformc.compiler.backends.onnx.sequences import SEQUENCE, WHILE, join, split
from xformc.format.names import MODEL

WIDTH, ROWS = 64, 5
PLAIN: dict[str, Any] = {
    "depth": 1,
    "parts": 1,
    "ranks": [1],
    "sizes": [WIDTH],
    "bias": 0,
    "precision": "float32",
    "activation": "none",
    "norm": "none",
    "epsilon": 0.0,
}
FLOAT = np.float32


def weights(count: int) -> dict[str, Array]:
    random = np.random.default_rng(0)
    shape = (WIDTH // 32, WIDTH, 32)
    return {f"w{i}": random.standard_normal(shape, FLOAT) * FLOAT(0.2) for i in range(count)}


def project(x: str, weight: str, y: str, residual: str = "", activation: str = "none") -> onnx.NodeProto:
    return node("Project", [x, residual, "", "", weight], [y], **{**PLAIN, "activation": activation})


def both(nodes: Sequence[onnx.NodeProto], feeds: dict[str, Array], results: Sequence[str], count: int) -> list[Array]:
    """The results of the nodes as a Sequence, which are the bits of the nodes alone."""
    types: dict[str, DTypeLike] = {name: value.dtype for name, value in feeds.items()}
    infos = [onnx.ValueInfoProto(name=name) for name in results]
    inside = onnx.helper.make_graph([*nodes], "inside", [], infos)
    # In a graph inside a node a Sequence may have any length.
    around = onnx.helper.make_node(
        "If", ["x"], [f"{name}_outside" for name in results], then_branch=inside, else_branch=inside
    )
    graph = onnx.helper.make_graph([around], "around", [onnx.ValueInfoProto(name="x")], [])
    join(graph)
    joined = list(graph.node[0].attribute[0].g.node)
    assert [one.op_type for one in joined] == [SEQUENCE]
    found = list[list[Array]]()
    for one in (nodes, joined):
        for constants, given in ((weights(count), feeds), ({}, {**feeds, **weights(count)})):
            session = kernel_session(
                one,
                types | {name: value.dtype for name, value in given.items()},
                dict.fromkeys(results, FLOAT),
                constants,
            )
            found.append(cast(Any, session).run(list(results), given))
    for other in found[1:]:
        assert [value.tobytes() for value in found[0]] == [value.tobytes() for value in other]
    return found[-1]


@pytest.mark.parametrize("seed", range(8))
def test_values_that_are_still_needed_are_not_overwritten(seed: int) -> None:
    """Each node takes two earlier values, of any age."""
    random = np.random.default_rng(seed)
    names, nodes = ["x"], list[onnx.NodeProto]()
    for i in range(12):
        x, residual = (names[random.integers(len(names))] for _ in range(2))
        nodes.append(project(x, f"w{i % 4}", f"v{i}", residual if i % 3 else "", "tanh"))
        names.append(f"v{i}")
    results = [names[-1], names[4], names[7]]
    both(nodes, {"x": random.standard_normal((ROWS, WIDTH), FLOAT)}, results, 4)


def test_a_sequence_writes_to_caches() -> None:
    """Attention over a cache between two products."""
    random = np.random.default_rng(1)
    caches = {name: new_cache(1, 4, ROWS, WIDTH) for name in ("keys", "values")}
    first = random.standard_normal((1, ROWS, WIDTH), FLOAT)
    heads: dict[str, Any] = {"scale": 0.125, "shared": 1, "repeated": 1, "window": 0}
    nodes = [
        project("x", "w0", "query"),
        project("x", "w1", "key"),
        node("AttendCached", ["query", "key", "x", "keys", "values", "position"], ["seen"], **heads),
        project("seen", "w2", "y", "x"),
    ]
    both(nodes, {"x": first, **caches, "position": np.array(0)}, ["y"], 3)
    assert np.array_equal(caches["values"][0, 0], first[0])


def lists(**changed: Any) -> dict[str, Any]:
    """The attributes of a Sequence of two products, the second of which takes the first."""
    inner = {f"node{i}_{name}": value for i in range(2) for name, value in PLAIN.items()}
    given = {
        "given": 2,
        "kinds": "Project Project",
        "operands": [0, -1, -1, -1, 1, 2, -1, -1, -1, 1],
        "operand_counts": [5, 5],
        "output_counts": [1, 1],
        "results": [3],
    }
    return {**inner, **given, **changed}


def run_sequence(x: Array, weight: Array, outputs: int = 1, **attributes: Any) -> list[Array]:
    return run_node(SEQUENCE, [x, weight], [FLOAT] * outputs, **attributes)


X, WEIGHT = np.ones((2, WIDTH), FLOAT), weights(1)["w0"]


def test_the_lists_of_a_sequence_say_what_it_computes() -> None:
    [twice] = run_sequence(X, WEIGHT, **lists())
    [once] = run_node("Project", [X, None, None, None, WEIGHT], [FLOAT], **PLAIN)
    assert np.array_equal(twice, run_node("Project", [once, None, None, None, WEIGHT], [FLOAT], **PLAIN)[0])
    found = run_sequence(X, WEIGHT, 2, **lists(results=[3, 2]))
    assert np.array_equal(found[1], once)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"given": -1}, "`given` is no number of inputs"),
        ({"given": 2**40}, "`given` is no number of inputs"),
        ({"given": 3}, "the number of inputs does not fit"),
        ({"kinds": "Project Unknown"}, "no operator Unknown"),
        *(({"kinds": f"Project {kind}"}, f"no operator {kind}") for kind in (SEQUENCE, WHILE)),
        ({"kinds": "Project onnx.Unknown"}, "no operator onnx.Unknown"),
        ({"kinds": "Project"}, "a list is too long"),
        ({"kinds": "Project Project Project"}, "a list is too short"),
        ({"operand_counts": [5, -5]}, "a count is too small"),
        ({"operand_counts": [5, 6]}, "a list is too short"),
        ({"operand_counts": [5, 4]}, "a list is too long"),
        ({"output_counts": [1, 0]}, "a count is too small"),
        ({"output_counts": [1, 2**40]}, "a count is too small or too large"),
        ({"output_counts": [1, 2]}, "there must be one output for each part"),
        ({"operands": [0, -1, -1, -1, 1, 3, -1, -1, -1, 1]}, "an input is no earlier value"),
        ({"operands": [0, -1, -1, -1, 1, -2, -1, -1, -1, 1]}, "an input is no earlier value"),
        ({"operands": [0, -1, -1, -1, 1, -1, -1, -1, -1, 1]}, "node 1 of the sequence: Project: input 0 is missing"),
        ({"operands": [0, -1, -1, -1, 1, 2, -1, -1, -1, -1]}, "node 1 of the sequence: a weight is missing"),
        ({"results": [1]}, "a result is no value of a node"),
        ({"results": [4]}, "a result is no value of a node"),
        ({"kinds": "Project Narrow", "operands": [0, -1, -1, -1, 1, 2], "operand_counts": [5, 1]}, "another type in"),
        ({"kinds": "Project Cache", "operands": [0, -1, -1, -1, 1, 2], "operand_counts": [5, 1]}, "of another type"),
    ],
)
def test_a_sequence_refuses_lists_that_do_not_fit(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(Exception, match=message):
        run_sequence(X, WEIGHT, **lists(**changed))


def test_a_sequence_refuses_results_that_are_one_value() -> None:
    with pytest.raises(Exception, match="two results are the same value"):
        run_sequence(X, WEIGHT, 2, **lists(results=[3, 3]))
    with pytest.raises(Exception, match="the number of outputs does not fit"):
        run_sequence(X, WEIGHT, 2, **lists())


def test_a_sequence_refuses_values_of_another_type() -> None:
    """ONNX Runtime, which checks the types of other nodes, does not know those of its inputs."""
    with pytest.raises(Exception, match="node 0 of the sequence: Project: input 0 is missing or of another type"):
        run_sequence(np.ones((2, WIDTH), np.int64), WEIGHT, **lists())
    with pytest.raises(Exception, match="the weight's element type does not fit its precision"):
        run_sequence(X, WEIGHT.astype(np.float64), **lists())


def test_an_engine_without_its_sequences_gives_the_same_bits(small_engines: SmallEngines) -> None:
    engine = small_engines("search", "native")
    model = onnx.load(str(engine / MODEL))
    source = np.array([[5, 6, 7, 8, 9], [7, 5, 0, 0, 0]])
    joined, found = step_of(model), run(model, source)
    assert joined == [WHILE]
    split(model.graph)
    assert len(step_of(model)) > 10
    assert not any(node.op_type in (SEQUENCE, WHILE) for _, graph in all_graphs(model.graph) for node in graph.node)
    own_waves(model.graph)
    assert [one.tobytes() for one in run(model, source)] == [one.tobytes() for one in found]


STATE = [np.bool_, np.int64, np.bool_, np.int64, FLOAT, np.int64, np.int64, FLOAT, np.int64, np.int64]
BEAM = 2


def search_of_one(limit: int) -> list[Array]:
    """The inputs of an Advance of one sentence, none of whose candidates ends."""
    tokens, none = np.full((1, BEAM, 1), 2), np.zeros((1, BEAM), np.int64)
    return [
        *(np.array([BEAM]), np.array(3), np.array([0.6], FLOAT), np.array(0), np.array([False]), np.array([limit])),
        *(np.array([[-1, -2, -3, -4]], FLOAT), np.array([[7, 8, 9, 5]]), np.array([[1, 0, 0, 1]])),
        *(tokens, np.zeros((1, BEAM, 0), np.int64), tokens, none, np.full((1, BEAM), -np.inf, FLOAT), np.array([0])),
    ]


CARRIED = [3, 4, 9, -1, 11, 12, 13, 14, 10]


def run_while(given: Sequence[Array], **changed: Any) -> list[Array]:
    """A While of an Advance with these inputs, whose candidates are those of every turn."""
    attributes: dict[str, Any] = {**alone("Advance", range(len(given)), len(STATE)), "carried": CARRIED}
    return run_node(WHILE, list(given), STATE, **{**attributes, **changed})


def test_a_while_takes_turns_until_it_is_enough() -> None:
    given = search_of_one(limit=9)
    found, turns = run_node("Advance", given, STATE), 1
    while found[0]:
        given = [found[1 + CARRIED.index(i)] if i in CARRIED else value for i, value in enumerate(given)]
        found, turns = run_node("Advance", given, STATE), turns + 1
    assert turns == 9
    assert [one.tobytes() for one in run_while(search_of_one(limit=9))] == [one.tobytes() for one in found]


def test_a_while_ends_although_there_is_no_end() -> None:
    go_on, position, *_ = run_while(search_of_one(limit=2**39))
    assert go_on
    assert 0 < position < 2**20


def test_a_search_that_takes_several_calls_of_a_while_is_that_of_its_nodes(small_engines: SmallEngines) -> None:
    """Its texts do not end before the limit, which takes longer than one call."""
    engine = small_engines("search", "native")
    model = onnx.load(str(engine / MODEL))
    feeds = {
        "source": np.array([[5, 6, 7, 8, 9]] * 8),
        "max_length_offset": np.array([300]),
        "min_length": np.array([300]),
    }
    found = run(model, **feeds)
    split(model.graph)
    own_waves(model.graph)
    assert [one.tobytes() for one in run(model, **feeds)] == [one.tobytes() for one in found]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"carried": CARRIED[:-1]}, "a result is carried to no place"),
        ({"carried": [*CARRIED[:-1], 15]}, "a result is carried to no input"),
        ({"carried": [*CARRIED[:-1], -2]}, "a result is carried to no input"),
        ({"carried": [4, -1, *CARRIED[2:]]}, "a value changes its type from turn to turn"),
        ({"results": [16, 15, *range(17, 25)]}, "whether there is another turn is no bool"),
        ({"results": [15, 17, 16, *range(18, 25)], "carried": [-1] * 9}, "an output has another type in the model"),
    ],
)
def test_a_while_refuses_lists_that_do_not_fit(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(Exception, match=message):
        run_while(search_of_one(limit=9), **changed)


def test_rows_and_last_numbers() -> None:
    table = np.arange(12, dtype=FLOAT).reshape(3, 2, 2)
    assert np.array_equal(run_node("RowAt", [table, np.array(1)], [FLOAT])[0], table[1:2])
    for row in (-1, 3):
        with pytest.raises(Exception, match=f"the table has no row {row}"):
            run_node("RowAt", [table, np.array(row)], [FLOAT])
    tokens = np.arange(12).reshape(2, 2, 3)
    assert np.array_equal(run_node("Last", [tokens], [np.int64])[0], tokens[..., 2:])
    with pytest.raises(Exception, match="there is no last number"):
        run_node("Last", [np.zeros((2, 0), np.int64)], [np.int64])


def own_waves(graph: onnx.GraphProto) -> None:
    """Put each sine and cosine into a Sequence of its own: ONNX Runtime's are others in the last bit."""
    for wave in graph.node:
        if wave.op_type in ("Sin", "Cos"):
            x = onnx.helper.make_tensor_value_info(wave.input[0], onnx.TensorProto.FLOAT, None)
            alone = onnx.helper.make_graph([wave], "wave", [x], [onnx.ValueInfoProto(name=wave.output[0])])
            join(alone)
            wave.CopyFrom(alone.node[0])
            graph.value_info.append(onnx.helper.make_tensor_value_info(wave.output[0], onnx.TensorProto.FLOAT, None))


def step_of(model: onnx.ModelProto) -> list[str]:
    *_, (_, step) = all_graphs(model.graph)
    return [node.op_type for node in step.node]


def run(model: onnx.ModelProto, source: Any, **options: Any) -> list[Any]:
    settings = cast(Any, onnxruntime).SessionOptions()
    settings.register_custom_ops_library(str(kernel_library()))
    session = onnxruntime.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
    return cast(Any, session).run(None, {"source": source, **options})
