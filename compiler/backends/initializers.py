"""Parameter values on their way into ONNX files: inline in small models, in a data file beside large ones."""

from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from xformc.compiler.graph.graph import Parameter

INLINE_BYTES = 64 * 2**20
"""Weights up to this total stay inside model.onnx; protobuf itself ends at 2 GiB."""

ALIGNMENT = 4096
"""Each tensor of the data file starts at a multiple of this, so that it can be mapped."""


MODEL, DATA = "model.onnx", "model.onnx.data"
"""The two files of a model."""


class Initializers:
    """The values by path, and the shapes in which a model's nodes take them (rules ask for matrices)."""

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        """`arrays` holds float32 numpy arrays by parameter path."""
        self.arrays = arrays
        self.shapes: dict[str, tuple[int, ...]] = {}

    def use(self, parameter: Parameter) -> None:
        """Say that the model has this parameter."""
        self.shapes.setdefault(parameter.name, parameter.type.sizes())

    def flatten(self, name: str, shape: tuple[int, ...]) -> bool:
        """Store the parameter in this shape. False if there is no such parameter, or another shape was asked for."""
        if name not in self.shapes:
            return False
        natural = self.arrays[name].shape
        if self.shapes[name] not in (natural, shape):
            return False
        self.shapes[name] = shape
        return True

    def attach(self, model: onnx.ModelProto, folder: Path) -> None:
        """Add the used parameters to the model; large ones go to the file DATA in `folder`, unless it is there."""
        total = sum(4 * prod(shape) for shape in self.shapes.values())
        if total <= INLINE_BYTES:
            for name, shape in self.shapes.items():
                array = np.ascontiguousarray(self.arrays[name], np.float32).reshape(shape)
                model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
            return
        offsets = self._offsets()
        if not (folder / DATA).exists():
            self._write(folder / DATA, offsets)
        for name, shape in self.shapes.items():
            model.graph.initializer.append(_external(name, shape, offsets[name]))

    def _offsets(self) -> dict[str, int]:
        offsets, position = dict[str, int](), 0
        for name in sorted(self.arrays):
            offsets[name] = position
            size = 4 * self.arrays[name].size
            position += -(-size // ALIGNMENT) * ALIGNMENT
        return offsets

    def _write(self, path: Path, offsets: dict[str, int]) -> None:
        with path.open("wb") as file:
            for name, offset in offsets.items():
                file.seek(offset)
                np.ascontiguousarray(self.arrays[name], np.float32).tofile(file)


def _external(name: str, shape: tuple[int, ...], offset: int) -> onnx.TensorProto:
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape)
    tensor.data_location = TensorProto.EXTERNAL
    entries = {"location": DATA, "offset": str(offset), "length": str(4 * prod(shape))}
    for key, value in entries.items():
        tensor.external_data.append(onnx.StringStringEntryProto(key=key, value=value))
    return tensor


def save_model(model: onnx.ModelProto, initializers: Initializers, folder: Path) -> None:
    """Write the model and its weights into `folder`."""
    initializers.attach(model, folder)
    (folder / MODEL).write_bytes(model.SerializeToString())


def read_initializers(path: Path) -> dict[str, Any]:
    """The float32 initializers of a model by name, large ones mapped from the data file, not read.

    Raises: OSError, and onnx's own errors, for a file that is not such a model.
    """
    model = onnx.ModelProto.FromString(path.read_bytes())
    arrays: dict[str, Any] = {}
    for tensor in model.graph.initializer:
        if tensor.data_type != TensorProto.FLOAT:
            continue
        if tensor.data_location == TensorProto.EXTERNAL:
            entries = {entry.key: entry.value for entry in tensor.external_data}
            arrays[tensor.name] = np.memmap(
                path.parent / entries["location"], np.float32, "r", int(entries["offset"]), tuple(tensor.dims)
            )
        else:
            arrays[tensor.name] = onnx.numpy_helper.to_array(tensor)
    return arrays
