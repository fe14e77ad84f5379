"""Parameters in model files: their tensors, and the layouts that store and restore them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xformc.compiler.quantize.elements import Element, size_in_bytes

Floats = NDArray[np.float32]
Matrix = Callable[[], Floats]
"""Makes a matrix [new, width] when it is written."""

SCALE, INPUT_SCALE = ".scale", ".input_scale"
"""Suffixes after a parameter's path; a path has no dot."""


@dataclass(frozen=True)
class StoredTensor:
    """One tensor of a file: its element type, its shape, and its bytes as stored."""

    element: Element
    shape: tuple[int, ...]
    make: Callable[[], NDArray[Any]]

    @property
    def size(self) -> int:
        """The size in bytes."""
        return size_in_bytes(self.element, self.shape)


Restore = Callable[..., NDArray[Any] | None]
"""Takes the values, the tensors `beside` them (None if missing) and a count; returns `count` numbers in the order of
the matrix, or None if the shapes do not match."""


@dataclass(frozen=True)
class Layout:
    """One way to store the matrices of a number format.

    suffix: appended to a parameter's path to name its values. element: their type; suffix and element together identify
    the format, so no two layouts share both. store: the tensors of a matrix [new, width] by suffix, the values first,
    then those beside them. restore: the inverse. beside: the suffixes of the other tensors that it takes.
    """

    suffix: str
    element: Element
    store: Callable[[Matrix, int, int], dict[str, StoredTensor]]
    restore: Restore
    beside: tuple[str, ...] = (SCALE,)

    def tensors(self, path: str, matrix: Matrix, new: int, width: int) -> dict[str, StoredTensor]:
        """The tensors of a parameter by name."""
        return {path + suffix: tensor for suffix, tensor in self.store(matrix, new, width).items()}


def plain(array: Matrix, shape: tuple[int, ...]) -> StoredTensor:
    """float32, in this shape."""
    return StoredTensor(Element.FLOAT, shape, array)


def input_scale(path: str, value: float) -> dict[str, StoredTensor]:
    """The tensor of the input scale of matrix products with this parameter."""
    return {path + INPUT_SCALE: plain(lambda: np.array(value, np.float32), ())}


def short_scales(scale: NDArray[Any]) -> Floats:
    """Round scales to 16 bits, and 0 to 1.

    An 8-bit number times such a scale is exact in float32, so quantizing dequantized values changes nothing.
    """
    mantissa, exponent = np.frexp(scale.astype(np.float32))
    short = np.ldexp(np.rint(mantissa * np.float32(2**_SCALE_BITS)), exponent - _SCALE_BITS).astype(np.float32)
    return np.where(short == 0, np.float32(1), short)


_SCALE_BITS = 16
