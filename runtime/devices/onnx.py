"""The `Device` of ONNX Runtime: the CPU, or a GPU through its CUDA provider."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from xformc.errors import UserError
from xformc.format.names import GO_ON, NEXT, PREPARE, STEP
from xformc.format.plans import KEYS, Profile
from xformc.runtime.devices.device import Buffer, DeviceName, Sizes
from xformc.runtime.devices.gpu import CUDA
from xformc.runtime.onnx_runtime import onnx_runtime
from xformc.runtime.results import REBUILD
from xformc.runtime.session import open_model

GRAPHS_REFUSED = "cannot use the graph capture feature"
"""Part of ONNX Runtime's error for a model that it cannot capture."""

PROCESSOR = ("CPUExecutionProvider",)
CUDA_GRAPHS = {"enable_cuda_graph": "1", "use_ep_level_unified_stream": "1"}
"""Options of the CUDA provider for steps: each call becomes a CUDA graph, and all share one stream."""

ELEMENTS = {
    "tensor(float)": 1,
    "tensor(uint8)": 2,
    "tensor(int8)": 3,
    "tensor(int32)": 6,
    "tensor(int64)": 7,
    "tensor(bool)": 9,
    "tensor(float16)": 10,
    "tensor(bfloat16)": 16,
}
"""ONNX's number for each type of a value in a search."""


class OnnxDevice:
    """A `Device` of the models prepare.onnx and step.onnx in a folder; see docs/runtime.md.

    Each pair of models is loaded for fixed sizes, so that a step computes no shapes.
    """

    def __init__(
        self, directory: Path, name: DeviceName, threads: int | None = None, *, in_place: bool = False
    ) -> None:
        """`threads` is the number of CPU threads. `in_place`: see `Device`; ONNX Runtime's ScatterElements copies
        nothing if its input and its output are the same memory.
        """
        self._directory, self._threads, self.in_place = directory, threads, in_place
        self._name: DeviceName = name
        self.profile: Profile = {}

    def models(self, sizes: Sizes) -> tuple["OnnxModel", "OnnxModel"]:
        """See `Device`. Raises: UserError if the models do not fit each other."""
        prepare, step = self._model(PREPARE, sizes, {}), self._step(sizes)
        made = {f"{name}{NEXT}" for name in prepare.outputs}
        strange = set(step.outputs) - made
        if strange != {GO_ON}:
            raise UserError(
                f"the models of the search do not fit each other: {', '.join(sorted(strange ^ {GO_ON}))}",
                place=str(self._directory / STEP),
                hint=REBUILD,
            )
        return prepare, step

    def _step(self, sizes: Sizes) -> "OnnxModel":
        """Load the step, with CUDA graphs if the GPU has a kernel for each of its nodes."""
        try:
            return self._model(STEP, sizes, CUDA_GRAPHS)
        except Exception as error:
            if GRAPHS_REFUSED not in str(error):
                raise
            logging.getLogger(__name__).warning("%s: no CUDA graphs, so it is slower: %s", self._directory, error)
            return self._model(STEP, sizes, {})

    def _model(self, name: str, sizes: Sizes, options: Mapping[str, str]) -> "OnnxModel":
        providers = PROCESSOR if self._name == "cpu" else cuda_providers(options)
        session = open_model(self._directory / name, self._threads, sizes=sizes, providers=providers)
        return OnnxModel(session, self._name, sizes)


def cuda_providers(options: Mapping[str, str]) -> tuple[Any, ...]:
    """Return ONNX Runtime's providers for a GPU, with these options of the CUDA provider.

    TF32, the provider's default for float32 matrix products, is off: certificates would miss their bounds.
    """
    return ((CUDA, {"use_tf32": "0", **options}), *PROCESSOR)


class OnnxModel:
    """A `Model` in an ONNX Runtime session."""

    def __init__(self, session: Any, device: DeviceName, sizes: Sizes) -> None:
        self._session, self._sizes, self._calls = session, sizes, 0
        self._device: DeviceName = device
        self._values = {value.name: value for value in (*session.get_inputs(), *session.get_outputs())}
        self.inputs: Sequence[str] = [value.name for value in session.get_inputs()]
        self.outputs: Sequence[str] = [value.name for value in session.get_outputs()]

    def buffer(self, name: str) -> "OnnxBuffer":
        """See `Model`."""
        return OnnxBuffer(self.shape(name), ELEMENTS[self._values[name].type], self._device)

    def shape(self, name: str) -> list[int]:
        """Return the shape of the input or output `name`."""
        return [size if isinstance(size, int) else self._size(size) for size in self._values[name].shape]

    def _size(self, axis: str) -> int:
        """The size of an axis that shape inference has left open; there are as many keys as positions."""
        return self._sizes[axis if axis in self._sizes else axis.removesuffix(KEYS)]

    def call(self, buffers: Mapping[str, Buffer]) -> "OnnxCall":
        """See `Model`."""
        binding = self._session.io_binding()
        for name in self.inputs:
            binding.bind_ortvalue_input(name, cast(OnnxBuffer, buffers[name]).value)
        for name in self.outputs:
            binding.bind_ortvalue_output(name, cast(OnnxBuffer, buffers[name]).value)
        self._calls += 1
        return OnnxCall(self._session, binding, self._calls)


class OnnxCall:
    """A `Call` of a session with its bindings; `number` is unique among the calls of the session."""

    def __init__(self, session: Any, binding: Any, number: int) -> None:
        self._session, self._binding = session, binding
        self._options: Any = onnx_runtime().RunOptions()
        self._options.add_run_config_entry("gpu_graph_id", str(number))
        self._options.add_run_config_entry("disable_synchronize_execution_providers", "1")  # `wait` does

    def start(self) -> None:
        """See `Call`."""
        self._session.run_with_iobinding(self._binding, self._options)

    def wait(self) -> None:
        """See `Call`."""
        self._binding.synchronize_outputs()


class OnnxBuffer:
    """A `Buffer` that is an OrtValue."""

    def __init__(self, shape: Sequence[int], element: int, device: DeviceName) -> None:
        self.value = onnx_runtime().OrtValue.ortvalue_from_shape_and_type(shape, element, device, 0)

    def write(self, array: NDArray[Any]) -> None:
        """See `Buffer`."""
        self.value.update_inplace(np.ascontiguousarray(array))

    def read(self) -> NDArray[Any]:
        """See `Buffer`; wait for the call that wrote it first."""
        return np.array(self.value.numpy())  # on the CPU, numpy() does not copy
