"""Writes and reads parameters in ONNX files: inline in small models, in a data file for large ones."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto

from xformc.compiler.backends.onnx.graphs import all_graphs
from xformc.compiler.backends.onnx.sequences import split
from xformc.compiler.graph.graph import Parameter
from xformc.compiler.graph.weight import LayoutName, Weight
from xformc.compiler.ops.native import DOMAIN
from xformc.compiler.quantize import formats
from xformc.compiler.quantize.elements import Element, from_bytes, size_in_bytes
from xformc.compiler.quantize.formats import FORMATS
from xformc.compiler.quantize.number_format import NumberFormat
from xformc.compiler.quantize.stored import INPUT_SCALE, Floats, StoredTensor, input_scale, plain
from xformc.format.names import DATA, MODEL, OF_TEXT
from xformc.format.precision import Precision

INLINE_BYTES = 4 * 2**20
"""Weights up to this total are inline in model.onnx, parsed and copied; those in a data file are memory-mapped."""

ALIGNMENT = 4096
"""Each tensor of the data file starts at a multiple of this, so that it can be memory-mapped."""


OWN_DATA = "model.onnx.own"
"""The data file of a model next to an engine, with the tensors that it does not share with the engine."""


class Initializers:
    """The parameters by path, and the layouts that a model's nodes need (docs/precision.md).

    A model stores every layout that its nodes use: a parameter used in two layouts is stored twice.
    """

    def __init__(
        self,
        arrays: Mapping[str, Any],
        precision: Mapping[str, Precision] | None = None,
        *,
        input_scales: Mapping[str, float] = MappingProxyType({}),
        emulated: bool = False,
    ) -> None:
        """`arrays`: float32 numpy arrays by parameter path. `precision`: their number formats, float32 if missing.

        `input_scales`: the calibrated input scales of matrix products, by parameter. `emulated`: models emulate 16-bit
        products, so that ONNX Runtime can run them on a CPU (see `OnnxEmitter`).
        """
        self.arrays = arrays
        self.emulated = emulated
        self._precision = precision or {}
        self._input_scales = input_scales
        self._named_scales: dict[float, str] = {}
        self._parameters: set[str] = set()
        self._stored: dict[str, StoredTensor] = {}

    @property
    def rounded(self) -> dict[str, Precision]:
        """The number formats of the parameters that are not in float32."""
        return {name: precision for name, precision in self._precision.items() if precision != "float32"}

    def precision_of(self, name: str) -> Precision:
        """The number format of the parameter when used as a weight."""
        return self._precision.get(name, "float32")

    def format_of(self, name: str) -> NumberFormat:
        """The NumberFormat of the parameter when used as a weight."""
        return FORMATS[self.precision_of(name)]

    @property
    def types(self) -> dict[str, int]:
        """The types of all stored tensors by name, as ONNX numbers them."""
        return {name: int(tensor.element) for name, tensor in self._stored.items()}

    def numbers(self, name: str) -> Floats | None:
        """The numbers of a parameter that models use in float32; None for another name."""
        stored = self._stored.get(name)
        used = stored is not None and stored.element == Element.FLOAT and name in self.arrays
        return np.asarray(self.arrays[name], np.float32) if used else None

    def use(self, parameter: Parameter) -> None:
        """Add this parameter to the model."""
        if parameter.name not in self._parameters:
            self._parameters.add(parameter.name)
            self._stored[parameter.name] = self._plain(parameter.name, parameter.type.sizes())

    def flatten(self, name: str, shape: tuple[int, ...]) -> bool:
        """Store the parameter in float32 in this shape. Return False if it is missing or stored in another shape."""
        if name not in self._stored or self._stored[name].element != Element.FLOAT:
            return False
        if self._stored[name].shape not in (self.arrays[name].shape, shape):
            return False
        self._stored[name] = self._plain(name, shape)
        return True

    def weight(self, name: str, layout: LayoutName, new: int, width: int) -> Weight:
        """Store the parameter, a matrix [new, width], in this layout of its number format.

        A float32 parameter that is requested in two shapes keeps the first; see `flatten`.
        """
        format = self.format_of(name)
        made = format.layouts[layout].tensors(name, lambda: self._matrix(name, new, width), new, width)
        for key, tensor in made.items():
            if tensor.element != Element.FLOAT or key not in self._parameters:
                self._stored[key] = tensor
            else:
                self.flatten(key, tensor.shape)
        return Weight(name, format.precision, layout, new, width, tuple(made), self._input_scale(name))

    def table(self, name: str, rows: NDArray[np.int32]) -> str:
        """Store a table of integers that is no parameter; return its name."""
        self._stored[name] = StoredTensor(Element.INT32, rows.shape, lambda: rows)
        return name

    def attach(self, models: Sequence[onnx.ModelProto], folder: Path, beside: Path | None = None) -> None:
        """Add the parameters that the models' nodes use; large ones go to one data file in `folder`.

        Tensors that the engine in the folder `beside` already has are linked, not written again.
        """
        taken = [_users(model.graph) for model in models]
        used = self._used(set[str]().union(*taken))
        external = sum(tensor.size for tensor in used.values()) > INLINE_BYTES
        shared = _linked(beside, folder) if external and beside is not None else {}
        ready = {name: _shaped(shared[name], item) for name, item in used.items() if _same(shared.get(name), item)}
        if external:
            location = DATA if beside is None else OWN_DATA
            written = {name: item for name, item in used.items() if name not in ready}
            offsets = _write(folder / location, written)
            ready |= {name: _external(name, item, location, offsets[name]) for name, item in written.items()}
        idle = set(used).difference(*taken)
        for index, (model, users) in enumerate(zip(models, taken, strict=True)):
            for name, item in used.items():
                if name in users or (index == 0 and name in idle):
                    tensor = ready[name] if external else _inline(name, item)
                    _place(model.graph, name, tensor, users.get(name, ()))

    def _used(self, names: set[str]) -> dict[str, StoredTensor]:
        """The tensors with these names, parameters without any tensor in use, and all input scales."""
        idle = {name for name in self._parameters if not any(name + suffix in names for suffix in formats.suffixes())}
        idle |= {name for name in self._stored if name.endswith(INPUT_SCALE)}
        return {name: self._stored[name] for name in sorted(self._stored) if name in names or name in idle}

    def _input_scale(self, name: str) -> str | None:
        """Store the input scale of matrix products with the parameter, if there is one.

        Return the name of the first parameter's scale with the same value, so that a shared input is quantized once.
        """
        if name not in self._input_scales:
            return None
        value = self._input_scales[name]
        self._stored |= input_scale(name, value)
        return self._named_scales.setdefault(value, name + INPUT_SCALE)

    def _plain(self, name: str, shape: tuple[int, ...]) -> StoredTensor:
        return plain(lambda: np.asarray(self.arrays[name], np.float32), shape)

    def _matrix(self, name: str, new: int, width: int) -> NDArray[np.float32]:
        """The parameter's numbers. Raises: UserError if its number format cannot represent them."""
        matrix = np.asarray(self.arrays[name], np.float32).reshape(new, width)
        self.format_of(name).check(matrix, name)
        return matrix


