"""The floor of an engine: only its matrix products with weights, by its own operators, as often as in a search.

Logits are full matrix products in the engine's precision, even if the engine screens them. They are computed for a few
thousand tokens at a time in the same memory, because an engine does not write them all either.
"""

from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from xformc.compiler.backends.onnx.graphs import all_graphs
from xformc.compiler.backends.onnx.sequences import split
from xformc.compiler.quantize.int4 import BLOCK
from xformc.compiler.quantize.layouts import PANEL, panels
from xformc.compiler.quantize.screening import unscreen
from xformc.format.names import MODEL
from xformc.format.targets import Target
from xformc.runtime.session import open_model

FLOOR = "floor.onnx"
"""The file of a model with two loops: the products before the search, and those of its steps."""

_WEIGHT = {"Project": 4, "ProjectCandidates": 3, "ScreenCandidates": 3}
"""The index of the first weight among the inputs of our operators."""

_SCALE, _BIAS = {"ProjectCandidates": 4}, {"ProjectCandidates": 5, "ScreenCandidates": 7}
"""The index of the scale, if there is one, and of the bias; what follows them is of the search."""

_TOKENS = 4096
"""The number of tokens whose logits are computed at once."""


class Floor:
    """The matrix products of the engine in `folder`: those before the search once, those of a step for each token."""

    def __init__(self, folder: Path, target: Target, threads: int) -> None:
        model = plain_model(folder)
        graphs = [
            [node for node in graph.node if width_of(node, model) is not None] for _, graph in all_graphs(model.graph)
        ]
        before, *inner = [nodes for nodes in graphs if nodes]
        onnx.save(_looped(model, {"source": before, "step": inner[-1]}, folder), str(folder / FLOOR))
        # One session, because the idle threads of a second one would spin on the same cores.
        self._session = open_model(folder / FLOOR, threads, target)
        random = np.random.default_rng(0)
        self._random = random.standard_normal(1 << 16, np.float32)

    def run(self, batch: int, source: int, beam: int, length: int) -> None:
        """Run the products of a search of `batch` sentences of `source` tokens, with outputs of `length` tokens."""
        feeds: dict[str, Any] = {"source": np.array(1), "step": np.array(length)}
        rows = {"source": batch * source, "step": batch * beam}
        for value in self._session.get_inputs():
            if value.name not in feeds:
                phase = value.name.split("_")[0]
                feeds[value.name] = np.resize(self._random, (rows[phase], value.shape[1]))
        self._session.run(None, feeds)


def plain_model(engine: Path) -> onnx.ModelProto:
    """Return the search of an engine without sequences; its weights stay in their file."""
    model = onnx.load(str(engine / MODEL), load_external_data=False)
    split(model.graph)
    return model


def _constants(model: onnx.ModelProto) -> list[Any]:
    """Return the constants of all graphs; their names are unique."""
    return [tensor for _, graph in all_graphs(model.graph) for tensor in graph.initializer]


def width_of(node: Any, model: onnx.ModelProto) -> int | None:
    """Return the depth of the node's product with weights, or None if it is not such a product."""
    shapes = {tensor.name: tuple(tensor.dims) for tensor in _constants(model)}
    if node.op_type in _WEIGHT:
        shape = shapes[node.input[_WEIGHT[node.op_type]]]
        return shape[1] * (BLOCK if len(shape) == 5 else prod(shape[3:]))
    if node.op_type in ("MatMul", "FusedMatMul", "Gemm", "DynamicQuantizeMatMul") and len(node.input) > 1:
        shape = shapes.get(node.input[1], ())
        transposed = any(item.name == "transB" and item.i for item in node.attribute)
        return shape[int(transposed)] if len(shape) == 2 else None
    return None


