"""An engine's session: arrays in, arrays out, whatever computes them; and opening a model in ONNX Runtime."""

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from xformc.errors import UserError
from xformc.format.targets import TRAITS, Target
from xformc.runtime.library import library_for
from xformc.runtime.onnx_runtime import onnx_runtime

MAX_THREADS = 1024
_FATAL_ONLY = 4

Arrays = Mapping[str, NDArray[Any]]
"""Arrays by the name of the input or output that they are."""


class Executor(Protocol):
    """What computes an engine's results: the whole model at once, or its steps on a device. Threads may share it."""

    def run(self, feeds: Arrays, options: Any) -> Sequence[NDArray[Any]]:
        """The results in the order of the interface; it ends soon once `options.terminate`, of RunOptions, is set."""
        ...


class Session:
    """A loaded engine. It may be used from several threads at once.

    It is made for so many `workers`, callers that run it at the same time.
    """

    def __init__(self, make: Callable[[int], Executor], outputs: Sequence[str], place: str, workers: int = 1) -> None:
        """`make` an executor for a number of workers; `place` is the folder, for messages."""
        self._make, self._outputs, self._place = make, outputs, place
        self.workers = workers
        self._options: Any = onnx_runtime().RunOptions()
        self._others: dict[int, Session] = {}
        self._opening = threading.Lock()
        try:
            self._executor = make(workers)
        except UserError:
            raise
        except Exception as error:
            raise self._failure("cannot be loaded", error) from error

    def shared_by(self, workers: int) -> "Session":
        """A session of the same engine for so many workers: this one, or another, which is opened once and kept."""
        if workers == self.workers:
            return self
        with self._opening:
            if workers not in self._others:
                self._others[workers] = Session(self._make, self._outputs, self._place, workers)
            return self._others[workers]

    def stoppable(self) -> "Session":
        """This session, for calls that its `stop` ends before they are done."""
        same = copy(self)
        same._options = onnx_runtime().RunOptions()
        return same

    def stop(self) -> None:
        """End the calls of this `stoppable` session that are running: each raises UserError."""
        self._options.terminate = True

    def run(self, feeds: Arrays) -> list[NDArray[Any]]:
        """The outputs, in the order of the interface, for inputs by name; one that has a default may be left out.

        Raises: UserError if what computes them refuses or fails, or if an output is not a number.
        """
        try:
            results = list(self._executor.run(feeds, self._options))
        except UserError:
            raise
        except Exception as error:
            raise self._failure("failed on this input", error) from error
        for name, result in zip(self._outputs, results, strict=True):
            if bool(np.isnan(result).any()):
                raise UserError(
                    f"the {name} are not numbers (NaN)",
                    place=self._place,
                    hint="the weights are at fault: check them with `xformc verify ENGINE`",
                )
        return results

    def _failure(self, what: str, error: Exception) -> UserError:
        first_line = (str(error).splitlines() or [type(error).__name__])[0][:300]
        return UserError(f"the model {what}: {first_line}", place=self._place, hint=REBUILD)


def open_model(
    path: Path,
    threads: int | None = None,
    target: Target = "portable",
    *,
    sizes: Mapping[str, int] | None = None,
    providers: Sequence[Any] = ("CPUExecutionProvider",),
) -> Any:
    """An ONNX Runtime session of the model at `path`, silent unless it fails; on the processor if nothing else is said.

    `threads` is None for one on each core that the process may use. With the `target` native the session knows
    xformc's operators. Axes of the inputs in `sizes` have the size that it says, and what follows from them is
    computed once, here.

    Raises: UserError for wrong `threads`, or if the library of kernels is needed and cannot be used; ONNX Runtime's own
    errors for a model that it refuses.
    """
    options: Any = onnx_runtime().SessionOptions()
    options.intra_op_num_threads = thread_count(threads)
    options.inter_op_num_threads = 1
    options.log_severity_level = _FATAL_ONLY
    options.enable_mem_pattern = False  # a step's shapes come once; planning memory for each costs more than it saves
    options.add_session_config_entry("session.disable_quant_qdq", "1")  # what a model restores, it multiplies so
    if TRAITS[target].kernels:
        options.register_custom_ops_library(str(library_for(str(path)).path))
    for axis, size in (sizes or {}).items():
        options.add_free_dimension_override_by_name(axis, size)
    return onnx_runtime().InferenceSession(str(path), options, providers=list(providers))


def thread_count(threads: int | None) -> int:
    """The number of threads: those given, or one for each core that the process may use.

    Raises: UserError for a number out of range.
    """
    if threads is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if type(threads) is not int or not 1 <= threads <= MAX_THREADS:
        raise UserError(f"threads must be an integer from 1 to {MAX_THREADS}, not {threads!r}")
    return threads


REBUILD = "copy the engine again, or rebuild it with `xformc build`"
