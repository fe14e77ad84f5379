"""Constituency parsing as translation (Vinyals et al., 2015): the small grammar's sentences to their trees.

A tree is one line of brackets: `the dog sleeps often` is `(S (NP the dog ) (VP sleeps often ) )`. An opening bracket
and its label are one word; trees have no tags. There are 71 words and 6 brackets.
"""

import random
from functools import partial
from pathlib import Path

from benchmarks.zoo.tasks.grammar import ENGLISH, Node, sentence
from benchmarks.zoo.tasks.splits import draw_splits, write_columns, write_text

TRAIN = 15_000


def write(folder: Path, seed: int) -> None:
    """Write train.tsv, valid.tsv and test.tsv (words, tree), and test.words and test.trees."""
    splits = draw_splits(partial(draw, random.Random(seed)), TRAIN, key=lambda example: example[0])
    write_columns(folder, splits)
    for column, name in enumerate(("test.words", "test.trees")):
        write_text(folder / name, (example[column] for example in splits["test"]))


def draw(source: random.Random) -> tuple[str, str]:
    """Draw a sentence and its tree."""
    tree = ENGLISH.draw(source)
    return " ".join(sentence(tree)), linearised(tree)


def linearised(node: Node) -> str:
    """Return the tree as one line."""
    if node.word:
        return node.word
    inside = " ".join(map(linearised, node.parts))
    return inside if node.label.startswith("_") else f"({node.label} {inside} )"