def _logits(node: Any, model: onnx.ModelProto, folder: Path) -> Iterator[tuple[Any, list[Any]]]:
    """Yield Project nodes that compute the logits of a node for some tokens each, with their constants."""
    constants = {
        tensor.name: numpy_helper.to_array(tensor, str(folder))
        for tensor in _constants(model)
        if tensor.name in node.input
    }
    given = {item.name: helper.get_attribute_value(item) for item in node.attribute}
    screens = node.op_type == "ScreenCandidates"
    weight = constants[node.input[3]]
    if screens:
        weight = panels(unscreen(constants[node.input[4]], constants[node.input[5]], weight))
    bias = node.input[_BIAS[node.op_type]]
    scale = node.input[_SCALE[node.op_type]] if node.op_type in _SCALE else ""
    by_token = [constants[name] for name in (scale, bias) if name]
    for first in range(0, given["vocabulary"], _TOKENS):
        last = min(first + _TOKENS, given["vocabulary"])
        rows = slice(first // PANEL, -(-last // PANEL))
        parts = [weight[rows], *(array[first:last] if array.ndim == 1 else array[rows] for array in by_token)]
        tensors = [numpy_helper.from_array(part, f"logits_{first}_{place}") for place, part in enumerate(parts)]
        project = helper.make_node(
            "Project",
            ["x", "", "", "", *(tensor.name for tensor in tensors)],
            ["logits"],
            domain=node.domain,
            parts=1,
            ranks=[1],
            sizes=[last - first],
            bias=int(bool(bias)),
            precision="float32" if screens else given["precision"],
        )
        yield project, tensors


def _looped(model: onnx.ModelProto, phases: Mapping[str, list[Any]], folder: Path) -> onnx.ModelProto:
    """Return a model with a loop for each phase; its input PHASE is the number of iterations.

    The products multiply the inputs PHASE_WIDTH [rows, WIDTH].
    """
    loops, inputs, own, names = list[Any](), list[Any](), list[Any](), set[str]()
    for phase, products in phases.items():
        nodes, widths = list[Any](), set[int]()
        for product in products:
            width = width_of(product, model)
            assert width is not None
            widths.add(width)
            makes_logits = product.op_type in ("ProjectCandidates", "ScreenCandidates")
            for part, tensors in _logits(product, model, folder) if makes_logits else [(product, [])]:
                nodes.append(_alone(part, f"{phase}_{width}", f"{phase}_{len(nodes)}"))
                own += tensors
        loops.append(_loop(phase, nodes))
        names.update(name for node in nodes for name in node.input)
        inputs.append(helper.make_tensor_value_info(phase, TensorProto.INT64, []))
        for width in sorted(widths):
            inputs.append(helper.make_tensor_value_info(f"{phase}_{width}", TensorProto.FLOAT, [f"{phase}s", width]))
    counts = [helper.make_tensor_value_info(name, TensorProto.INT64, []) for loop in loops for name in loop.output]
    constants = [tensor for tensor in _constants(model) if tensor.name in names]
    graph = helper.make_graph(loops, "floor", inputs, counts, [*constants, *own])
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)


def _loop(phase: str, nodes: list[Any]) -> Any:
    """Return a Loop that runs the nodes as often as the value named `phase`."""
    round_, go, count = f"{phase}_round", f"{phase}_go", f"{phase}_count"
    ends = [helper.make_node("Identity", [name], [f"{name}_out"]) for name in (go, count)]
    inputs = {round_: TensorProto.INT64, go: TensorProto.BOOL, count: TensorProto.INT64}
    outputs = {f"{go}_out": TensorProto.BOOL, f"{count}_out": TensorProto.INT64}
    taken = [helper.make_tensor_value_info(name, kind, []) for name, kind in inputs.items()]
    given = [helper.make_tensor_value_info(name, kind, []) for name, kind in outputs.items()]
    body = helper.make_graph([*nodes, *ends], f"{phase}_body", taken, given)
    return helper.make_node("Loop", [phase, "", phase], [f"{phase}_rounds"], body=body)


def _alone(product: Any, x: str, name: str) -> Any:
    """Return the product with the input `x`, without fused operations."""
    node = onnx.NodeProto()
    node.CopyFrom(product)
    node.input[0] = x
    if node.op_type == "Project":
        node.input[1] = node.input[2] = node.input[3] = ""
        plain = {"depth": 1, "norm": "none", "activation": "none"}
        kept = [item for item in node.attribute if item.name not in plain]
        del node.attribute[:]
        node.attribute.extend([*kept, *(helper.make_attribute(key, value) for key, value in plain.items())])
    for place in range(len(node.output)):
        node.output[place] = f"{name}_{place}"
    return node
