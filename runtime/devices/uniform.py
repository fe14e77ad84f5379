"""Draws the random numbers of sampling in the runtime, with SplitMix64 as defined in docs/search.md.

Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (2014), figure 17 with the
finaliser of Stafford's variant 13.
"""

import numpy as np
from numpy.typing import NDArray

_WEYL = np.uint64(0x9E3779B97F4A7C15)
_ROUNDS = ((np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB)))
_LAST_SHIFT, _DROPPED = np.uint64(31), np.uint64(40)


def uniform_numbers(seeds: NDArray[np.int64], count: int) -> NDArray[np.float32]:
    """Return float32 [batch, count] in [0, 1): for each seed [batch], the numbers of positions 1 to `count`."""
    streams = _mixed(seeds.astype(np.uint64) + _WEYL)
    places = np.arange(1, count + 1, dtype=np.uint64) * _WEYL
    bits = _mixed(streams[:, None] + places) >> _DROPPED
    return bits.astype(np.float32) * np.float32(2.0**-24)


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    for shift, multiplier in _ROUNDS:
        values = (values ^ (values >> shift)) * multiplier
    return values ^ (values >> _LAST_SHIFT)
