"""Questions about a drawn shape: `which colour` is answered by `red`, `where is it` by `top left`.

The images are those of `shapes`, and those of the test data show what no image of the training data shows. A model that
does not see the image answers 0.19 of the questions, one that does not read the question at most 0.17.
"""

from pathlib import Path

import numpy as np

from benchmarks.zoo.tasks.shapes import image, shown
from benchmarks.zoo.tasks.splits import write_arrays

QUESTIONS = {
    "which colour": "{1}",
    "which form": "{2}",
    "how large": "{0}",
    "where is it": "{3} {4}",
    "what is it": "a {0} {1} {2}",
    "what is there": "a {0} {1} {2} at the {3} {4}",
}
"""The questions, with the parts of a shape that answer them."""


def write(folder: Path, seed: int) -> None:
    """Write train.npz, valid.npz and test.npz: image float32 [n, 24, 24, 3] from 0 to 1, texts question and answer."""
    random, asked = np.random.default_rng(seed), list(QUESTIONS)
    splits: dict[str, dict[str, np.ndarray]] = {}
    for name, chosen in shown(random):
        questions = [asked[index] for index in random.integers(len(asked), size=len(chosen))]
        splits[name] = {
            "image": np.stack([image(random, *what) for what in chosen]),
            "question": np.array(questions),
            "answer": np.array([QUESTIONS[q].format(*what) for q, what in zip(questions, chosen, strict=True)]),
        }
    write_arrays(folder, splits)
