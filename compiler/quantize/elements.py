"""Element types of tensors: their ONNX numbers, their bits, and arrays from their bytes."""

from collections.abc import Sequence
from enum import IntEnum
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Element(IntEnum):
    """ONNX's number for each element type of stored parameters."""

    FLOAT = 1
    UINT8 = 2
    INT8 = 3
    UINT16 = 4
    INT16 = 5
    INT32 = 6
    FLOAT16 = 10
    BFLOAT16 = 16
    FLOAT8E4M3FN = 17
    INT4 = 22


_NUMPY: dict[Element, tuple[int, type[np.generic]]] = {
    Element.FLOAT: (32, np.float32),
    Element.UINT8: (8, np.uint8),
    Element.INT8: (8, np.int8),
    Element.UINT16: (16, np.uint16),
    Element.INT16: (16, np.int16),
    Element.INT32: (32, np.int32),
    Element.FLOAT16: (16, np.float16),
    Element.BFLOAT16: (16, np.uint16),
    Element.FLOAT8E4M3FN: (8, np.uint8),
    Element.INT4: (4, np.uint8),
}
"""The bits of an element, and numpy's type for it, or for its bits or bytes if numpy has none."""

ZERO = 8
"""The zero point of 4-bit numbers stored unsigned."""

_SIGNS = np.uint8(0x88)
"""Converts both halves of a byte from `q + 8` to two's complement, and back."""


def size_in_bytes(element: Element, shape: Sequence[int]) -> int:
    """The size of a tensor in bytes."""
    return (prod(shape) * _NUMPY[element][0] + 7) // 8


def from_bytes(element: Element, flat: NDArray[np.uint8], shape: tuple[int, ...]) -> NDArray[Any]:
    """A tensor's array from its bytes; floats that numpy lacks stay bits, int4 becomes int8."""
    if element == Element.INT4:
        return unpair(flat ^ _SIGNS)[: prod(shape)].reshape(shape)
    return flat.view(_NUMPY[element][1]).reshape(shape)


def to_int4(flat: NDArray[np.int8]) -> NDArray[np.uint8]:
    """ONNX's int4: two numbers per byte, the first in the lower half, without gaps."""
    return pair(np.pad(flat, (0, flat.size % 2))) ^ _SIGNS


def pair(rounded: NDArray[np.int8]) -> NDArray[np.uint8]:
    """Pack two numbers in -8..7 per byte, as `q + 8`, the first in the lower half: [.., 2 n] -> [.., n]."""
    shifted = (rounded + ZERO).astype(np.uint8)
    return np.bitwise_or(shifted[..., 0::2], shifted[..., 1::2] << 4, dtype=np.uint8)


def unpair(pairs: NDArray[np.uint8]) -> NDArray[np.int8]:
    """The inverse of `pair`."""
    halves = np.stack((pairs & 15, pairs >> 4), -1).reshape(*pairs.shape[:-1], -1)
    return halves.astype(np.int8) - np.int8(ZERO)
