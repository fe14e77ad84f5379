"""Rounding a matrix of weights [new, width] to a precision, and its layout in panels of 32 rows (docs/kernels.md).

Rounding what was restored gives the same numbers again: scales have 16 bits, so that a rounded number times its scale
is exact in float32.
"""

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

PANEL = 32
"""Rows of a panel."""

QUAD = 4
"""Neighbours of a row that int8 panels keep together."""

BLOCK = 32
"""Neighbours of a row that share one scale in int4."""

NIBBLES = (BLOCK // (2 * QUAD), PANEL, QUAD)
"""The shape of the bytes that 32 rows have for one block of int4: each byte has two numbers of one row."""

ZERO = {8: 128, 4: 8}
"""What stands for 0 in unsigned integers of so many bits."""

LARGEST_FLOAT8 = 448
"""The largest number of float8, here always E4M3 (Micikevicius et al. 2022, FP8 Formats for Deep Learning, table 1)."""

_SCALE_BITS = 16


def round_rows(matrix: Floats) -> tuple[NDArray[np.int8], Floats]:
    """int8, symmetric, a scale for each row: `matrix ~ q * scale[:, None]`, q in -127..127."""
    scale = _usable(np.abs(matrix).max(1, initial=0) / np.float32(127))
    rounded = np.clip(np.rint(matrix / scale[:, None]), -127, 127)
    return rounded.astype(np.int8), scale


def restore_rows(rounded: NDArray[np.int8], scale: Floats) -> Floats:
    """The numbers that `round_rows` stands for."""
    return rounded.astype(np.float32) * scale[:, None]


def round_blocks(matrix: Floats) -> tuple[NDArray[np.int8], Floats]:
    """int4, symmetric, a scale for each block of a row: q [new, blocks, BLOCK] in -8..7, scale [new, blocks].

    The number that is largest without its sign becomes -8, so a scale may be negative. The last block ends with zeros.
    """
    new, width = matrix.shape
    blocks = -(-width // BLOCK)
    parts = np.pad(matrix, ((0, 0), (0, blocks * BLOCK - width))).reshape(new, blocks, BLOCK)
    largest = np.take_along_axis(parts, np.abs(parts).argmax(2)[..., None], 2)[..., 0]
    scale = _usable(largest / np.float32(-8))
    rounded = np.clip(np.rint(parts / scale[..., None]), -8, 7)
    return rounded.astype(np.int8), scale


def restore_blocks(rounded: NDArray[np.int8], scale: Floats, width: int) -> Floats:
    """The numbers that `round_blocks` stands for: [new, width]."""
    return (rounded.astype(np.float32) * scale[..., None]).reshape(len(rounded), -1)[:, :width]


def pair(rounded: NDArray[np.int8]) -> NDArray[np.uint8]:
    """Two numbers of -8..7 a byte, as `q + 8`, the first in the lower half: [.., 2 n] -> [.., n]."""
    shifted = (rounded + ZERO[4]).astype(np.uint8)
    return np.bitwise_or(shifted[..., 0::2], shifted[..., 1::2] << 4, dtype=np.uint8)


def unpair(pairs: NDArray[np.uint8]) -> NDArray[np.int8]:
    """What `pair` put together."""
    halves = np.stack((pairs & 15, pairs >> 4), -1).reshape(*pairs.shape[:-1], -1)
    return halves.astype(np.int8) - np.int8(ZERO[4])


def to_float16(matrix: Floats) -> NDArray[np.float16]:
    """The nearest float16, ties to even."""
    return matrix.astype(np.float16)


def to_bfloat16(matrix: Floats) -> NDArray[np.uint16]:
    """The nearest bfloat16, ties to even, as the upper half of a float32's bits."""
    bits = np.ascontiguousarray(matrix, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bfloat16(halves: NDArray[np.uint16]) -> Floats:
    """The same numbers in float32."""
    return (halves.astype(np.uint32) << 16).view(np.float32)


def round_float8(matrix: Floats) -> tuple[NDArray[np.uint8], Floats]:
    """The bits of float8, one scale without axes for the whole: `matrix ~ numbers * scale`, ties to even."""
    scale = _usable(np.abs(matrix).max(initial=0) / np.float32(LARGEST_FLOAT8))
    scaled = np.clip(matrix / scale, -LARGEST_FLOAT8, LARGEST_FLOAT8)
    return scaled.astype(ml_dtypes.float8_e4m3fn).view(np.uint8), scale


def restore_float8(bits: NDArray[np.uint8], scale: Floats) -> Floats:
    """The numbers that `round_float8` stands for."""
    return np.ascontiguousarray(bits).view(ml_dtypes.float8_e4m3fn).astype(np.float32) * scale


def panels(matrix: NDArray[Any]) -> NDArray[Any]:
    """[new, width] -> [ceil(new / 32), width, 32], with zeros after the last row."""
    new, width = matrix.shape
    count = -(-new // PANEL)
    padded = np.pad(matrix, ((0, count * PANEL - new), (0, 0)))
    return np.ascontiguousarray(padded.reshape(count, PANEL, width).transpose(0, 2, 1))


def from_panels(stored: NDArray[Any], new: int) -> NDArray[Any]:
    """The matrix [new, width] of `panels`."""
    return stored.transpose(0, 2, 1).reshape(-1, stored.shape[1])[:new]


def byte_panels(rounded: NDArray[np.int8]) -> NDArray[np.uint8]:
    """int8 [new, width] -> uint8 [ceil(new / 32), ceil(width / 4), 32, 4] of `q + 128`, which stands for 0 outside."""
    new, width = rounded.shape
    count, quads = -(-new // PANEL), -(-width // QUAD)
    padded = np.pad(rounded, ((0, count * PANEL - new), (0, quads * QUAD - width))).view(np.uint8) ^ np.uint8(ZERO[8])
    return np.ascontiguousarray(padded.reshape(count, PANEL, quads, QUAD).transpose(0, 2, 1, 3))


def from_byte_panels(stored: NDArray[np.uint8], new: int, width: int) -> NDArray[np.int8]:
    """The matrix [new, width] of `byte_panels`."""
    flat = stored.transpose(0, 2, 1, 3).reshape(-1, stored.shape[1] * QUAD)[:new, :width]
    return np.ascontiguousarray(flat ^ np.uint8(ZERO[8])).view(np.int8)


def nibble_panels(rounded: NDArray[np.int8], scale: Floats) -> tuple[NDArray[np.uint8], Floats]:
    """int4 [new, blocks, 32] and its scale [new, blocks] in panels: uint8 [panels, blocks, 4, 32, 4], and float32
    [panels, blocks, 32], which is 0 after the last row.

    A byte has `q + 8` of two numbers that are four apart in their row, the first in the lower half.
    """
    new, blocks, _ = rounded.shape
    count = -(-new // PANEL)
    outside = ((0, count * PANEL - new), (0, 0))
    eights = np.pad(rounded, (*outside, (0, 0))).reshape(-1, blocks, NIBBLES[0], 2, QUAD)
    bytes_ = pair(np.ascontiguousarray(np.swapaxes(eights, -1, -2)))[..., 0]
    stored = bytes_.reshape(count, PANEL, blocks, NIBBLES[0], QUAD).transpose(0, 2, 3, 1, 4)
    scales = np.pad(scale, outside).reshape(count, PANEL, blocks).transpose(0, 2, 1)
    return np.ascontiguousarray(stored), np.ascontiguousarray(scales)


def from_nibble_panels(stored: NDArray[np.uint8], scale: Floats) -> tuple[NDArray[np.int8], Floats]:
    """What `nibble_panels` was given."""
    count, blocks = stored.shape[:2]
    new = int(np.count_nonzero(scale[:, :1]))
    halves = unpair(stored.transpose(0, 3, 1, 2, 4)[..., None])
    rounded = np.swapaxes(halves, -1, -2).reshape(count * PANEL, blocks, BLOCK)[:new]
    return rounded, scale.transpose(0, 2, 1).reshape(-1, blocks)[:new]


def _usable(scale: NDArray[Any]) -> Floats:
    """The scales to 16 bits; 1 where there is nothing to scale."""
    mantissa, exponent = np.frexp(scale.astype(np.float32))
    short = np.ldexp(np.rint(mantissa * np.float32(2**_SCALE_BITS)), exponent - _SCALE_BITS).astype(np.float32)
    return np.where(short == 0, np.float32(1), short)
