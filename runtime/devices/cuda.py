"""CUDA memory, streams and graph capture, through NVIDIA's Python bindings.

The bindings are the package cuda-bindings, which the extra `tensorrt` installs. Nothing else in xformc needs them.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Stream:
    """A CUDA stream, which runs its work in order."""

    def __init__(self) -> None:
        self._runtime: Any = import_module("cuda.bindings.runtime")
        self.handle = int(self.checked(self._runtime.cudaStreamCreateWithFlags(self._runtime.cudaStreamNonBlocking)))

    def allocate(self, size: int) -> int:
        """Allocate `size` bytes, at least 1, on the device and return their address."""
        return int(self.checked(self._runtime.cudaMalloc(max(1, size))))

    def free(self, address: int) -> None:
        """Free memory."""
        self._runtime.cudaFree(address)

    def upload(self, address: int, array: NDArray[Any]) -> None:
        """Copy an array to the device, and wait for it."""
        kind = self._runtime.cudaMemcpyKind.cudaMemcpyHostToDevice
        self._copy(address, array.ctypes.data, array.nbytes, kind)

    def download(self, array: NDArray[Any], address: int) -> None:
        """Copy an array from the device, and wait for it."""
        kind = self._runtime.cudaMemcpyKind.cudaMemcpyDeviceToHost
        self._copy(array.ctypes.data, address, array.nbytes, kind)

    def wait(self) -> None:
        """Return when everything on the stream is done."""
        self.checked(self._runtime.cudaStreamSynchronize(self.handle))

    def captured(self, enqueue: Callable[[], None]) -> Callable[[], None]:
        """Capture the work that `enqueue` puts on the stream as a CUDA graph; return a function that launches it."""
        runtime = self._runtime
        self.checked(
            runtime.cudaStreamBeginCapture(self.handle, runtime.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal)
        )
        try:
            enqueue()
        finally:
            graph = self.checked(runtime.cudaStreamEndCapture(self.handle))
        ready = self.checked(runtime.cudaGraphInstantiate(graph, 0))

        def launch() -> None:
            self.checked(runtime.cudaGraphLaunch(ready, self.handle))

        return launch

    def checked(self, answer: Any) -> Any:
        """Return the value of a call to the bindings. Raises: RuntimeError if the call failed."""
        error, *values = answer
        if int(error) != 0:
            _, text = self._runtime.cudaGetErrorString(error)
            raise RuntimeError(f"CUDA: {text.decode()}")
        return values[0] if values else None

    def _copy(self, target: int, source: int, size: int, kind: Any) -> None:
        self.checked(self._runtime.cudaMemcpyAsync(target, source, size, kind, self.handle))
        self.wait()


class CudaBuffer:
    """A `Buffer` in device memory. `dtype` is None for types that numpy lacks, whose values stay on the device."""

    def __init__(self, stream: Stream, shape: tuple[int, ...], dtype: Any, item_size: int) -> None:
        self._stream, self._shape, self._dtype = stream, shape, dtype
        self.address = stream.allocate(int(np.prod(shape)) * item_size)

    def write(self, array: NDArray[Any]) -> None:
        """See `Buffer`."""
        self._stream.upload(self.address, np.ascontiguousarray(array, self._dtype))

    def read(self) -> NDArray[Any]:
        """See `Buffer`."""
        array = np.empty(self._shape, self._dtype)
        self._stream.download(array, self.address)
        return array

    def __del__(self) -> None:
        if hasattr(self, "address"):
            self._stream.free(self.address)
