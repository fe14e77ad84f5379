"""Drawn formulas to be written as text: `3x^2+5-x`.

Signs are 3 x 5 pixels in columns of 4; an exponent stands three pixels higher, and its `^` is not drawn. A formula is
moved down by up to a pixel in the image of 10 x 32 pixels, which has noise. No formula of the test data is in the
training data, so a model that does not see the image, or finds the nearest training image, writes none correctly. One
that does not see how high a sign stands misses every formula with an exponent, 1 of 3.
"""

import random
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.zoo.tasks.splits import draw_splits, write_arrays

HEIGHT, WIDTH = 10, 32
LONGEST = 7
RISE = 3
NOISE = 0.15
TRAIN = 6_000
SIGNS = {
    "0": "### #.# #.# #.# ###",
    "1": ".#. ##. .#. .#. ###",
    "2": "### ..# ### #.. ###",
    "3": "### ..# ### ..# ###",
    "4": "#.# #.# ### ..# ..#",
    "5": "### #.. ### ..# ###",
    "6": "### #.. ### #.# ###",
    "7": "### ..# .#. .#. .#.",
    "8": "### #.# ### #.# ###",
    "9": "### #.# ### ..# ###",
    "x": "... #.# .#. #.# ...",
    "+": "... .#. ### .#. ...",
    "-": "... ... ### ... ...",
}


def write(folder: Path, seed: int) -> None:
    """Write train.npz, valid.npz and test.npz: image float32 [n, 10, 32, 1] from 0 to 1, caption: text [n]."""
    pixels, splits = np.random.default_rng(seed), draw_splits(partial(formula, random.Random(seed)), TRAIN, key=str)
    write_arrays(
        folder,
        {
            name: {"image": np.stack([image(pixels, text) for text in texts]), "caption": np.array(texts)}
            for name, texts in splits.items()
        },
    )


def formula(source: random.Random) -> str:
    """Draw a formula with at most 7 drawn signs."""
    while True:
        terms = [_term(source) for _ in range(source.randint(1, 3))]
        text = "".join(f"{'' if index == 0 else source.choice('+-')}{term}" for index, term in enumerate(terms))
        if len(text.replace("^", "")) <= LONGEST:
            return text


def _term(source: random.Random) -> str:
    factor, power = source.choice(["", str(source.randint(2, 99))]), source.choice(["", f"^{source.randint(2, 9)}"])
    return source.choice([f"{factor}x{power}", str(source.randint(0, 99))])


def image(random: np.random.Generator, text: str) -> np.ndarray:
    """Return the formula as an image [10, 32, 1]."""
    drawn = np.zeros((HEIGHT, WIDTH), np.float32)
    base, left = RISE + int(random.integers(0, 2)), 0
    for before, sign in zip(" " + text, text, strict=False):
        if sign != "^":
            down = base - RISE * (before == "^")
            drawn[down : down + 5, left : left + 3] = [[one == "#" for one in row] for row in SIGNS[sign].split()]
            left += 4
    return np.clip(drawn + random.normal(0, NOISE, drawn.shape), 0, 1).astype(np.float32)[..., None]
