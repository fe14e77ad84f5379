"""A plain implementation of the phrases that docs/search.md defines: what of them a text has, and who goes first."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TypeVar

Phrase = Sequence[int]
Candidate = TypeVar("Candidate")


def occurs(phrase: Phrase, text: Sequence[int]) -> bool:
    """Whether the tokens of a phrase follow each other in the text."""
    size = len(phrase)
    return any([*text[start : start + size]] == [*phrase] for start in range(len(text) - size + 1))


def begun(phrase: Phrase, text: Sequence[int]) -> int:
    """The most tokens of a phrase, without its last, that the text ends with."""
    return max(count for count in range(len(phrase)) if [*text[len(text) - count :]] == [*phrase[:count]])


def open_phrases(phrases: Sequence[Phrase], text: Sequence[int]) -> list[Phrase]:
    """The phrases that do not occur in the text."""
    return [phrase for phrase in phrases if not occurs(phrase, text)]


def next_tokens(phrases: Sequence[Phrase], text: Sequence[int]) -> set[int]:
    """The tokens that continue the phrases which the text does not have."""
    return {phrase[begun(phrase, text)] for phrase in open_phrases(phrases, text)}


def bank(phrases: Sequence[Phrase], text: Sequence[int]) -> int:
    """The tokens of the phrases that the text has, and the most of one that it has not."""
    waiting = open_phrases(phrases, text)
    whole = sum(len(phrase) for phrase in phrases if occurs(phrase, text))
    return whole + max((begun(phrase, text) for phrase in waiting), default=0)


def in_turn(candidates: Sequence[Candidate], bank_of: Callable[[Candidate], int]) -> list[Candidate]:
    """Candidates, best first, in the order of their places: the best of each bank, from the highest on, and so on."""
    banks: dict[int, list[Candidate]] = defaultdict(list)
    places: list[tuple[int, int, Candidate]] = []
    for candidate in candidates:
        number = bank_of(candidate)
        places.append((len(banks[number]), -number, candidate))
        banks[number].append(candidate)
    return [candidate for *_, candidate in sorted(places, key=lambda place: place[:2])]
