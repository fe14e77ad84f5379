"""Reads arrays of numbers and texts from `.npz` files."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from xformc.format.tokens import IGNORE
from xformc.runtime.arrays import read_npz
from xformc.trainer.data.label_names import COLUMN, label_names

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Arrays:
    """The arrays of one file by name; `sha256` is the hash of their content."""

    arrays: Mapping[str, Array]
    path: Path
    sha256: str

    def __len__(self) -> int:
        """The number of rows of the labels; 0 without labels."""
        labels = self.arrays.get(COLUMN)
        return len(labels) if labels is not None and labels.ndim else 0


def read_arrays(path: Path) -> Arrays:
    """Read an `.npz` file. Raises: UserError as `read_npz`."""
    digest, arrays = hashlib.sha256(), read_npz(path)
    for name, array in arrays.items():
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).data)
    return Arrays(arrays, path, digest.hexdigest())


def array_labels(arrays: Arrays, classes: int) -> tuple[str, ...]:
    """Return the names of the labels: the sorted labels of the data, or the ids if the labels are ids.

    Raises: UserError unless there are `classes` names.
    """
    labels = arrays.arrays.get(COLUMN)
    if labels is None or labels.dtype.kind != "U":
        return tuple(map(str, range(classes)))
    return label_names(map(str, np.unique(labels[labels != ""])), classes, str(arrays.path))


def label_ids_of(array: Array, names: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return labels as ids: the index of a text in `names`, IGNORE for an empty text, -1 for an unknown one."""
    if array.dtype.kind != "U":
        return array.astype(np.int64)
    ids = {**{name: index for index, name in enumerate(names)}, "": IGNORE}
    found, inverse = np.unique(array, return_inverse=True)
    return np.array([ids.get(str(name), -1) for name in found], np.int64)[inverse].reshape(array.shape)
