"""Draws and writes the splits of a generated task; training examples never repeat held-out ones."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

VALID, TEST = 300, 500
T = TypeVar("T")


def draw_splits(draw: Callable[[], T], train: int, key: Callable[[T], Hashable]) -> dict[str, list[T]]:
    """Draw the examples of each split: test first, then valid without the keys of test, then train without both."""
    splits: dict[str, list[T]] = {}
    held_out: set[Hashable] = set()
    for name, size in (("test", TEST), ("valid", VALID), ("train", train)):
        chosen: list[T] = []
        while len(chosen) < size:
            example = draw()
            if key(example) not in held_out:
                chosen.append(example)
        held_out |= {key(example) for example in chosen}
        splits[name] = chosen
    return splits


def write_text(path: Path, lines: Iterable[str]) -> None:
    """Write the lines of a text file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def write_columns(folder: Path, splits: Mapping[str, Iterable[tuple[str, ...]]]) -> None:
    """Write `train.tsv`, `valid.tsv` and `test.tsv`, one example per line, with tabs between the columns."""
    for name, rows in splits.items():
        write_text(folder / f"{name}.tsv", ("\t".join(row) for row in rows))


def write_arrays(folder: Path, splits: Mapping[str, Mapping[str, np.ndarray]]) -> None:
    """Write `train.npz`, `valid.npz` and `test.npz`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, arrays in splits.items():
        given: Mapping[str, Any] = arrays  # numpy's types would have the parameter allow_pickle be an array
        np.savez_compressed(folder / f"{name}.npz", **given)


def split_rows(arrays: Mapping[str, np.ndarray], order: np.ndarray) -> dict[str, dict[str, np.ndarray]]:
    """Split rows, in this order, into train, valid and test, which are the last ones."""
    ends = {"train": (0, -VALID - TEST), "valid": (-VALID - TEST, -TEST), "test": (-TEST, len(order))}
    return {
        name: {key: array[order[first:last]] for key, array in arrays.items()} for name, (first, last) in ends.items()
    }
