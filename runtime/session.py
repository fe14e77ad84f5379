"""One ONNX Runtime session over an engine's model, and the low-level search that it runs."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from xformc.errors import UserError
from xformc.runtime.manifest import MODEL_NAME
from xformc.runtime.options import SearchOptions
from xformc.tokens import END

INPUTS = ("source", "beam_width", "n_best", "length_penalty", "max_length_factor", "max_length_offset")
OUTPUTS = ("tokens", "lengths", "scores")
MAX_THREADS = 1024
_FATAL_ONLY = 4


@dataclass(frozen=True)
class SearchResult:
    """What the search found for each row of the source, best first.

    tokens: [batch, n_best, length] int64, without the begin token, with the end token where one was
        generated, and 0 after it.
    lengths: [batch, n_best] int64, the number of tokens of each, the end token included.
    scores: [batch, n_best] float32, log probability / ((5 + length) / 6)^length_penalty; -inf where the
        search found fewer than n_best.
    """

    tokens: NDArray[np.int64]
    lengths: NDArray[np.int64]
    scores: NDArray[np.float32]


class Session:
    """The loaded model. It may be used from several threads at once."""

    def __init__(self, directory: Path, threads: int | None) -> None:
        self._place = str(directory / MODEL_NAME)
        options = cast(Any, onnxruntime).SessionOptions()
        options.intra_op_num_threads = _thread_count(threads)
        options.inter_op_num_threads = 1
        options.log_severity_level = _FATAL_ONLY
        try:
            session = onnxruntime.InferenceSession(self._place, options, providers=["CPUExecutionProvider"])
        except Exception as error:
            raise self._failure("cannot be loaded", error) from error
        self._session = cast(Any, session)
        self._check_interface()

    def run(self, source: NDArray[np.int64], options: SearchOptions, end: int = END) -> SearchResult:
        """Search for the translations of `source` [batch, source], padded with 0 at the end of each row.

        `end` is the token that ends a translation.

        Raises: UserError if ONNX Runtime refuses or fails.
        """
        if not len(source):
            return SearchResult(np.zeros((0, options.n_best, 0), np.int64), *_no_rows(options.n_best))
        feeds = {
            "source": source,
            "beam_width": np.array(options.beam_width, np.int64),
            "n_best": np.array(options.n_best, np.int64),
            "length_penalty": np.array(options.length_penalty, np.float32),
            "max_length_factor": np.array(options.max_length_factor, np.float32),
            "max_length_offset": np.array(options.max_length_offset, np.int64),
            **({} if end == END else {"end_token": np.array(end, np.int64)}),
        }
        try:
            tokens, lengths, scores = self._session.run(list(OUTPUTS), feeds)
        except Exception as error:
            raise self._failure("failed on this input", error) from error
        if bool(np.isnan(scores).any()):
            raise UserError(
                "the scores are not numbers (NaN)",
                place=self._place,
                hint="the weights are at fault: check them with `xformc verify ENGINE`",
            )
        return SearchResult(tokens, lengths, scores)

    def _check_interface(self) -> None:
        optional = {value.name for value in self._session.get_overridable_initializers()}
        inputs = {value.name for value in self._session.get_inputs()}
        outputs = {value.name for value in self._session.get_outputs()}
        missing = [name for name in INPUTS if name not in inputs | optional]
        missing += [name for name in OUTPUTS if name not in outputs]
        strange = sorted(inputs - set(INPUTS))
        if missing or strange:
            problem = [f"it lacks {', '.join(missing)}"] * bool(missing)
            problem += [f"it needs {', '.join(strange)}"] * bool(strange)
            raise UserError(f"not an xformc model: {' and '.join(problem)}", place=self._place, hint=_REBUILD)

    def _failure(self, what: str, error: Exception) -> UserError:
        first_line = (str(error).splitlines() or [type(error).__name__])[0][:300]
        return UserError(f"the model {what}: {first_line}", place=self._place, hint=_REBUILD)


def _no_rows(n_best: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    return np.zeros((0, n_best), np.int64), np.zeros((0, n_best), np.float32)


def check_source(source: NDArray[np.int64] | Sequence[Sequence[int]], vocabulary: int) -> NDArray[np.int64]:
    """The source ids as an int64 array [batch, source].

    Raises: UserError unless they are whole numbers of the vocabulary, with at least one token in each row and
    padding (0) only after it.
    """
    try:
        array = np.asarray(source)
    except ValueError as error:
        raise UserError("the source ids must have rows of one length", hint="pad the shorter rows with 0") from error
    if array.ndim != 2 or not np.issubdtype(array.dtype, np.integer):
        found = f"{array.dtype} of {list(array.shape)}"
        raise UserError(f"the source ids must be integers of shape [batch, source], not {found}")
    if array.shape[0] and (array.min() < 0 or array.max() >= vocabulary):
        raise UserError(f"the source ids must be from 0 to {vocabulary - 1}; one of them is not")
    filled = array != 0
    if array.shape[0] and (not filled.any(axis=1).all() or bool((filled[:, 1:] & ~filled[:, :-1]).any())):
        raise UserError("each row of source ids must be one or more tokens, then padding (0) only")
    return np.ascontiguousarray(array, np.int64)


def _thread_count(threads: int | None) -> int:
    if threads is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if type(threads) is not int or not 1 <= threads <= MAX_THREADS:
        raise UserError(f"threads must be an integer from 1 to {MAX_THREADS}, not {threads!r}")
    return threads


_REBUILD = "copy the engine again, or rebuild it with `xformc build`"
