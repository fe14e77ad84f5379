"""ONNX's own operators in a Sequence: the bits of ONNX Runtime's, and errors for what no compiler writes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import DTypeLike
from onnx import helper

from tests.runtime.kernel_session import Array, alone, node, run_node, run_nodes
from tests.runtime.standard_nodes import FLOAT, INT, NODES, drawn, result_types
from xformc.compiler.backends.onnx.sequences import SEQUENCE, join
from xformc.compiler.backends.onnx.standard import STANDARD


def joined(
    nodes: Sequence[onnx.NodeProto], feeds: dict[str, Array], results: dict[str, DTypeLike], threads: int = 1
) -> list[Array]:
    """The results of these nodes in one Sequence, whose bits are those of the nodes alone."""
    expected = run_nodes(nodes, feeds, results)
    element = helper.np_dtype_to_tensor_dtype
    infos = [helper.make_tensor_value_info(name, element(one.dtype), None) for name, one in feeds.items()]
    outputs = [helper.make_tensor_value_info(name, element(np.dtype(kind)), None) for name, kind in results.items()]
    graph = helper.make_graph([*nodes], "nodes", infos, outputs)
    join(graph)
    assert [one.op_type for one in graph.node] == [SEQUENCE]
    found = run_nodes(list(graph.node), feeds, results, threads)
    for name, one, other in zip(results, expected, found, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape), name
        assert one.tobytes() == other.tobytes(), name
    return found


def test_every_operator_is_drawn() -> None:
    assert NODES.keys() == STANDARD.keys()


@pytest.mark.parametrize("kind", [kind for kind in NODES if kind not in {"Sin", "Cos"}])
def test_an_operator_computes_the_bits_of_onnx_runtime(kind: str) -> None:
    for seed in range(40):
        one, feeds = drawn(kind, np.random.default_rng(seed))
        types = result_types(one, feeds)
        copies = [helper.make_node("Identity", [name], [f"{name}_copy"]) for name in one.output]
        joined([one, *copies], feeds, {f"{name}_copy": kind for name, kind in types.items()} | types)


@pytest.mark.parametrize("sizes", [(1, 3, 40000), (7, 300, 50), (70001,)])
def test_many_numbers_are_divided_among_threads(sizes: tuple[int, ...]) -> None:
    random = np.random.default_rng(0)
    x, y = (random.standard_normal(shape, FLOAT) for shape in (sizes, sizes[-1:]))  # of -0 ONNX Runtime's Where makes 0
    feeds = {"x": x, "y": y, "is": random.random(sizes) < 0.5}
    nodes = [
        helper.make_node("Add", ["x", "y"], ["sum"]),
        helper.make_node("Where", ["is", "sum", "y"], ["some"]),
        helper.make_node("Transpose", ["some"], ["turned"], perm=list(range(len(sizes)))[::-1]),
    ]
    joined(nodes, feeds, dict.fromkeys(("sum", "some", "turned"), FLOAT), threads=3)


@pytest.mark.parametrize(("kind", "exact"), [("Sin", np.sin), ("Cos", np.cos)])
def test_waves_are_exact_and_the_same_at_every_place(kind: str, exact: Any) -> None:
    """Those of ONNX Runtime depend on a number's place in a vector."""
    x = (np.random.default_rng(0).standard_normal(999) * np.logspace(-3, 6, 999)).astype(FLOAT)
    x[:8] = 0, -0.0, np.pi, -np.pi / 2, 1e7, -3e8, np.inf, np.nan
    [found] = run_sequence(f"onnx.{kind}", [x], [FLOAT])
    with np.errstate(invalid="ignore"):
        wanted = exact(x.astype(np.float64))
    np.testing.assert_allclose(found, wanted, atol=1e-7, rtol=0)
    for first in (1, 3, 6):
        [part] = run_sequence(f"onnx.{kind}", [x[first:-first]], [FLOAT])
        assert part.tobytes() == found[first:-first].tobytes()


def run_sequence(kinds: str, inputs: Sequence[Array], results: Sequence[DTypeLike], **attributes: Any) -> list[Array]:
    """A Sequence of one node, which takes these inputs."""
    given = alone(kinds, range(len(inputs)), len(results))
    return run_node("Sequence", list(inputs), results, **{**given, **attributes})


