"""Turns the options of an engine's model into constants, so that Triton's clients need not send them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from xformc.triton.config import Tensor

BATCH = "batch"
"""The axis along which Triton batches requests: the first of each input and output."""

_TYPES: Mapping[int, str] = {
    TensorProto.INT64: "TYPE_INT64",
    TensorProto.FLOAT: "TYPE_FP32",
    TensorProto.BOOL: "TYPE_BOOL",
}


@dataclass(frozen=True)
class Served:
    """A model, with its inputs and outputs as Triton's configuration declares them."""

    model: onnx.ModelProto
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


def serve(model: onnx.ModelProto, options: Mapping[str, Any], constants: Mapping[str, Any]) -> Served:
    """Give the model's inputs that are in `options` or `constants` these values, in place, and return it with its
    interface.

    The options stay inputs with a default value, which ONNX Runtime does not ask for and does not take for constants:
    it could not inline the nested conditions that follow from some of them.

    Options that the model does not have as inputs are ignored, except `n_best`: a model without it returns the whole
    beam, which is cut to the first `n_best` hypotheses.
    """
    graph = model.graph
    given = {**options, **constants}
    fixed = {value.name: _constant(value, given[value.name]) for value in graph.input if value.name in given}
    _remove(graph.initializer, set(fixed))
    graph.initializer.extend(fixed.values())
    _remove(graph.input, set(constants))
    if "n_best" in options.keys() - fixed.keys():
        _cut(graph, options["n_best"])
    known = {tensor.name for tensor in graph.initializer}
    inputs = tuple(_tensor(value) for value in graph.input if value.name not in known)
    return Served(model, inputs, tuple(map(_tensor, graph.output)))


def _cut(graph: onnx.GraphProto, n_best: int) -> None:
    """Cut each output to the first `n_best` entries of its second axis."""
    whole = {value.name: f"{value.name}.beam" for value in graph.output}
    for node in graph.node:
        names = [whole.get(name, name) for name in node.output]
        del node.output[:]
        node.output.extend(names)
    bounds = {"n_best.first": 0, "n_best.end": n_best, "n_best.axis": 1}
    graph.initializer.extend(numpy_helper.from_array(np.array([bound]), name) for name, bound in bounds.items())
    for name, beam in whole.items():
        graph.node.append(helper.make_node("Slice", [beam, *bounds], [name]))
    for value in graph.output:
        axis = value.type.tensor_type.shape.dim[1]
        axis.ClearField("dim_param")
        axis.dim_value = n_best


def _constant(value: onnx.ValueInfoProto, content: Any) -> onnx.TensorProto:
    """The content as the input is: an option with a row for each text has one row for all."""
    kind = value.type.tensor_type
    array = np.array(content, helper.tensor_dtype_to_np_dtype(kind.elem_type))
    return numpy_helper.from_array(array.reshape((1,) * (len(kind.shape.dim) - array.ndim) + array.shape), value.name)


def _tensor(value: onnx.ValueInfoProto) -> Tensor:
    found = value.type.tensor_type
    first, *rest = found.shape.dim
    assert first.dim_param == BATCH, f"{value.name} has no batch"
    return Tensor(value.name, _TYPES[int(found.elem_type)], tuple(axis.dim_value or -1 for axis in rest))


def _remove(items: Any, names: set[str]) -> None:
    kept = [item for item in items if item.name not in names]
    del items[:]
    items.extend(kept)
