"""The models of a stream: their values stay in ONNX Runtime from one call to the next, and are never copied."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xformc.errors import UserError
from xformc.format.targets import Target
from xformc.runtime.onnx_runtime import onnx_runtime
from xformc.runtime.results import REBUILD
from xformc.runtime.session import open_model, ranks_of, thread_count, with_rows


class StatefulModel:
    """An `Executor` whose inputs may be values of ONNX Runtime, and whose outputs are: a dict of all of them by name.

    Native caches are written in place by later calls, which numpy arrays of them would not be. Inputs whose first axis
    is called `rows_before`, which have the states of the rows of the call before, may be left out if there were none;
    then their axis `beam` has the size `beam_size`.
    """

    def __init__(
        self,
        path: Path,
        needed: tuple[Sequence[str], Sequence[str]],
        workers: int = 1,
        *,
        threads: int | None = None,
        target: Target = "portable",
    ) -> None:
        """`needed` are the names of inputs and outputs that the model must have. Raises: UserError if it has not."""
        self._session = open_model(path, max(1, thread_count(threads) - workers + 1), target)
        self._ranks = ranks_of(self._session)
        defaults = [value.name for value in self._session.get_overridable_initializers()]
        self.inputs: list[str] = [*(value.name for value in self._session.get_inputs()), *defaults]
        self.metadata: dict[str, str] = self._session.get_modelmeta().custom_metadata_map
        states = [value for value in self._session.get_inputs() if value.shape[:1] == ["rows_before"]]
        self._before = {value.name: (value.type, value.shape) for value in states}
        self.outputs: list[str] = [value.name for value in self._session.get_outputs()]
        wanted, found = [*needed[0], *needed[1]], {*self.inputs, *self.outputs}
        missing = [name for name in wanted if name not in found]
        if missing:
            raise UserError(f"not an xformc model: it lacks {', '.join(missing)}", place=str(path), hint=REBUILD)

    def run(self, feeds: Mapping[str, Any], options: Any) -> Sequence[Any]:
        """Return the outputs; of the values that it is given, those that are no inputs are left out."""
        make = onnx_runtime().OrtValue.ortvalue_from_numpy
        sizes = {"beam": int(feeds["beam_size"])} if "beam_size" in feeds else {}
        none = {name: _empty(*one, sizes) for name, one in self._before.items() if name not in feeds}
        feeds = {**none, **feeds}
        given = with_rows({name: feeds[name] for name in self.inputs if name in feeds}, self._ranks)
        values = {name: make(one) if isinstance(one, np.ndarray) else one for name, one in given.items()}
        found = self._session.run_with_ort_values(self.outputs, values, options)
        return [dict(zip(self.outputs, found, strict=True))]


def _empty(type: str, shape: Sequence[int | str], sizes: Mapping[str, int]) -> NDArray[Any]:
    """An array of this type of ONNX Runtime, with no elements along axes that have no size, and none by their name."""
    return np.zeros([size if isinstance(size, int) else sizes.get(size, 0) for size in shape], _DTYPES[type])


_DTYPES = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(bool)": np.bool_}
