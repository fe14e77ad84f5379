"""The session of an engine, arrays in and arrays out, and the loading of models in ONNX Runtime."""

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from xformc.errors import UserError
from xformc.format.inputs import USUAL, Vocabularies
from xformc.format.targets import TRAITS, Target
from xformc.runtime.forks import keep_in_children
from xformc.runtime.library import library_for
from xformc.runtime.onnx_runtime import onnx_runtime
from xformc.runtime.results import REBUILD, Expected, check_results

logger = logging.getLogger(__name__)

MAX_THREADS = 1024
AGAIN = "load it again with xformc.load"
_FATAL_ONLY = 4

Arrays = Mapping[str, NDArray[Any]]
"""Arrays by input or output name."""


class Executor(Protocol):
    """Computes an engine's results: the whole model in one call, or its steps on a device. It must be thread-safe."""

    def run(self, feeds: Arrays, options: Any) -> Sequence[NDArray[Any]]:
        """Return the results in the order of the interface; stop early if `options.terminate` (RunOptions) is set."""
        ...


_NO_MEMORY = ("Failed to allocate memory", "bad_alloc", "bad allocation")
_LESS = "lower max_batch_tokens, or use a narrower beam"
_MORE = "give the process more memory: the limit may be that of `ulimit -v` or of a container"


class StoppedError(UserError):
    """A call ended early because its session was stopped."""


class Session:
    """A loaded engine, which is thread-safe.

    `workers` is the number of callers that run it at the same time. `of_text` is the session of the results that depend
    on the text that this one writes, if there are any, and `beside` gives those of the engine's other models. They are
    closed and stopped with this one. `vocabularies` are the special tokens of its inputs.
    """

    def __init__(
        self,
        make: Callable[[int], Executor],
        outputs: Sequence[str],
        place: str,
        workers: int = 1,
        of_text: "Session | None" = None,
        vocabularies: Vocabularies = USUAL,
        *,
        others: "Mapping[str, Callable[[int], Session]]" = MappingProxyType({}),
        require_unchanged: Callable[[], None] = lambda: None,
    ) -> None:
        """`make` returns an executor for a number of workers; `place` is the folder, for error messages. `others` opens
        the session of another model of the engine for a number of workers, by the model's file name.
        `require_unchanged` raises UserError if the folder has another engine than at first; it is called before a file
        is opened later."""
        self._make, self._outputs, self._place = make, outputs, place
        self.workers, self.of_text, self.vocabularies = workers, of_text, vocabularies
        self._options: Any = onnx_runtime().RunOptions()
        self._open_others, self._beside = others, dict[tuple[str, int], Session]()
        self._require_unchanged = require_unchanged
        self._shared: dict[int, Session] = {}
        self._opening, self._ended = threading.Lock(), threading.Event()
        try:
            self._executor = make(workers)
        except UserError:
            raise
        except Exception as error:
            raise self._failure("cannot be loaded", error, _MORE) from error

    def shared_by(self, workers: int) -> "Session":
        """Return a session of the same engine for this number of workers; each is opened once and kept."""
        if workers == self.workers:
            return self
        with self._opening:
            self.require_open()
            if workers not in self._shared:
                self._require_unchanged()
                of_text = None if self.of_text is None else self.of_text.shared_by(workers)
                made = (self._make, self._outputs, self._place, workers, of_text, self.vocabularies)
                self._shared[workers] = Session(
                    *made, others=self._open_others, require_unchanged=self._require_unchanged
                )
            return self._shared[workers]

    def beside(self, file: str) -> "Session | None":
        """Return the session of another model of the engine, opened once and kept; None without one."""
        if file not in self._open_others:
            return None
        with self._opening:
            self.require_open()
            key = file, self.workers
            if key not in self._beside:
                self._require_unchanged()
                self._beside[key] = self._open_others[file](self.workers)
            return self._beside[key]._twin(self._options)

    @property
    def metadata(self) -> Mapping[str, str]:
        """What the model says of itself, of a model that is run call by call (`StatefulModel`)."""
        return getattr(self._executor, "metadata", {})

    def close(self) -> None:
        """Free the model and its memory. The model finishes what it computes; later calls raise UserError."""
        with self._opening:
            self._ended.set()  # of the twins, too
            opened = [*self._shared.values(), *self._beside.values()]
            self._shared, self._make = {}, _Closed
            self._beside.clear()
            self._open_others = dict.fromkeys(self._open_others, _refuse)
        self._executor = _Closed()
        for session in (*opened, self.of_text):
            if session is not None:
                session.close()

    def stoppable(self) -> "Session":
        """Return this session with a `stop` of its own, which ends the calls made through it. Raises: UserError."""
        self.require_open()
        same = self._twin(onnx_runtime().RunOptions())
        if self.of_text is not None:
            same.of_text = self.of_text._twin(same._options)
        return same

    def require_open(self) -> None:
        """Raises: UserError if the session is closed, or the one that it is a `stoppable` one of."""
        if self._ended.is_set():
            _refuse(self.workers)

    def _twin(self, options: Any) -> "Session":
        """This session, but for the options of its calls."""
        same = object.__new__(Session)  # copy() takes as long as a small search
        same.__dict__.update(self.__dict__, _options=options)
        return same

    def stop(self) -> None:
        """End the running calls of this `stoppable` session: each raises StoppedError."""
        self._options.terminate = True

    def run(self, feeds: Arrays, expected: Sequence[Expected] = ()) -> list[NDArray[Any]]:
        """Return the outputs, in the order of the interface, for inputs by name; inputs with defaults may be left out.

        Raises: UserError if the computation fails, or if an output is not as `expected` or is NaN; StoppedError.
        """
        self.require_open()
        try:
            results = list(self._executor.run(feeds, self._options))
        except UserError:
            raise
        except Exception as error:
            if not self._options.terminate:
                raise self._failure("failed on this input", error) from error
            if not type(error).__module__.startswith("onnxruntime"):
                raise  # what the handler of a signal raised
            raise StoppedError("the call was stopped", place=self._place) from error
        check_results(dict(zip(self._outputs, results, strict=True)), expected, self._place)
        return results

    def _failure(self, what: str, error: Exception, less: str = _LESS) -> UserError:
        if isinstance(error, MemoryError) or any(part in str(error) for part in _NO_MEMORY):
            return UserError(f"the model {what}: out of memory", place=self._place, hint=less)
        first_line = (str(error).splitlines() or [type(error).__name__])[0][:300]
        return UserError(f"the model {what}: {first_line}", place=self._place, hint=REBUILD)


