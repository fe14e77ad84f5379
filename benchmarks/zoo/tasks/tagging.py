"""Part-of-speech tags of the small grammar's sentences, where more than one word in four may have several tags.

`light` is a noun, an adjective or a verb, `walks` a noun or a verb, `that` a determiner, a relative pronoun or a
conjunction. Whoever knows each word's most frequent tag, and no more, is right for fewer than nine words in ten.
71 words, 9 tags.
"""

import random
from functools import partial
from pathlib import Path

from benchmarks.zoo.tasks.grammar import ENGLISH, leaves
from benchmarks.zoo.tasks.splits import draw_splits, write_columns

TRAIN = 10_000


def write(folder: Path, seed: int) -> None:
    """Write train.tsv, valid.tsv and test.tsv: the words, and a tag for each."""
    write_columns(folder, draw_splits(partial(draw, random.Random(seed)), TRAIN, key=lambda example: example[0]))


def draw(source: random.Random) -> tuple[str, str]:
    """A sentence and its tags."""
    found = leaves(ENGLISH.draw(source))
    return " ".join(leaf.word for leaf in found), " ".join(leaf.label for leaf in found)
