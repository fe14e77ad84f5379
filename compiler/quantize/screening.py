"""A vocabulary's weights in 16-bit integers, by which most of its logits are known well enough (docs/kernels.md)."""

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from xformc.compiler.quantize.elements import Element
from xformc.compiler.quantize.layouts import PANEL
from xformc.compiler.quantize.stored import Floats, Layout, Matrix, StoredTensor

PAIR = 2
"""Neighbours of a row that panels of 16-bit integers keep together."""

_MOST, _NORM = 32767, 46000
"""The largest integer, and the largest norm of a row of them before rounding: products of two rows fit 32 bits."""

_ROWS = 1024
"""So many rows are rounded at once, to bound memory."""


@dataclass(frozen=True)
class Screen:
    """A matrix [new, width] as `words * scale[:, None]`, and how far that is from it.

    panels: int16 [ceil(new / 32), ceil(width / 2), 32, 2]; scale: [new]; largest: the largest norm of a row of
    `matrix - words * scale[:, None]` and of one of the matrix itself, both rounded up; [2].
    """

    panels: NDArray[np.int16]
    scale: Floats
    largest: Floats


def screen(matrix: Floats) -> Screen:
    """Round each row by the least scale that keeps its numbers in 16 bits and its norm below `_NORM`.

    A row that has numbers that are not finite is 0, infinitely far off.
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
"""What ScreenCandidates takes beside a matrix in float32."""
