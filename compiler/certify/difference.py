"""The measure of differences: relative to the numbers of a row, of which none hides the others."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

DWARFING = 1e3
"""How many times the median of its row a number is that does not count as the largest."""


def difference(found: Any, expected: Any, least: float = 1.0) -> float:
    """The largest difference, relative to the largest number of the row if that is above `least`. Infinite if NaN.

    Numbers that dwarf their row, such as bans of tokens, are relative to themselves.
    """
    if found.shape != expected.shape or not (np.isfinite(found).all() and np.isfinite(expected).all()):
        return float("inf")
    if not expected.size:
        return 0.0
    rows = np.atleast_1d(expected)
    scales = np.maximum(np.maximum(largest(rows, least), np.abs(rows)), least)
    return float((np.abs(found - rows) / scales).max())


def apart(found: Any, expected: Any, size: float) -> float:
    """The largest difference of scores, relative to the score or to the largest logit, whichever is larger."""
    pairs = np.array(found, np.float64).reshape(-1, 1), np.array(expected, np.float64).reshape(-1, 1)
    return difference(*pairs, max(1.0, size))


def largest(rows: NDArray[Any], least: float = 1.0) -> NDArray[Any]:
    """The largest size of the numbers of each row, [.., 1], without those that dwarf it, and without -inf."""
    nothing = np.isneginf(rows)
    sizes = np.abs(np.where(nothing, 0.0, rows))
    if nothing.any():
        median = np.nanquantile(np.where(nothing, np.nan, sizes), 0.5, axis=-1, keepdims=True, method="higher")
    else:
        median = np.quantile(sizes, 0.5, axis=-1, keepdims=True, method="higher")
    return np.where(sizes > DWARFING * np.maximum(median, least), 0.0, sizes).max(-1, keepdims=True)
