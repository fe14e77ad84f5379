"""What a call expects of a model's outputs: others wrote the model, so nothing is indexed before it is checked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from xformc.errors import UserError


@dataclass(frozen=True)
class Expected:
    """An output that a call needs.

    shape: the size of each axis; a range for an axis of any size in it.
    below: of integers, which are never negative: the first number that is too large, or None.
    """

    dtype: type[np.generic]
    shape: tuple[int | range, ...]
    below: int | None = None

    def __str__(self) -> str:
        sizes = (str(size) if isinstance(size, int) else f"at most {size[-1]}" for size in self.shape)
        return f"{np.dtype(self.dtype)} [{', '.join(sizes)}]"

    def fits(self, array: NDArray[Any]) -> bool:
        """Whether the type and the axes are those expected."""
        same_axes = array.dtype == self.dtype and array.ndim == len(self.shape)
        return same_axes and all(map(_is_size, array.shape, self.shape))


def _is_size(found: int, wanted: int | range) -> bool:
    return found == wanted or (isinstance(wanted, range) and found in wanted)


def up_to(most: int) -> range:
    """Return the sizes of an axis that has at most this size."""
    return range(max(0, most) + 1)


def check_results(results: Mapping[str, Any], expected: Sequence[Expected], place: str) -> None:
    """Check results by name; `expected` lists them in order, or is empty if nothing is known of them.

    Raises: UserError at `place` for another type or shape, an integer out of range, or NaN.
    """
    arrays = {name: cast("NDArray[Any]", found) for name, found in results.items() if isinstance(found, np.ndarray)}
    for (name, result), wanted in zip(results.items(), expected, strict=bool(expected)):
        array = arrays.get(name)
        if array is None or not wanted.fits(array):
            found = type(result).__name__ if array is None else f"{array.dtype} {list(array.shape)}"
            raise UserError(f"the output {name} is {found}; this call needs {wanted}", place=place, hint=REBUILD)
        if array.dtype.kind == "i" and array.size:
            least, largest = int(array.min()), int(array.max())
            if least < 0 or (wanted.below is not None and largest >= wanted.below):
                wrong, end = least if least < 0 else largest, "" if wanted.below is None else f" to {wanted.below - 1}"
                raise UserError(f"the output {name} has {wrong}, not from 0{end}", place=place, hint=REBUILD)
    for name, array in arrays.items():
        if array.dtype.kind == "f" and bool(np.isnan(array).any()):
            raise UserError(
                f"the output {name} has NaN",
                place=place,
                hint="the weights are the likely cause: check the engine with `xformc verify ENGINE`",
            )


REBUILD = "copy the engine again, or rebuild it with `xformc build`"
