"""How a parameter stands in a model's file: its tensors, and the layout that stores and restores them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xformc.compiler.quantize.elements import Element, size_in_bytes

Floats = NDArray[np.float32]
Matrix = Callable[[], Floats]
"""A matrix [new, width], which is made when it is written."""

SCALE, INPUT_SCALE = ".scale", ".input_scale"
"""What is put behind a parameter's path; a path has no dot."""


@dataclass(frozen=True)
class StoredTensor:
    """One tensor of a file: the type of its elements, its shape, and its bytes as they stand there."""

    element: Element
    shape: tuple[int, ...]
    make: Callable[[], NDArray[Any]]

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return size_in_bytes(self.element, self.shape)


Restore = Callable[[NDArray[Any], NDArray[Any] | None, int], NDArray[Any] | None]
"""Of (numbers, scale or None, count): `count` numbers in the order of the matrix, or None where the shapes are of no
such matrix."""


@dataclass(frozen=True)
class Layout:
    """One way to store the matrices of a number format.

    suffix: what is put behind the path of a parameter to name its numbers. element: their type; the two together tell
    a reader the format, so no other layout has both. store: the tensors of a matrix [new, width] by suffix, its numbers
    first, then its scale. restore: None of a layout that is only ever beside another.
    """

    suffix: str
    element: Element
    store: Callable[[Matrix, int, int], dict[str, StoredTensor]]
    restore: Restore | None = None

    def tensors(self, path: str, matrix: Matrix, new: int, width: int) -> dict[str, StoredTensor]:
        """The tensors of a parameter by their names."""
        return {path + suffix: tensor for suffix, tensor in self.store(matrix, new, width).items()}


def plain(array: Matrix, shape: tuple[int, ...]) -> StoredTensor:
    """float32, in this shape."""
    return StoredTensor(Element.FLOAT, shape, array)


def input_scale(path: str, value: float) -> dict[str, StoredTensor]:
    """The tensor of the scale by which products with this parameter round what they are given."""
    return {path + INPUT_SCALE: plain(lambda: np.array(value, np.float32), ())}


def short_scales(scale: NDArray[Any]) -> Floats:
    """The scales to 16 bits, 1 where there is nothing to scale.

    A number of 8 bits times such a scale is exact in float32, so rounding what was restored changes nothing.
    """
    mantissa, exponent = np.frexp(scale.astype(np.float32))
    short = np.ldexp(np.rint(mantissa * np.float32(2**_SCALE_BITS)), exponent - _SCALE_BITS).astype(np.float32)
    return np.where(short == 0, np.float32(1), short)


_SCALE_BITS = 16