def save_model(model: onnx.ModelProto, initializers: Initializers, folder: Path, beside: Path | None = None) -> None:
    """Write the model and its weights into `folder`; see `Initializers.attach`."""
    save_models({MODEL: model}, initializers, folder, beside)


def save_models(
    models: Mapping[str, onnx.ModelProto], initializers: Initializers, folder: Path, beside: Path | None = None
) -> None:
    """Write the models, by file name, and their weights into `folder`; see `Initializers.attach`."""
    initializers.attach(list(models.values()), folder, beside)
    for name, model in models.items():
        (folder / name).write_bytes(model.SerializeToString())


def read_parameters(path: Path, sizes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """Read the parameters with these names and sizes from an engine's model, in any number format, as float32.

    Large float32 parameters are memory-mapped from the data file. Missing parameters are left out.

    Raises: OSError, ValueError, and onnx's own errors, if the file is not such a model.
    """
    wanted = set[str]().union(*(formats.tensors(name) for name in sizes))
    stored = {
        tensor.name: (tensor.data_type, _read(tensor, path.parent)) for tensor in _stored(path) if tensor.name in wanted
    }
    found: dict[str, Any] = {}
    for name, shape in sizes.items():
        with suppress(KeyError):
            found[name] = formats.restore(name, shape, stored)
    return found


def read_precisions(path: Path, names: Iterable[str]) -> dict[str, Precision]:
    """The number formats of these parameters in a model; missing ones are left out. Raises: as `read_parameters`."""
    kinds = {tensor.name: tensor.data_type for tensor in _stored(path)}
    return {name: found for name in names if (found := formats.precision_of(name, kinds)) is not None}


def read_tables(path: Path, names: Iterable[str]) -> dict[str, NDArray[np.int32]]:
    """The tables of integers with these names in a model; missing ones are left out. Raises: as `read_parameters`."""
    wanted = set(names)
    return {
        tensor.name: _read(tensor, path.parent)
        for tensor in _stored(path)
        if tensor.name in wanted and tensor.data_type == Element.INT32
    }


def read_operators(path: Path) -> set[str]:
    """The kinds of nodes of a model, in its graph and in graphs inside it. Raises: as `read_parameters`."""
    graph = onnx.ModelProto.FromString(path.read_bytes()).graph
    split(graph)
    return {node.op_type for _, inner in all_graphs(graph) for node in inner.node}


def read_input_scales(path: Path, names: Iterable[str]) -> dict[str, float]:
    """The input scales of these parameters in a model; see `Initializers`. Raises: as `read_parameters`."""
    stored = {tensor.name: tensor for tensor in _stored(path) if tensor.name.endswith(INPUT_SCALE)}
    found = {name: stored[name + INPUT_SCALE] for name in names if name + INPUT_SCALE in stored}
    scales = {name: np.asarray(_read(tensor, path.parent)) for name, tensor in found.items()}
    for name, scale in scales.items():
        if scale.dtype != np.float32 or scale.shape != () or not 0 < scale < np.inf:
            raise ValueError(f"{name}{INPUT_SCALE} is {scale.dtype} {list(scale.shape)}, must be a positive float32")
    return {name: float(scale) for name, scale in scales.items()}


def _stored(path: Path) -> Iterator[TensorProto]:
    """The tensors of an engine's model, and those of the model of the results of its text, if it has one."""
    for file in (path, path.with_name(OF_TEXT)):
        if file == path or file.exists():
            yield from _tensors(onnx.ModelProto.FromString(file.read_bytes()).graph)


@dataclass(frozen=True)
class _User:
    """A graph with nodes that use a name, and its depth; `own`: all of these nodes are our own operators."""

    graph: onnx.GraphProto
    depth: int
    own: bool


def _users(graph: onnx.GraphProto) -> dict[str, list[_User]]:
    """The graphs, this one and those inside it, with nodes that use each name."""
    found: dict[str, list[_User]] = {}
    for depth, inner in all_graphs(graph):
        own: dict[str, bool] = {}
        for node in inner.node:
            own |= {name: own.get(name, True) and node.domain == DOMAIN for name in node.input}
        for name, ours in own.items():
            found.setdefault(name, []).append(_User(inner, depth, ours))
    return found


def _place(graph: onnx.GraphProto, name: str, tensor: TensorProto, users: Sequence[_User]) -> None:
    """Add a tensor to the graph, or to the inner graphs that use it if only they do.

    ONNX Runtime prepacks constants of a graph and of the graph around it for matrix products, but not of graphs farther
    out. So a graph deeper inside gets the tensor itself, or the same bytes under another name. Our own kernels need no
    prepacking, and a second name would be a second mapping.
    """
    deep = [user.graph for user in users if user.depth >= _TOO_DEEP and not user.own]
    if len(deep) < len(users) or not users:
        graph.initializer.append(tensor)
    for index, inner in enumerate(deep):
        copy = inner.initializer.add()
        copy.CopyFrom(tensor)
        if index > 0 or len(deep) < len(users):
            copy.name = f"{name}.{index}"
            _rename(inner, name, copy.name)


_TOO_DEEP = 2
"""The depth from which a graph does not see the constants of the outermost graph as constants."""


def _rename(graph: onnx.GraphProto, old: str, new: str) -> None:
    for node in graph.node:
        for index, name in enumerate(node.input):
            if name == old:
                node.input[index] = new


def _inline(name: str, tensor: StoredTensor) -> TensorProto:
    return TensorProto(
        name=name, data_type=tensor.element, dims=tensor.shape, raw_data=np.ascontiguousarray(tensor.make()).tobytes()
    )


def _tensors(graph: onnx.GraphProto) -> Iterator[TensorProto]:
    """The initializers of a graph and of the graphs inside it."""
    for _, inner in all_graphs(graph):
        yield from inner.initializer


def _write(path: Path, written: Mapping[str, StoredTensor]) -> dict[str, int]:
    """Write the tensors in sequence, each at a multiple of ALIGNMENT; return their offsets."""
    offsets, position = dict[str, int](), 0
    path.unlink(missing_ok=True)
    with path.open("wb") as file:
        for name, tensor in written.items():
            offsets[name] = position
            file.seek(position)
            np.ascontiguousarray(tensor.make()).tofile(file)
            position += -(-tensor.size // ALIGNMENT) * ALIGNMENT
    return offsets


def _external(name: str, tensor: StoredTensor, location: str, offset: int) -> TensorProto:
    proto = TensorProto(name=name, data_type=tensor.element, dims=tensor.shape)
    proto.data_location = TensorProto.EXTERNAL
    entries = {"location": location, "offset": str(offset), "length": str(tensor.size)}
    for key, value in entries.items():
        proto.external_data.append(onnx.StringStringEntryProto(key=key, value=value))
    return proto


def _linked(engine: Path, folder: Path) -> dict[str, TensorProto]:
    """Link the engine's data file into `folder`; return its tensors, or none if it cannot be linked."""
    try:
        os.link(engine / DATA, folder / DATA)
    except OSError:
        return {}
    model = onnx.ModelProto.FromString((engine / MODEL).read_bytes())
    return {tensor.name: tensor for tensor in _tensors(model.graph) if tensor.data_location == TensorProto.EXTERNAL}


def _same(stored: TensorProto | None, tensor: StoredTensor) -> bool:
    """Whether a stored tensor has the same bytes; float32 may be stored in another shape."""
    if stored is None or stored.data_type != tensor.element:
        return False
    return tuple(stored.dims) == tensor.shape or (
        tensor.element == TensorProto.FLOAT and prod(stored.dims) == prod(tensor.shape)
    )


def _shaped(stored: TensorProto, tensor: StoredTensor) -> TensorProto:
    """The stored tensor in the new shape."""
    proto = TensorProto()
    proto.CopyFrom(stored)
    proto.dims[:] = tensor.shape
    return proto


def _read(tensor: TensorProto, folder: Path) -> NDArray[Any]:
    """The array of a tensor from an untrusted file. Raises: ValueError if it is invalid."""
    if tensor.data_type not in set(Element) or any(size < 0 for size in tensor.dims):
        raise ValueError(f"{tensor.name} has type {tensor.data_type}, which is not a type of parameters")
    element = Element(tensor.data_type)
    size = size_in_bytes(element, tensor.dims)
    external = tensor.data_location == TensorProto.EXTERNAL
    if not external and len(tensor.raw_data) != size:
        raise ValueError(f"{tensor.name} has {len(tensor.raw_data)} bytes, not {size}")
    flat = _mapped(tensor, folder, size) if external else np.frombuffer(tensor.raw_data, np.uint8)
    return from_bytes(element, flat, tuple(tensor.dims))


def _mapped(tensor: TensorProto, folder: Path, size: int) -> NDArray[np.uint8]:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    offset, length = int(entries.get("offset", 0)), int(entries.get("length", size))
    path = folder / DATA
    if entries.get("location") != DATA or length != size or offset < 0 or offset + size > path.stat().st_size:
        raise ValueError(f"{tensor.name} is outside {DATA}")
    return np.memmap(path, np.uint8, "r", offset, (size,))