ONE, TWO = np.array(1), np.array([1, 2])
REFUSED: dict[str, tuple[str, list[Array], dict[str, Any], str]] = {
    "a division by 0": ("Div", [TWO, np.array(0)], {}, "a division by 0"),
    "a rest of 0": ("Mod", [TWO, np.array(0)], {}, "a division by 0"),
    "two types": ("Add", [TWO, np.ones(2, FLOAT)], {}, "two inputs of one type"),
    "axes that do not fit": ("Add", [TWO, np.ones(3, INT)], {}, "the axes of two tensors do not fit"),
    "a missing input": ("Add", [TWO], {}, "two inputs of one type"),
    "another type": ("Not", [TWO], {}, "not bool"),
    "an unknown type": ("Identity", [np.ones(2, np.float64)], {}, "a type that is not known here"),
    "text": ("Identity", [np.array(["a"], np.object_)], {}, "a type that is not known here"),
    "an index": ("Gather", [TWO, np.array([2])], {"node0_axis": 0}, "an index is out of range"),
    "an index below": ("Gather", [TWO, np.array([-3])], {"node0_axis": 0}, "an index is out of range"),
    "an axis": ("Gather", [TWO, ONE], {"node0_axis": 1}, "there is no such axis"),
    "indices": ("GatherElements", [TWO, np.array([5])], {"node0_axis": 0}, "an index is out of range"),
    "a place": ("ScatterND", [TWO, np.array([[7]]), np.array([1])], {}, "an index is out of range"),
    "updates": ("ScatterND", [TWO, np.array([[0]]), np.array([1, 2])], {}, "the updates do not fit"),
    "a size below 0": ("Expand", [ONE, np.array([-1])], {}, "negative"),
    "huge sizes": ("Expand", [ONE, np.array([2**30, 2**30, 2**30])], {}, "too large"),
    "a large size": ("Expand", [ONE, np.array([2**45])], {}, "too large"),
    "another size": ("Reshape", [TWO, np.array([3])], {}, "the sizes do not fit"),
    "two open sizes": ("Reshape", [TWO, np.array([-1, -1])], {}, "two sizes are open"),
    "many axes": ("Unsqueeze", [TWO, np.arange(17)], {}, "more than 16 axes"),
    "an axis twice": ("Unsqueeze", [TWO, np.array([0, 0])], {}, "an axis is added twice"),
    "an order": ("Transpose", [TWO], {"node0_perm": [0, 1]}, "another number of axes"),
    "an order twice": ("Transpose", [TWO.reshape(1, 2)], {"node0_perm": [0, 0]}, "an axis occurs twice"),
    "no step": ("Range", [ONE, ONE, np.array(0)], {}, "Range has no step"),
    "a long way": ("Range", [ONE, np.array(2**60), ONE], {}, "Range goes too far"),
    "a cut": ("Pad", [TWO, np.array([-3, 0])], {}, "Pad goes too far"),
    "two cuts": ("Pad", [TWO, np.array([-2, -2])], {}, "Pad leaves out more"),
    "a large pad": ("Pad", [TWO, np.array([0, 2**50])], {}, "Pad goes too far"),
    "a sum of floats": ("ReduceSum", [np.ones(2, FLOAT)], {}, "not int64"),
    "an axis cut twice": ("Slice", [TWO, TWO, TWO, np.array([0, 0])], {}, "an axis is cut twice"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_operator_refuses_what_no_compiler_writes(name: str) -> None:
    kind, inputs, attributes, message = REFUSED[name]
    with pytest.raises(Exception, match=message):
        run_sequence(f"onnx.{kind}", inputs, [inputs[0].dtype], **attributes)


def test_more_of_the_largest_than_there_are() -> None:
    with pytest.raises(Exception, match="not so many numbers"):
        run_sequence("onnx.TopK", [np.ones(2, FLOAT), np.array([3])], [FLOAT, INT])


def test_results_have_the_types_of_the_model() -> None:
    """Otherwise memory of another size would be written to."""
    with pytest.raises(Exception, match="another type in the model"):
        run_sequence("onnx.Identity", [TWO], [np.bool_])


def test_only_nodes_of_a_sequence_are_operators_of_onnx() -> None:
    with pytest.raises(Exception, match=r"onnx\.Add"):
        run_node("onnx.Add", [ONE, ONE], [INT])
    assert node("Add", ["a", "b"], ["c"]).domain != ""
