"""Sentences about who does what to whom, active and passive: paraphrases, and answers to questions.

`the old dog sees the cat` and `the cat is seen by the old dog` mean the same; `the cat sees the old dog` has the words
of the first and another meaning. In paraphrases, each test sentence stands beside the one with its roles exchanged: a
model that ignores the order of words finds at most half of them, a random one 1 of 500. Half of the wrong answers have
the right words in the wrong roles: without the order, 3 of 4 answers are judged correctly at most, half by chance.
"""

import random
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.zoo.tasks.splits import TEST, VALID, write_columns

NOUNS = ("dog", "cat", "girl", "boy", "teacher", "farmer", "queen", "king")
ADJECTIVES = ("", "old ", "small ", "tall ")
VERBS = {"sees": "seen", "helps": "helped", "follows": "followed", "likes": "liked", "calls": "called"}
ANSWERS = 12_000


@dataclass(frozen=True)
class Event:
    """Who does what to whom."""

    agent: str
    verb: str
    patient: str

    @property
    def active(self) -> str:
        """The event in the active voice."""
        return f"the {self.agent} {self.verb} the {self.patient}"

    @property
    def passive(self) -> str:
        """The event in the passive voice."""
        return f"the {self.patient} is {VERBS[self.verb]} by the {self.agent}"

    @property
    def exchanged(self) -> "Event":
        """The event with its roles exchanged."""
        return Event(self.patient, self.verb, self.agent)


def write_paraphrases(folder: Path, seed: int) -> None:
    """Write train.tsv, valid.tsv and test.tsv with the active and the passive form of each event."""
    write_columns(
        folder, {name: [(one.active, one.passive) for one in events] for name, events in _splits(seed).items()}
    )


def write_answers(folder: Path, seed: int) -> None:
    """Write train.tsv, valid.tsv and test.tsv with a question, a sentence, and whether it answers the question."""
    source = random.Random(seed)
    sizes = {"train": ANSWERS, "valid": VALID, "test": TEST}
    splits = {
        name: [_answer(source, source.choice(events)) for _ in range(sizes[name])]
        for name, events in _splits(seed).items()
    }
    write_columns(folder, splits)


def _splits(seed: int) -> dict[str, list[Event]]:
    """All events, each in the split of the one with exchanged roles."""
    things = [f"{adjective}{noun}" for adjective in ADJECTIVES for noun in NOUNS]
    pairs = [
        Event(agent, verb, patient)
        for verb in VERBS
        for agent in things
        for patient in things
        if agent < patient and agent.split()[-1] != patient.split()[-1]
    ]
    random.Random(seed).shuffle(pairs)
    events = [one for event in pairs for one in (event, event.exchanged)]
    return {"train": events[TEST + VALID :], "valid": events[TEST : TEST + VALID], "test": events[:TEST]}


def _answer(source: random.Random, event: Event) -> tuple[str, str, str]:
    """A question, a sentence about the event, and yes, or no for a question about another event."""
    asked, right = event, source.random() < 0.5
    if not right:
        other = source.choice([one for one in VERBS if one != event.verb])
        asked = event.exchanged if source.random() < 0.5 else replace(event, verb=other)
    question = source.choice(
        (f"who {asked.verb} the {asked.patient}", f"who is {VERBS[asked.verb]} by the {asked.agent}")
    )
    return question, event.active, "yes" if right else "no"
