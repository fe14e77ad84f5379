"""The types of a tensor's elements: ONNX's numbers for them, their bits, and arrays from their bytes."""

from collections.abc import Sequence
from enum import IntEnum
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Element(IntEnum):
    """ONNX's number for each type that a parameter may be stored in."""

    FLOAT = 1
    UINT8 = 2
    INT8 = 3
    UINT16 = 4
    INT16 = 5
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
    Element.FLOAT16: (16, np.float16),
    Element.BFLOAT16: (16, np.uint16),
    Element.FLOAT8E4M3FN: (8, np.uint8),
    Element.INT4: (4, np.uint8),
}
"""The bits of an element, and numpy's type for it, or for its bits or bytes where numpy has none."""

ZERO = 8
"""What stands for 0 in an unsigned half of a byte."""

_SIGNS = np.uint8(0x88)
"""Turns `q + 8` of both halves of a byte into two's complement, and back."""


def size_in_bytes(element: Element, shape: Sequence[int]) -> int:
    """How many bytes a tensor has."""
    return (prod(shape) * _NUMPY[element][0] + 7) // 8


def from_bytes(element: Element, flat: NDArray[np.uint8], shape: tuple[int, ...]) -> NDArray[Any]:
    """The array of a tensor, from its bytes; 16-bit and 8-bit floats that numpy lacks stay bits, int4 becomes int8."""
    if element == Element.INT4:
        return unpair(flat ^ _SIGNS)[: prod(shape)].reshape(shape)
    return flat.view(_NUMPY[element][1]).reshape(shape)


def to_int4(flat: NDArray[np.int8]) -> NDArray[np.uint8]:
    """ONNX's int4: two numbers a byte, the first in the lower half, without a gap."""
    return pair(np.pad(flat, (0, flat.size % 2))) ^ _SIGNS


def pair(rounded: NDArray[np.int8]) -> NDArray[np.uint8]:
    """Two numbers of -8..7 a byte, as `q + 8`, the first in the lower half: [.., 2 n] -> [.., n]."""
    shifted = (rounded + ZERO).astype(np.uint8)
    return np.bitwise_or(shifted[..., 0::2], shifted[..., 1::2] << 4, dtype=np.uint8)


def unpair(pairs: NDArray[np.uint8]) -> NDArray[np.int8]:
    """What `pair` put together."""
    halves = np.stack((pairs & 15, pairs >> 4), -1).reshape(*pairs.shape[:-1], -1)
    return halves.astype(np.int8) - np.int8(ZERO)
