"""ONNX Runtime as a device that drives searches: the processor, or a GPU through its CUDA provider."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from xformc.runtime.device import Buffer, DeviceName, Sizes
from xformc.runtime.manifest import PREPARE_NAME, STEP_NAME
from xformc.runtime.session import open_model

CUDA_PROVIDERS = (
    ("CUDAExecutionProvider", {"enable_cuda_graph": "1", "use_ep_level_unified_stream": "1"}),
    "CPUExecutionProvider",
)
"""One stream for all calls of a session, so that they need no wait between them; each call is a CUDA graph."""

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
"""ONNX's number of each type that a value of a search may have."""


class OnnxDevice:
    """A `Device` of the models prepare.onnx and step.onnx in a folder; see docs/runtime.md.

    Each pair of models is loaded for certain sizes, so that nothing about shapes is left to be computed in a step.
    """

    def __init__(self, directory: Path, name: DeviceName, threads: int | None = None) -> None:
        """`threads` are those of the processor."""
        self._directory, self._threads = directory, threads
        self._name: DeviceName = name
        self._providers = CUDA_PROVIDERS if name == "cuda" else ("CPUExecutionProvider",)
        self.largest: Sizes = {}

    def models(self, sizes: Sizes) -> tuple["OnnxModel", "OnnxModel"]:
        """See `Device`."""
        return self._model(PREPARE_NAME, sizes), self._model(STEP_NAME, sizes)

    def _model(self, name: str, sizes: Sizes) -> "OnnxModel":
        path = self._directory / name
        session = open_model(path, self._threads, sizes=sizes, providers=self._providers)
        return OnnxModel(session, self._name, sizes)


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
        value = self._values[name]
        shape = [self._sizes.get(size, size) for size in value.shape]
        return OnnxBuffer(shape, ELEMENTS[value.type], self._device)

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
    """A `Call` of a session with its bindings; `number` tells it from others of the same session."""

    def __init__(self, session: Any, binding: Any, number: int) -> None:
        self._session, self._binding = session, binding
        self._options: Any = cast(Any, onnxruntime).RunOptions()
        self._options.add_run_config_entry("gpu_graph_id", str(number))
        self._options.add_run_config_entry("disable_synchronize_execution_providers", "1")

    def start(self) -> None:
        """See `Call`."""
        self._session.run_with_iobinding(self._binding, self._options)

    def wait(self) -> None:
        """See `Call`."""
        self._binding.synchronize_outputs()


class OnnxBuffer:
    """A `Buffer` that is an OrtValue."""

    def __init__(self, shape: Sequence[int], element: int, device: DeviceName) -> None:
        self.value = cast(Any, onnxruntime).OrtValue.ortvalue_from_shape_and_type(shape, element, device, 0)

    def write(self, array: NDArray[Any]) -> None:
        """See `Buffer`."""
        self.value.update_inplace(np.ascontiguousarray(array))

    def read(self) -> NDArray[Any]:
        """See `Buffer`; the call that wrote it must have been waited for."""
        return self.value.numpy()
