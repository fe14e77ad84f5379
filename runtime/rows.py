"""Rows, which are examples as arrays, and their padding into batches for a model."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xformc.format.inputs import Input

Array = NDArray[Any]
Row = Mapping[str, Array]
"""One example by input: tokens [positions], vectors [positions, size], values [..] or edges [positions, positions]."""


def row_lengths(inputs: Mapping[str, Input], row: Row) -> dict[str, int]:
    """Return the number of positions of each input that has positions of its own."""
    return {name: len(row[name]) for name, item in inputs.items() if item.is_sequence}


def stack(inputs: Mapping[str, Input], rows: Sequence[Row]) -> dict[str, Array]:
    """Return the model's inputs for one or more rows: the batch first, shorter rows padded at the end.

    Tokens are padded with their padding token, the others with 0.

    Vectors have a second input, `NAME_mask`, which is false for padding.
    """
    feeds: dict[str, Array] = {}
    for name, item in inputs.items():
        arrays = [row[name] for row in rows]
        if item.kind == "values":
            feeds[name] = np.stack(arrays).astype(np.float32)
            continue
        feeds[name] = _padded(arrays, item.kind, item.special.fill)
        if item.kind == "vectors" and item.is_sequence:
            lengths = np.array([len(array) for array in arrays])
            feeds[f"{name}_mask"] = np.arange(lengths.max())[None] < lengths[:, None]
    return feeds


def pad(rows: Sequence[Sequence[int] | NDArray[np.int64]], fill: int = 0) -> NDArray[np.int64]:
    """Return rows of ids as one array [batch, length], padded with `fill` at the end."""
    array = np.full((len(rows), max((len(row) for row in rows), default=0)), fill, np.int64)
    for index, row in enumerate(rows):
        array[index, : len(row)] = row
    return array


def random_ids(random: "np.random.Generator", item: Input, count: int) -> NDArray[np.int64]:
    """Return random tokens of an input that are not special, if its vocabulary has any."""
    special = item.special.ids
    ids = random.integers(min(len(special), item.pieces - 1), item.pieces, count) - len(special)
    for one in special:
        ids += ids >= one
    return np.maximum(ids, 0)


_PADDED: dict[str, tuple[Any, int]] = {"tokens": (np.int64, 1), "vectors": (np.float32, 1), "edges": (np.bool_, 2)}
"""The dtype of each padded kind, and the number of its leading axes that are positions."""


def _padded(arrays: Sequence[Array], kind: str, fill: int) -> Array:
    dtype, axes = _PADDED[kind]
    longest = max(len(array) for array in arrays)
    result = np.full((len(arrays), *(longest,) * axes, *arrays[0].shape[axes:]), fill, dtype)
    for index, array in enumerate(arrays):
        result[(index, *map(slice, array.shape[:axes]))] = array
    return result
