"""Conversions between products in 16 bits that undo each other go; results change by a constant's rounding alone."""

from collections import Counter
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from xformc.compiler.backends.onnx.narrowing import narrowed

FLOAT, FLOAT16, BFLOAT16 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16
BIAS = np.linspace(-2, 2, 4, dtype=np.float32)


def cast(name: str, to: int, result: str) -> onnx.NodeProto:
    return helper.make_node("Cast", [name], [result], to=to)


def chain(half: int, *between: onnx.NodeProto) -> list[onnx.NodeProto]:
    """A product in 16 bits, widened to `wide`, then nodes from there to `last`, and a product of that in 16 bits."""
    return [
        cast("x", half, "small"),
        helper.make_node("MatMul", ["small", "small"], ["product"]),
        cast("product", FLOAT, "wide"),
        *between,
        cast("last", half, "again"),
        helper.make_node("MatMul", ["again", "again"], ["end"]),
        cast("end", FLOAT, "y"),
    ]


def run(nodes: list[onnx.NodeProto], *results: str) -> list[Any]:
    outputs = [helper.make_tensor_value_info(name, FLOAT, None) for name in results]
    x = helper.make_tensor_value_info("x", FLOAT, [4, 4])
    graph = helper.make_graph(nodes, "chain", [x], outputs, [numpy_helper.from_array(BIAS, "bias")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    session: Any = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)})


def rewritten(nodes: list[onnx.NodeProto], *results: str, bias: np.ndarray = BIAS) -> list[onnx.NodeProto]:
    names = iter(range(1000))
    return narrowed(nodes, results, {"bias": bias}.get, lambda hint: f"{hint}.{next(names)}")


MOVED = helper.make_node("Transpose", ["wide"], ["moved"], perm=[1, 0])
ADDED = helper.make_node("Add", ["moved", "bias"], ["added"])
CUT = helper.make_node("Relu", ["added"], ["last"])


def test_what_lies_between_two_products_stays_in_16_bits() -> None:
    nodes = chain(FLOAT16, MOVED, ADDED, CUT)
    found = rewritten(nodes, "y")
    kinds = Counter(node.op_type for node in found)
    assert kinds == {"Cast": 3, "MatMul": 2, "Transpose": 1, "Add": 1, "Relu": 1}
    np.testing.assert_allclose(run(found, "y")[0], run(nodes, "y")[0], rtol=2e-3, atol=2e-2)


def test_moves_alone_change_no_bit() -> None:
    nodes = chain(FLOAT16, helper.make_node("Transpose", ["wide"], ["last"], perm=[1, 0]))
    found = rewritten(nodes, "y")
    assert Counter(node.op_type for node in found) == {"Cast": 2, "MatMul": 2, "Transpose": 1}
    np.testing.assert_array_equal(run(found, "y")[0], run(nodes, "y")[0])


def test_in_bfloat16_a_bias_stays_in_float32() -> None:
    nodes = chain(BFLOAT16, MOVED, ADDED, CUT)
    assert [node.op_type for node in rewritten(nodes, "y")] == [node.op_type for node in nodes]


@pytest.mark.parametrize(
    "between",
    [
        [helper.make_node("Softmax", ["wide"], ["last"])],
        [helper.make_node("Add", ["wide", "x"], ["last"])],
        [helper.make_node("Add", ["bias", "wide"], ["last"])],
    ],
    ids=["another function", "a sum of two values", "a constant that comes first"],
)
def test_what_16_bits_would_round_stays_in_float32(between: list[onnx.NodeProto]) -> None:
    nodes = chain(FLOAT16, *between)
    assert rewritten(nodes, "y") == nodes


@pytest.mark.parametrize("number", [1e-6, 1e5, np.inf])
def test_a_constant_that_float16_lacks_stays_in_float32(number: float) -> None:
    nodes = chain(FLOAT16, MOVED, ADDED, CUT)
    assert rewritten(nodes, "y", bias=np.array([1, 0, number], np.float32)) == nodes


def test_results_keep_their_names_and_what_nothing_needs_goes() -> None:
    nodes = [*chain(FLOAT16, MOVED, ADDED, CUT), helper.make_node("Neg", ["x"], ["unused"])]
    found = rewritten(nodes, "y", "last", "again")
    assert {"last", "again", "y"} <= {name for node in found for name in node.output}
    assert not any("unused" in node.output for node in found)
    for one, other in zip(run(found, "y", "last"), run(nodes, "y", "last"), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-3, atol=2e-2)


def test_a_graph_inside_keeps_the_names_that_it_takes() -> None:
    inside = helper.make_graph(
        [helper.make_node("Identity", ["again"], ["taken"])],
        "branch",
        [],
        [helper.make_tensor_value_info("taken", FLOAT16, None)],
    )
    nodes = [
        *chain(FLOAT16, MOVED, ADDED, CUT),
        helper.make_node("Constant", [], ["always"], value=numpy_helper.from_array(np.array(True))),
        helper.make_node("If", ["always"], ["chosen"], then_branch=inside, else_branch=inside),
        cast("chosen", FLOAT, "z"),
    ]
    found = rewritten(nodes, "z")
    assert any("again" in node.output for node in found)
    np.testing.assert_allclose(run(found, "z")[0], run(nodes, "z")[0], rtol=2e-3, atol=2e-2)
