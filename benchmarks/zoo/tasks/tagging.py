"""Part-of-speech tagging of the small grammar's sentences, where more than one word in four is ambiguous.

`light` is a noun, an adjective or a verb, `walks` a noun or a verb, `that` a determiner, a relative pronoun or a
conjunction. The most frequent tag of each word is correct for fewer than nine words in ten. There are 71 words and 9
tags.
"""

import random
from functools import partial
from pathlib import Path

from benchmarks.zoo.tasks.grammar import ENGLISH, leaves
from benchmarks.zoo.tasks.splits import draw_splits, write_columns

TRAIN = 10_000
FEW = 30


def write(folder: Path, seed: int, train: int = TRAIN) -> None:
    """Write train.tsv, valid.tsv and test.tsv with the words and a tag for each."""
    write_columns(folder, draw_splits(partial(draw, random.Random(seed)), train, key=lambda example: example[0]))


def draw(source: random.Random) -> tuple[str, str]:
    """Draw a sentence and its tags."""
    found = leaves(ENGLISH.draw(source))
    return " ".join(leaf.word for leaf in found), " ".join(leaf.label for leaf in found)
