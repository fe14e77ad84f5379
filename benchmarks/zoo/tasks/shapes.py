"""Captions of a drawn shape: `a small red circle at the top left`.

An image has 24 x 24 pixels of red, green and blue, with noise. The shape has one of four forms, four colours, two sizes
and nine places, and moves by up to a pixel: 288 captions. Those of the test data are not in the training data, so that
the caption of the nearest training image is never right. A model that does not see the image writes 1 of 288 correctly,
one that cannot tell the forms, or the colours, 1 of 4.
"""

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np

from benchmarks.zoo.tasks.splits import TEST, VALID, write_arrays

SIZE, CELL = 24, 8
COLOURS = {"red": (1, 0, 0), "green": (0, 1, 0), "blue": (0, 0, 1), "yellow": (1, 1, 0)}
FORMS = ("circle", "square", "triangle", "cross")
RADII = {"small": 2, "large": 3}
ROWS, COLUMNS = ("top", "middle", "bottom"), ("left", "centre", "right")
CAPTION = "a {} {} {} at the {} {}"
NOISE = 0.1
TRAIN = 6_000
HELD_OUT = 60


def write(folder: Path, seed: int) -> None:
    """Write train.npz, valid.npz and test.npz: image float32 [n, 24, 24, 3] from 0 to 1, caption: text [n]."""
    random = np.random.default_rng(seed)
    splits: dict[str, dict[str, np.ndarray]] = {}
    for name, chosen in shown(random):
        images = [image(random, *what) for what in chosen]
        splits[name] = {"image": np.stack(images), "caption": np.array([CAPTION.format(*what) for what in chosen])}
    write_arrays(folder, splits)


def shown(random: np.random.Generator) -> Iterator[tuple[str, list[tuple[str, ...]]]]:
    """The splits, each with what its images show: size, colour, form, row and column of a shape."""
    every = list(product(RADII, COLOURS, FORMS, ROWS, COLUMNS))
    order = random.permutation(len(every))
    kinds = {"train": order[HELD_OUT:], "valid": order[:HELD_OUT], "test": order[:HELD_OUT]}
    for name, count in (("train", TRAIN), ("valid", VALID), ("test", TEST)):
        yield name, [every[index] for index in random.choice(kinds[name], count)]


def image(random: np.random.Generator, size: str, colour: str, form: str, row: str, column: str) -> np.ndarray:
    """Draw a shape [24, 24, 3]."""
    centre = CELL * np.array([ROWS.index(row), COLUMNS.index(column)]) + 3 + random.integers(0, 2, 2)
    drawn = shape(form, RADII[size], centre)[..., None] * np.array(COLOURS[colour], np.float32)
    return np.clip(drawn + random.normal(0, NOISE, drawn.shape), 0, 1).astype(np.float32)


def shape(form: str, radius: float, centre: np.ndarray) -> np.ndarray:
    """The pixels of a shape [24, 24], 0 or 1."""
    down, right = np.mgrid[:SIZE, :SIZE] - centre[:, None, None]
    inside = {
        "circle": np.hypot(down, right) <= radius,
        "square": np.maximum(abs(down), abs(right)) <= radius,
        "triangle": (abs(right) <= (down + radius) / 2) & (down <= radius),
        "cross": (np.minimum(abs(down), abs(right)) < 1) & (np.maximum(abs(down), abs(right)) <= radius),
    }[form]
    return inside.astype(np.float32)
