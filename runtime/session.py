"""One ONNX Runtime session over an engine's model: arrays in, arrays out."""

import os
import threading
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from functools import partial
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
    """The loaded model. It may be used from several threads at once.

    It is made for so many `workers`, callers that run it at the same time: each is one of its
    `threads`, and the rest of these helps them all, so that no core has more than one thread.
    """

    def __init__(
        self,
        directory: Path,
        threads: int | None,
        interface: Interface,
        *,
        target: Target = "portable",
        workers: int = 1,
    ) -> None:
        path = directory / MODEL_NAME
        self._place = str(path)
        self._interface = interface
        self._threads = thread_count(threads)
        self.workers = workers
        self._options: Any = None
        self._others: dict[int, Session] = {}
        self._opening = threading.Lock()
        try:
            self._session = open_model(path, max(1, self._threads - workers + 1), target)
        except UserError:
            raise
        except Exception as error:
            raise self._failure("cannot be loaded", error) from error
        self._check_interface()
        self._again = partial(Session, directory, self._threads, interface, target=target)

    def shared_by(self, workers: int) -> "Session":
        """A session over the same model for so many workers: this one, or another, which is opened once and kept."""
        if workers == self.workers:
            return self
        with self._opening:
            if workers not in self._others:
                self._others[workers] = self._again(workers=workers)
            return self._others[workers]

    def stoppable(self) -> "Session":
        """This session, for calls that its `stop` ends before they are done."""
        same = copy(self)
        same._options = cast(Any, onnxruntime).RunOptions()
        return same

    def stop(self) -> None:
        """End the calls of this `stoppable` session that are running: each raises UserError."""
        self._options.terminate = True

    def run(self, feeds: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """The outputs, in the order of the interface, for inputs by name; one that has a default may be left out.

        Raises: UserError if ONNX Runtime refuses or fails, or if an output is not a number.
        """
        try:
            results: list[NDArray[Any]] = self._session.run(list(self._interface.outputs), dict(feeds), self._options)
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
    options.intra_op_num_threads = thread_count(threads)
    options.inter_op_num_threads = 1
    options.log_severity_level = _FATAL_ONLY
    options.enable_mem_pattern = False  # a step's shapes come once; planning memory for each costs more than it saves
    if target == "native":
        options.register_custom_ops_library(str(library_for(str(path)).path))
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def thread_count(threads: int | None) -> int:
    """The number of threads: those given, or one for each core that the process may use.

    Raises: UserError for a number out of range.
    """
    if threads is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if type(threads) is not int or not 1 <= threads <= MAX_THREADS:
        raise UserError(f"threads must be an integer from 1 to {MAX_THREADS}, not {threads!r}")
    return threads


_REBUILD = "copy the engine again, or rebuild it with `xformc build`"
