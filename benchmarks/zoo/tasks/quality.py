"""Translation of English number words to German, beside a number: the share of the words that are spelled correctly.

Each English word has two letters exchanged with a probability that is drawn for the text. The mean share alone is wrong
by 0.28.
"""

import random
from pathlib import Path

from benchmarks.zoo.tasks.splits import TEST, VALID, write_columns
from xformc.trainer.data.number_words import choose_numbers

TRAIN = 15_000


def write(folder: Path, seed: int) -> None:
    """Write train.tsv, valid.tsv and test.tsv with the misspelled English, the German and the share of right words."""
    source, splits = random.Random(seed), choose_numbers(TRAIN, VALID, TEST, seed)
    write_columns(folder, {name: [draw(source, number) for number in numbers] for name, numbers in splits.items()})


def draw(source: random.Random, number: int) -> tuple[str, str, str]:
    """Misspell a number, and return it with its German and its quality."""
    from num2words import num2words  # the other tasks do not need it

    words, rate = num2words(number, lang="en").split(), source.random()
    found = [misspelled(source, word) if source.random() < rate else word for word in words]
    right = sum(one == other for one, other in zip(words, found, strict=True))
    return " ".join(found), num2words(number, lang="de"), f"{right / len(words):.3f}"


def misspelled(source: random.Random, word: str) -> str:
    """Exchange two neighbouring letters that differ."""
    place = source.choice([index for index in range(len(word) - 1) if word[index] != word[index + 1]])
    return word[:place] + word[place + 1] + word[place] + word[place + 2 :]
