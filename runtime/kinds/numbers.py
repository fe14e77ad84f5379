"""Numbers: float32, of an example or of each of its positions."""

import numpy as np
from numpy.typing import NDArray

from xformc.format.results import Result
from xformc.runtime.kinds.kind import Arrays, ResultKind, register, rounded

Array = NDArray[np.float32]


class Numbers(ResultKind):
    """float32 [positions, size], without the axes that the result lacks."""

    name = "numbers"

    def value(self, result: Result, arrays: Arrays) -> Array:
        """See `ResultKind`."""
        return arrays[0]

    def nothing(self, result: Result) -> Array:
        """See `ResultKind`."""
        return np.zeros((0, *result.axes.values()), np.float32)

    def line(self, value: Array) -> str:
        """See `ResultKind`."""
        rows = value[None] if value.ndim == 0 else value
        return " ".join(",".join(f"{one:.6g}" for one in np.atleast_1d(row)) for row in rows)

    def fields(self, result: Result, value: Array) -> dict[str, object]:
        """See `ResultKind`."""
        return {"numbers": rounded(result, value)}


register(Numbers())
