"""Translation of a sentence with `it`, whose German pronoun depends on the sentence before.

After `the cat sees the river`, `it sleeps near the house` is `sie schläft bei dem haus`: `it` is the subject of the
sentence before, and its gender is that of the German noun. A model without the context, or one that takes the other
noun for the subject, writes 1 of 3 sentences correctly.
"""

import random
from functools import partial
from pathlib import Path

from benchmarks.zoo.tasks.splits import draw_splits, write_columns

NOUNS = {
    "dog": ("hund", "m"),
    "river": ("fluss", "m"),
    "garden": ("garten", "m"),
    "train": ("zug", "m"),
    "cat": ("katze", "f"),
    "street": ("straße", "f"),
    "school": ("schule", "f"),
    "bridge": ("brücke", "f"),
    "house": ("haus", "n"),
    "horse": ("pferd", "n"),
    "ship": ("schiff", "n"),
    "village": ("dorf", "n"),
}
"""English nouns in German, with their gender."""
PRONOUNS = {"m": "er", "f": "sie", "n": "es"}
ARTICLES = {"m": "dem", "f": "der", "n": "dem"}
SEEING = ("sees", "passes", "likes", "needs")
BEING = {"sleeps": "schläft", "stands": "steht", "waits": "wartet", "shines": "glänzt", "ends": "endet"}
PLACES = {"near": "bei", "behind": "hinter", "under": "unter", "with": "mit"}
TRAIN = 10_000


def write(folder: Path, seed: int) -> None:
    """Write train.tsv, valid.tsv and test.tsv with the sentence, its German, and the sentence before."""
    write_columns(folder, draw_splits(partial(draw, random.Random(seed)), TRAIN, key=lambda row: (row[0], row[2])))


def draw(source: random.Random) -> tuple[str, str, str]:
    """Draw a sentence, its German, and the sentence before."""
    subject, other = source.sample(list(NOUNS), 2)
    verb, place, there = source.choice(list(BEING)), source.choice(list(PLACES)), source.choice(list(NOUNS))
    noun, gender = NOUNS[there]
    german = f"{PRONOUNS[NOUNS[subject][1]]} {BEING[verb]} {PLACES[place]} {ARTICLES[gender]} {noun}"
    return f"it {verb} {place} the {there}", german, f"the {subject} {source.choice(SEEING)} the {other}"
