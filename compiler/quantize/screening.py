"""A vocabulary's weights in 16-bit integers, precise enough to rule out most logits (docs/kernels.md)."""

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from xformc.compiler.quantize.elements import Element
from xformc.compiler.quantize.layouts import PANEL
from xformc.compiler.quantize.stored import Floats, Layout, Matrix, StoredTensor

PAIR = 2
"""The number of adjacent elements of a row that panels of 16-bit integers keep together."""

_MOST, _NORM = 32767, 46000
"""The largest integer, and the largest norm of a row before rounding; dot products of two rows then fit in 32 bits."""

_ROWS = 1024
"""The number of rows quantized at once, to limit memory."""


@dataclass(frozen=True)
class Screen:
    """A matrix [new, width] quantized as `words * scale[:, None]`, and its error.

    panels: int16 [ceil(new / 32), ceil(width / 2), 32, 2]; scale: [new]; largest [2]: the largest norm of a row of
    `matrix - words * scale[:, None]` and of a row of the matrix, both rounded up.
    """

    panels: NDArray[np.int16]
    scale: Floats
    largest: Floats


def screen(matrix: Floats) -> Screen:
    """Quantize each row with the smallest scale that keeps its numbers in 16 bits and its norm below `_NORM`.

    A row with numbers that are not finite becomes 0, with an infinite error.
    """
    new, width = matrix.shape
    count, pairs = -(-new // PANEL), -(-width // PAIR)
    padded = np.zeros((count * PANEL, pairs * PAIR), np.int16)
    scale = np.zeros(new, np.float32)
    error = norm = 0.0
    for first in range(0, new, _ROWS):
        rows = matrix[first : first + _ROWS].astype(np.float64)
        if not np.isfinite(rows).all():
            error = np.inf
            rows[~np.isfinite(rows).all(1)] = 0
        norms = np.linalg.norm(rows, axis=1)
        steps = np.maximum(np.abs(rows).max(1, initial=0) / _MOST, norms / _NORM).astype(np.float32)
        words = np.clip(np.rint(rows / np.where(steps > 0, steps, 1)[:, None]), -_MOST, _MOST)
        off = np.linalg.norm(rows - words * steps[:, None].astype(np.float64), axis=1)
        error, norm = max(error, float(off.max(initial=0))), max(norm, float(norms.max(initial=0)))
        padded[first : first + len(rows), :width] = words
        scale[first : first + len(rows)] = steps
    panels = padded.reshape(count, PANEL, pairs, PAIR).transpose(0, 2, 1, 3)
    largest = np.nextafter(np.array([error, norm], np.float32), np.float32(np.inf))
    return Screen(np.ascontiguousarray(panels), scale, largest)


def _store(matrix: Matrix, new: int, width: int) -> dict[str, StoredTensor]:
    made = cache(lambda: screen(matrix()))
    panels = (-(-new // PANEL), -(-width // PAIR), PANEL, PAIR)
    return {
        ".screen": StoredTensor(Element.INT16, panels, lambda: made().panels),
        ".screen_scale": StoredTensor(Element.FLOAT, (new,), lambda: made().scale),
        ".screen_largest": StoredTensor(Element.FLOAT, (2,), lambda: made().largest),
    }


SCREEN = Layout(".screen", Element.INT16, _store)
"""The additional input of ScreenCandidates, next to a float32 matrix."""
