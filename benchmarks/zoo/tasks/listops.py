"""ListOps: the value of nested operations on digits (Nangia and Bowman, 2018; Long Range Arena, Tay et al., 2021).

`[MAX 2 9 [MIN 4 7 ] 0 ]` is 9. The operators are MAX, MIN, MED (the median, rounded down) and SM (the sum modulo 10).
An operator with its bracket is one word, and a closing bracket is one word. The labels are the ten digits, all equally
frequent. There are 15 words.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks.zoo.tasks.splits import draw_splits, write_columns

OPERATORS: dict[str, Callable[[list[int]], int]] = {
    "MAX": max,
    "MIN": min,
    "MED": lambda values: int(median(values)),
    "SM": lambda values: sum(values) % 10,
}


@dataclass(frozen=True)
class Difficulty:
    """The range of words, the maximum nesting and number of arguments, and the number of training examples."""

    words: tuple[int, int]
    depth: int
    arguments: int
    train: int


SHORT = Difficulty(words=(4, 10), depth=2, arguments=2, train=40_000)
LONG = Difficulty(words=(11, 20), depth=2, arguments=3, train=40_000)


def write(folder: Path, seed: int, difficulty: Difficulty = SHORT) -> None:
    """Write train.tsv, valid.tsv and test.tsv with the words and the value."""
    source = random.Random(seed)
    splits = draw_splits(partial(draw, source, difficulty), difficulty.train, key=lambda example: example[0])
    write_columns(folder, splits)


def draw(source: random.Random, difficulty: Difficulty) -> tuple[str, str]:
    """Draw an expression and its value; the value is drawn first, so that all ten are equally likely."""
    wanted, (shortest, longest) = source.randrange(10), difficulty.words
    while True:
        words, value = expression(source, difficulty, difficulty.depth)
        if value == wanted and shortest <= len(words) <= longest:
            return " ".join(words), str(value)


def expression(source: random.Random, difficulty: Difficulty, depth: int) -> tuple[list[str], int]:
    """Draw an operation whose arguments are digits or, if `depth` is more than 1, digits and operations."""
    name = source.choice(list(OPERATORS))
    words, values = [f"[{name}"], list[int]()
    for _ in range(source.randint(2, difficulty.arguments)):
        if depth > 1 and source.random() < 0.4:
            inner, value = expression(source, difficulty, depth - 1)
        else:
            value = source.randrange(10)
            inner = [str(value)]
        words += inner
        values.append(value)
    return [*words, "]"], OPERATORS[name](values)
