"""Noise in the texts that a model reads: other cases, and typing errors. The number of words stays.

Each line has a generator of its own, which follows from (seed, epoch, column, line).
"""

import re
from collections.abc import Callable, Sequence
from random import Random

from xformc.compiler.spec.sections import Noise

MARK = re.compile(r"<[^<>\s]*>")
"""A word that is a tag or a placeholder, and has no noise."""

CASES: tuple[Callable[[str], str], ...] = (str.lower, str.upper, lambda word: word[:1].upper() + word[1:])


class TextNoise:
    """The noise of a column of texts in one epoch."""

    def __init__(self, noise: Noise, seed: int, epoch: int, column: int) -> None:
        self._noise, self._draw = noise, Random()
        self._key = (((seed << 32) + epoch) << 8) + column

    def line(self, number: int, text: str) -> str:
        """The text of a line with its noise."""
        draw, noise = self._draw, self._noise
        draw.seed((self._key << 64) + number)
        words = text.split(" ")
        if draw.random() < noise.case:
            change = draw.choice(CASES)
            words = [word if MARK.fullmatch(word) else change(word) for word in words]
        if noise.typing:
            letters = [letter for letter in text if letter.isalpha()]
            words = [word if MARK.fullmatch(word) else self._typed(word, letters) for word in words]
        return " ".join(words)

    def lines(self, texts: Sequence[str]) -> list[str]:
        """The texts of all lines of a file."""
        return [self.line(number, text) for number, text in enumerate(texts)]

    def _typed(self, word: str, letters: Sequence[str]) -> str:
        """The word with errors in its letters: left out, doubled, swapped with the next one, or another of the text.
        It is doubled where that would change nothing, or leave out a word."""
        draw, rate, typed, index = self._draw, self._noise.typing, list[str](), 0
        while index < len(word):
            letter, index = word[index], index + 1
            if not letter.isalpha() or draw.random() >= rate:
                typed.append(letter)
                continue
            kind = draw.randrange(4)
            others = [other for other in letters if other != letter] if kind == 3 else []
            changes = (len(word) > 1, True, word[index : index + 1] not in ("", letter), bool(others))
            if kind == 1 or not changes[kind]:
                typed += (letter, letter)
            elif kind == 2:
                typed += (*word[index : index + 1], letter)
                index += 1
            elif kind == 3:
                typed.append(draw.choice(others))
        return "".join(typed) or word
