"""Questions over a memory of facts, as in the first two of the bAbI tasks (Weston et al., 2015).

The end-to-end memory network (Sukhbaatar et al., 2015) was designed for them. A fact is one word, so that it fills one
slot of the memory: `mary-office` means that mary went to the office, `mary-ball` that she took the ball. A question is
one word: `mary` asks where mary is, `ball` where the person who took it last is, which needs a second lookup. Only the
last fact of each kind counts. The answer is a place.
"""

import random
from functools import partial
from pathlib import Path

from benchmarks.zoo.tasks.splits import draw_splits, write_columns

PEOPLE = ("mary", "john", "anna", "paul")
PLACES = ("kitchen", "garden", "office", "attic", "cellar", "porch")
THINGS = ("ball", "book")
FACTS = (3, 9)
TRAIN = 20_000


def write(folder: Path, seed: int) -> None:
    """Write train.tsv, valid.tsv and test.tsv with the story, the question and the answer."""
    source = random.Random(seed)
    write_columns(folder, draw_splits(partial(draw, source), TRAIN, key=lambda example: example[:2]))


def draw(source: random.Random) -> tuple[str, str, str]:
    """Draw a story, a question that it answers, and the answer."""
    while True:
        facts = [_fact(source) for _ in range(source.randint(*FACTS))]
        story = " ".join(facts)
        question = source.choice((*PEOPLE, *THINGS))
        place = answer(story, question)
        if place is not None:
            return story, question, place


def answer(story: str, question: str) -> str | None:
    """Return the place of the person or thing, or None if the story does not say."""
    where: dict[str, str] = {}
    for fact in story.split():
        person, what = fact.split("-")
        where[person if what in PLACES else what] = what if what in PLACES else person
    found = where.get(question)
    return where.get(found) if found in PEOPLE else found


def _fact(source: random.Random) -> str:
    what = source.choice(PLACES if source.random() < 0.7 else THINGS)
    return f"{source.choice(PEOPLE)}-{what}"
