"""Screened weights: float32 numbers in two parts of 16 bits, the first of which rules out most logits.

A number is `word * scale + rest * unit` (docs/kernels.md). The words alone are precise enough to bound each logit; with
the rests they are the numbers of the matrix.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xformc.compiler.quantize.elements import Element
from xformc.compiler.quantize.layouts import PAIR, PANEL, from_pairs, paired_shape, to_pairs
from xformc.compiler.quantize.stored import Floats, Layout, Matrix, StoredTensor
from xformc.errors import UserError

_MOST, _NORM = 32767, 46000
"""The largest integer, and the largest norm of a row before rounding; dot products of two rows then fit in 32 bits."""

_LOW_BITS, _EXPONENT = np.uint32(0xFFFF), np.uint32(0xFF800000)
"""Bits of float32: those that a scale does not have, and the exponent."""

_UNIT = np.float32(2**-15)

_ROWS = 1024
"""The number of rows quantized at once, to limit memory."""


@dataclass(frozen=True)
class Screened:
    """A matrix [new, width] as `words * scale[:, None] + rest * unit[:, None]`; the units are those of `unit_of`.

    panels: the words, int16 [ceil(new / 32), ceil(width / 2), 32, 2]; scale: [new], with 8 significant bits; rest:
    int16 [new, width]; largest [2]: the largest norm of a row of `matrix - words * scale[:, None]` and of a row of the
    matrix, both rounded up.
    """

    panels: NDArray[np.int16]
    scale: Floats
    rest: NDArray[np.int16]
    largest: Floats


def screen(matrix: Floats) -> Screened:
    """Quantize each row with about the smallest scale that keeps its words in 16 bits and its norm below `_NORM`.

    A word times its scale is exact in float32. So is the sum, for each number of at least 256 scales; a smaller one is
    off by half a unit at most.

    Raises: UserError for numbers that are not finite.
    """
    new, width = matrix.shape
    count, pairs, _, _ = paired_shape(new, width)
    padded = np.zeros((count * PANEL, pairs * PAIR), np.int16)
    rest = np.zeros((new, width), np.int16)
    scale = np.zeros(new, np.float32)
    error = norm = 0.0
    for first in range(0, new, _ROWS):
        rows = matrix[first : first + _ROWS].astype(np.float64)
        if not np.isfinite(rows).all():
            raise UserError("the weights of a vocabulary are not finite", hint="the training may have diverged")
        norms = np.linalg.norm(rows, axis=1)
        steps = _short(np.maximum(np.abs(rows).max(1, initial=0) / _MOST, norms / _NORM).astype(np.float32))
        words = np.clip(np.rint(_divided(rows, steps)), -_MOST, _MOST)
        left = rows - words * steps[:, None].astype(np.float64)
        last = first + len(rows)
        rest[first:last] = np.clip(np.rint(_divided(left, unit_of(steps))), -_MOST, _MOST)
        padded[first:last, :width] = words
        scale[first:last] = steps
        error = max(error, float(np.linalg.norm(left, axis=1).max(initial=0)))
        norm = max(norm, float(norms.max(initial=0)))
    largest = np.nextafter(np.array([error, norm], np.float32), np.float32(np.inf))
    return Screened(to_pairs(padded), scale, rest, largest)


def unscreen(panels: NDArray[np.int16], scale: Floats, rest: NDArray[np.int16]) -> Floats:
    """The matrix, as the kernels compute it."""
    new, width = rest.shape
    wide = from_pairs(panels)[:new, :width].astype(np.float32) * scale[:, None]
    wide += rest.astype(np.float32) * unit_of(scale)[:, None]
    return wide


def unit_of(scale: Floats) -> Floats:
    """The unit of a row's rest: 2^-15 times the power of two of its scale, or 0 without one."""
    return (scale.view(np.uint32) & _EXPONENT).view(np.float32) * _UNIT


def _short(scale: Floats) -> Floats:
    """Round up to 8 significant bits."""
    return ((scale.view(np.uint32) + _LOW_BITS) & ~_LOW_BITS).view(np.float32)


def _divided(rows: NDArray[np.float64], scale: Floats) -> NDArray[np.float64]:
    return rows / np.where(scale > 0, scale, 1)[:, None]


def _store(matrix: Matrix, new: int, width: int) -> dict[str, StoredTensor]:
    made = cache(lambda: screen(matrix()))
    return {
        ".screen": StoredTensor(Element.INT16, paired_shape(new, width), lambda: made().panels),
        _SCALE: StoredTensor(Element.FLOAT, (new,), lambda: made().scale),
        _REST: StoredTensor(Element.INT16, (new, width), lambda: made().rest),
        ".screen_largest": StoredTensor(Element.FLOAT, (2,), lambda: made().largest),
    }


def _restore(
    panels: NDArray[Any], scale: NDArray[Any] | None, rest: NDArray[Any] | None, count: int
) -> NDArray[Any] | None:
    if scale is None or rest is None or rest.ndim != 2 or scale.shape != rest.shape[:1]:
        return None
    new, width = rest.shape
    if panels.shape != paired_shape(new, width):
        return None
    return unscreen(panels, np.asarray(scale, np.float32), rest)


_SCALE, _REST = ".screen_scale", ".screen_rest"

SCREENED = Layout(".screen", Element.INT16, _store, _restore, beside=(_SCALE, _REST))
"""The words in panels, the scale, the rest and the largest errors; the first three are the matrix."""
