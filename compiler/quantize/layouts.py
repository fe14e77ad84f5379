"""Layouts shared by several number formats: rows, and the panels of 32 rows of docs/kernels.md."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xformc.compiler.quantize.elements import Element
from xformc.compiler.quantize.stored import Floats, Layout, Matrix, StoredTensor

PANELS = ".panels"

PANEL = 32
"""The number of rows of a panel."""

QUAD = 4
"""The number of adjacent elements of a row that integer panels keep together."""

PAIR = 2
"""The number of adjacent elements of a row that panels of 16-bit integers and of bfloat16 keep together."""

Encode = Callable[[Floats], NDArray[Any]]
Decode = Callable[[NDArray[Any]], NDArray[Any]]


def row_layout(element: Element, encode: Encode, decode: Decode) -> Layout:
    """Numbers without a scale, row by row."""

    def store(matrix: Matrix, new: int, width: int) -> dict[str, StoredTensor]:
        return {"": StoredTensor(element, (new, width), lambda: encode(matrix()))}

    def restore(array: NDArray[Any], scale: NDArray[Any] | None, count: int) -> NDArray[Any] | None:
        return decode(array)

    return Layout("", element, store, restore)


def panel_layout(suffix: str, element: Element, encode: Encode, decode: Decode) -> Layout:
    """Numbers without a scale, in panels [ceil(new / 32), width, 32]."""

    def store(matrix: Matrix, new: int, width: int) -> dict[str, StoredTensor]:
        shape = (-(-new // PANEL), width, PANEL)
        return {suffix: StoredTensor(element, shape, lambda: panels(encode(matrix())))}

    def restore(array: NDArray[Any], scale: NDArray[Any] | None, count: int) -> NDArray[Any] | None:
        if array.ndim != 3 or not array.shape[1] or count % array.shape[1]:
            return None
        new = count // array.shape[1]
        if array.shape[0] != -(-new // PANEL) or array.shape[2] != PANEL:
            return None
        return decode(np.ascontiguousarray(from_panels(array, new)))

    return Layout(suffix, element, store, restore)


def panels(matrix: NDArray[Any]) -> NDArray[Any]:
    """[new, width] -> [ceil(new / 32), width, 32], with zeros after the last row."""
    new, width = matrix.shape
    count = -(-new // PANEL)
    padded = np.pad(matrix, ((0, count * PANEL - new), (0, 0)))
    return np.ascontiguousarray(padded.reshape(count, PANEL, width).transpose(0, 2, 1))


def from_panels(stored: NDArray[Any], new: int) -> NDArray[Any]:
    """The inverse of `panels`: the matrix [new, width]."""
    return stored.transpose(0, 2, 1).reshape(-1, stored.shape[1])[:new]


def paired_shape(new: int, width: int) -> tuple[int, int, int, int]:
    """The shape of the panels of a matrix [new, width] that keep PAIR elements of a row together."""
    return -(-new // PANEL), -(-width // PAIR), PANEL, PAIR


def to_pairs(padded: NDArray[Any]) -> NDArray[Any]:
    """Panels of a matrix whose rows are a multiple of PANEL, and its columns of PAIR."""
    count, pairs, _, _ = paired_shape(*padded.shape)
    return np.ascontiguousarray(padded.reshape(count, PANEL, pairs, PAIR).transpose(0, 2, 1, 3))


def from_pairs(stored: NDArray[Any]) -> NDArray[Any]:
    """The inverse of `to_pairs`."""
    return stored.transpose(0, 2, 1, 3).reshape(stored.shape[0] * PANEL, -1)
