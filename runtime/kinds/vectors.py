"""Vectors: float32, of an example or of each of its positions."""

import numpy as np
from numpy.typing import NDArray

from xformc.format.results import Result
from xformc.runtime.kinds.kind import Arrays, ResultKind, register, rounded

Array = NDArray[np.float32]


class Vectors(ResultKind):
    """float32 [size], or [positions, size]."""

    name = "vectors"

    def value(self, result: Result, arrays: Arrays) -> Array:
        """See `ResultKind`."""
        return arrays[0]

    def nothing(self, result: Result) -> Array:
        """See `ResultKind`."""
        return np.zeros((0, *result.axes.values()), np.float32)

    def line(self, value: Array) -> str:
        """See `ResultKind`."""
        rows = value[None] if value.ndim == 1 else value
        return " ".join(",".join(f"{one:.6g}" for one in row) for row in rows)

    def fields(self, result: Result, value: Array) -> dict[str, object]:
        """See `ResultKind`."""
        return {"vector" if result.positions is None else "vectors": rounded(result, value)}


register(Vectors())
