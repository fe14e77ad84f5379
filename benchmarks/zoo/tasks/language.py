"""Language modelling of the small grammar's sentences, whose entropy is known and which a parser can check."""

import math
import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks.zoo.tasks.grammar import ENGLISH, sentence
from benchmarks.zoo.tasks.splits import draw_splits, write_text

TRAIN = 30_000


def write(folder: Path, seed: int) -> None:
    """Write train.txt, valid.txt and test.txt, one sentence per line; no sentence of valid or test is in train."""
    for name, texts in draw_splits(partial(draw, random.Random(seed)), TRAIN, key=str).items():
        write_text(folder / f"{name}.txt", texts)


def draw(source: random.Random) -> str:
    """Draw a sentence with its probability in the grammar."""
    return " ".join(sentence(ENGLISH.draw(source)))


def is_sentence(text: str) -> bool:
    """Whether the grammar has a tree for the whole text."""
    return ENGLISH.parses(text.split())[0] > 0


def best_perplexity(texts: Sequence[str]) -> float:
    """Return the perplexity of the grammar itself on these sentences, per word, counting the end as a word."""
    words = [text.split() for text in texts]
    information = -sum(math.log(ENGLISH.parses(each)[1]) for each in words)
    return math.exp(information / sum(len(each) + 1 for each in words))
