"""Handwritten digits: the 1,797 images of 8 x 8 pixels in scikit-learn (Alpaydin and Kaynak, 1998)."""

from pathlib import Path

import numpy as np

from benchmarks.zoo.tasks.splits import split_rows, write_arrays

BRIGHTEST = 16


def write(folder: Path, seed: int, name: str = "image") -> None:
    """Write train.npz, valid.npz and test.npz: `name` float32 [n, 8, 8, 1] from 0 to 1, labels int64 [n]."""
    from sklearn.datasets import load_digits  # the other tasks do not need it

    images, labels = load_digits(return_X_y=True)
    arrays = {name: (images / BRIGHTEST).astype(np.float32).reshape(-1, 8, 8, 1), "labels": labels.astype(np.int64)}
    write_arrays(folder, split_rows(arrays, np.random.default_rng(seed).permutation(len(labels))))
