"""The splits of a made task: what is held out is drawn first, and the training examples never repeat it."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

VALID, TEST = 300, 500
T = TypeVar("T")


def draw_splits(draw: Callable[[], T], train: int, key: Callable[[T], Hashable]) -> dict[str, list[T]]:
    """Split -> examples. Those of test are as they come; valid has none of their keys, and train none of both."""
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
    """One line for each."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def write_columns(folder: Path, splits: Mapping[str, Iterable[tuple[str, ...]]]) -> None:
    """`train.tsv`, `valid.tsv` and `test.tsv`: an example a line, its columns between tabs."""
    for name, rows in splits.items():
        write_text(folder / f"{name}.tsv", ("\t".join(row) for row in rows))


def write_arrays(folder: Path, splits: Mapping[str, Mapping[str, np.ndarray]]) -> None:
    """`train.npz`, `valid.npz` and `test.npz`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, arrays in splits.items():
        given: Mapping[str, Any] = arrays  # numpy's types would have the parameter allow_pickle be an array
        np.savez_compressed(folder / f"{name}.npz", **given)


def split_rows(arrays: Mapping[str, np.ndarray], order: np.ndarray) -> dict[str, dict[str, np.ndarray]]:
    """Split -> arrays: the rows in this order; the last are for test, those before them for valid."""
    ends = {"train": (0, -VALID - TEST), "valid": (-VALID - TEST, -TEST), "test": (-TEST, len(order))}
    return {
        name: {key: array[order[first:last]] for key, array in arrays.items()} for name, (first, last) in ends.items()
    }