class _Closed:
    """The `Executor` of a closed session, for any number of workers."""

    def __init__(self, workers: int = 1) -> None:
        self.workers = workers

    def run(self, feeds: Arrays, options: Any) -> Sequence[NDArray[Any]]:
        """Refuse. Raises: UserError."""
        _refuse(self.workers)


def _refuse(_: int) -> NoReturn:
    raise UserError("the engine is closed", hint=AGAIN)


def open_model(
    path: Path,
    threads: int | None = None,
    target: Target = "portable",
    *,
    sizes: Mapping[str, int] | None = None,
    providers: Sequence[Any] = ("CPUExecutionProvider",),
) -> Any:
    """Open the model at `path` in ONNX Runtime, by default on the CPU. ONNX Runtime logs only fatal errors.

    threads: None for one thread on each core that the process may use.
    target: if it is native, xformc's kernels are loaded into the session.
    sizes: fixed sizes of input axes; computations that depend only on them are done once, here.

    Raises: UserError for invalid `threads`, or if the model needs the library of kernels and it cannot be used; ONNX
    Runtime's own errors for a model that it rejects.
    """
    options: Any = onnx_runtime().SessionOptions()
    options.intra_op_num_threads = thread_count(threads)
    options.inter_op_num_threads = 1
    options.log_severity_level = _FATAL_ONLY
    options.enable_mem_pattern = False  # the shapes of a step occur once: planning memory costs more than it saves
    # Threads that spin on after a call would keep the caller's from waking up for milliseconds.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    options.add_session_config_entry("session.disable_quant_qdq", "1")  # matrix products must use dequantized values
    if TRAITS[target].kernels:
        options.register_custom_ops_library(str(library_for(str(path)).path))
    for axis, size in (sizes or {}).items():
        options.add_free_dimension_override_by_name(axis, size)
    start = time.perf_counter()
    session = onnx_runtime().InferenceSession(str(path), options, providers=list(providers))
    seconds = time.perf_counter() - start
    keep_in_children(session)
    logger.debug("%s: opened in %.2f s for %d threads", path, seconds, options.intra_op_num_threads)
    return session


def ranks_of(session: Any) -> dict[str, int]:
    """Return the number of axes of each input with a default of an opened model, by name."""
    return {value.name: len(value.shape) for value in session.get_overridable_initializers()}


def with_rows(feeds: Mapping[str, Any], ranks: Mapping[str, int]) -> dict[str, Any]:
    """Return the inputs; one value of an option becomes a row for all texts, where the model takes a row for each."""
    rows = dict(feeds)
    for name, value in feeds.items():
        rank = ranks.get(name, 0)
        if rank > 0 and isinstance(value, np.ndarray) and value.ndim < rank:
            rows[name] = cast("NDArray[Any]", value)[(np.newaxis,) * (rank - value.ndim)]
    return rows


def thread_count(threads: int | None) -> int:
    """Return `threads`, or for None the number of cores that the process may use.

    Raises: UserError for a number out of range.
    """
    if threads is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if type(threads) is not int or not 1 <= threads <= MAX_THREADS:
        raise UserError(f"threads must be an integer from 1 to {MAX_THREADS}, not {threads!r}")
    return threads
