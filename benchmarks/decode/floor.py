"""The floor: an engine's products with weights alone, by its own operators, as often as a search does them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from xformc.compiler.backends.initializers import MODEL
from xformc.runtime.manifest import Target
from xformc.runtime.session import open_model

PREPARE, STEP = "floor_prepare.onnx", "floor_step.onnx"
_INT8_GROUP = 4
_WEIGHT = {"Project": 4, "ProjectCandidates": 3}
"""Which input of our own operators is the first weight."""


class Floor:
    """The products of the engine in `folder`: those before the search once, those of a step for each token."""

    def __init__(self, folder: Path, target: Target, threads: int) -> None:
        model = onnx.load(str(folder / MODEL), load_external_data=False)
        graphs = [[node for node in graph.node if _width(node, model) is not None] for graph in _graphs(model.graph)]
        before, *inner = [nodes for nodes in graphs if nodes]
        self.products = len(before), len(inner[-1])
        onnx.save(_repeated(model, before), str(folder / PREPARE))
        onnx.save(_repeated(model, inner[-1]), str(folder / STEP))
        self._sessions = [open_model(folder / name, threads, target) for name in (PREPARE, STEP)]
        random = np.random.default_rng(0)
        self._random = random.standard_normal(1 << 16, np.float32)

    def run(self, batch: int, source: int, beam: int, length: int) -> None:
        """The products of a search in which each of `batch` sentences of `source` tokens gets `length` tokens."""
        for session, rows, times in zip(self._sessions, (batch * source, batch * beam), (1, length), strict=True):
            feeds: dict[str, Any] = {"times": np.array(times)}
            for value in session.get_inputs():
                if value.name != "times":
                    feeds[value.name] = np.resize(self._random, (rows, value.shape[1]))
            session.run(None, feeds)


def _graphs(graph: Any) -> Iterator[Any]:
    """The graph and those inside it, the outer first."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _graphs(attribute.g)


def _constants(model: onnx.ModelProto) -> list[Any]:
    """The constants of all graphs; each name is there once."""
    return [tensor for graph in _graphs(model.graph) for tensor in graph.initializer]


def _width(node: Any, model: onnx.ModelProto) -> int | None:
    """How many numbers of a row the node multiplies with weights, or None if it is no such product."""
    shapes = {tensor.name: tuple(tensor.dims) for tensor in _constants(model)}
    if node.op_type in _WEIGHT:
        shape = shapes[node.input[_WEIGHT[node.op_type]]]
        return shape[1] * _INT8_GROUP if len(shape) == 4 else shape[1]
    if node.op_type in ("MatMul", "FusedMatMul", "Gemm", "DynamicQuantizeMatMul") and len(node.input) > 1:
        shape = shapes.get(node.input[1], ())
        transposed = any(item.name == "transB" and item.i for item in node.attribute)
        return shape[int(transposed)] if len(shape) == 2 else None
    return None


def _logits(node: Any) -> Any:
    """The Project that makes the logits of a ProjectCandidates."""
    given = {item.name: helper.get_attribute_value(item) for item in node.attribute}
    return helper.make_node(
        "Project",
        [node.input[0], "", "", "", *(name for name in node.input[_WEIGHT[node.op_type] :] if name)],
        ["logits"],
        domain=node.domain,
        parts=1,
        ranks=[1],
        sizes=[given["vocabulary"]],
        bias=int(len(node.input) > 5),
        precision=given["precision"],
    )


def _repeated(model: onnx.ModelProto, products: list[Any]) -> onnx.ModelProto:
    """A model that does the products `times` times over, each of an input x_WIDTH [rows, WIDTH]."""
    nodes, widths = list[Any](), set[int]()
    for index, product in enumerate(products):
        width = _width(product, model)
        assert width is not None
        widths.add(width)
        node = onnx.NodeProto()
        node.CopyFrom(_logits(product) if product.op_type == "ProjectCandidates" else product)
        node.input[0] = f"x_{width}"
        if node.op_type == "Project":
            node.input[1] = node.input[2] = node.input[3] = ""
            plain = {"depth": 1, "norm": "none", "activation": "none"}
            kept = [item for item in node.attribute if item.name not in plain]
            del node.attribute[:]
            node.attribute.extend([*kept, *(helper.make_attribute(name, value) for name, value in plain.items())])
        for place in range(len(node.output)):
            node.output[place] = f"product_{index}_{place}"
        nodes.append(node)
    flag = helper.make_tensor_value_info("go", TensorProto.BOOL, [])
    number = helper.make_tensor_value_info("round", TensorProto.INT64, [])
    go_on = helper.make_tensor_value_info("go_on", TensorProto.BOOL, [])
    sum_in, sum_out = (helper.make_tensor_value_info(name, TensorProto.INT64, []) for name in ("count", "counted"))
    body = helper.make_graph(
        [*nodes, helper.make_node("Identity", ["go"], ["go_on"]), helper.make_node("Identity", ["round"], ["counted"])],
        "body",
        [number, flag, sum_in],
        [go_on, sum_out],
    )
    names = {name for node in nodes for name in node.input}
    graph = helper.make_graph(
        [helper.make_node("Loop", ["times", "", "times"], ["rounds"], body=body)],
        "floor",
        [
            helper.make_tensor_value_info("times", TensorProto.INT64, []),
            *(helper.make_tensor_value_info(f"x_{width}", TensorProto.FLOAT, ["rows", width]) for width in widths),
        ],
        [helper.make_tensor_value_info("rounds", TensorProto.INT64, [])],
        [tensor for tensor in _constants(model) if tensor.name in names],
    )
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
