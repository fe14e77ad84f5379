"""One ONNX Runtime session over an engine's model: arrays in, arrays out."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from xformc.errors import UserError
from xformc.runtime.library import library_for
from xformc.runtime.manifest import MODEL_NAME, Target

MAX_THREADS = 1024
_FATAL_ONLY = 4


@dataclass(frozen=True)
class Interface:
    """The names of a model's inputs, those with defaults included, and of its outputs."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


class Session:
    """The loaded model. It may be used from several threads at once."""

    def __init__(
        self, directory: Path, threads: int | None, interface: Interface, *, target: Target = "portable"
    ) -> None:
        path = directory / MODEL_NAME
        self._place = str(path)
        self._interface = interface
        try:
            self._session = open_model(path, threads, target)
        except UserError:
            raise
        except Exception as error:
            raise self._failure("cannot be loaded", error) from error
        self._check_interface()

    def run(self, feeds: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """The outputs, in the order of the interface, for inputs by name; one that has a default may be left out.

        Raises: UserError if ONNX Runtime refuses or fails, or if an output is not a number.
        """
        try:
            results: list[NDArray[Any]] = self._session.run(list(self._interface.outputs), dict(feeds))
        except Exception as error:
            raise self._failure("failed on this input", error) from error
        for name, result in zip(self._interface.outputs, results, strict=True):
            if bool(np.isnan(result).any()):
                raise UserError(
                    f"the {name} are not numbers (NaN)",
                    place=self._place,
                    hint="the weights are at fault: check them with `xformc verify ENGINE`",
                )
        return results

    def _check_interface(self) -> None:
        optional = {value.name for value in self._session.get_overridable_initializers()}
        inputs = {value.name for value in self._session.get_inputs()}
        outputs = {value.name for value in self._session.get_outputs()}
        missing = [name for name in self._interface.inputs if name not in inputs | optional]
        missing += [name for name in self._interface.outputs if name not in outputs]
        strange = sorted(inputs - set(self._interface.inputs))
        if missing or strange:
            problem = [f"it lacks {', '.join(missing)}"] * bool(missing)
            problem += [f"it needs {', '.join(strange)}"] * bool(strange)
            raise UserError(f"not an xformc model: {' and '.join(problem)}", place=self._place, hint=_REBUILD)

    def _failure(self, what: str, error: Exception) -> UserError:
        first_line = (str(error).splitlines() or [type(error).__name__])[0][:300]
        return UserError(f"the model {what}: {first_line}", place=self._place, hint=_REBUILD)


def open_model(path: Path, threads: int | None = None, target: Target = "portable") -> Any:
    """An ONNX Runtime session of the model at `path` on the processor, silent unless it fails.

    `threads` is None for one on each core that the process may use. With the `target` native the session knows
    xformc's operators.

    Raises: UserError for wrong `threads`, or if the library of kernels is needed and cannot be used; ONNX Runtime's own
    errors for a model that it refuses.
    """
    options: Any = cast(Any, onnxruntime).SessionOptions()
    options.intra_op_num_threads = _thread_count(threads)
    options.inter_op_num_threads = 1
    options.log_severity_level = _FATAL_ONLY
    if target == "native":
        options.register_custom_ops_library(str(library_for(str(path)).path))
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _thread_count(threads: int | None) -> int:
    if threads is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if type(threads) is not int or not 1 <= threads <= MAX_THREADS:
        raise UserError(f"threads must be an integer from 1 to {MAX_THREADS}, not {threads!r}")
    return threads


_REBUILD = "copy the engine again, or rebuild it with `xformc build`"
