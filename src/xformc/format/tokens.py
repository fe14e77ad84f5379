"""Special tokens: their ids in a vocabulary, which are data of each input of tokens."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

PAD, UNKNOWN, BEGIN, END = 0, 1, 2, 3
"""The special tokens of the vocabularies that xformc trains."""

IGNORE = -100
"""The label of a position without one in training labels; elsewhere such a position is padding."""

MAX_ENDS = 64
"""The most end tokens of a vocabulary."""


@dataclass(frozen=True)
class SpecialTokens:
    """The ids of the special tokens of a vocabulary.

    pad: fills the positions after a text. unknown: stands for what the vocabulary lacks. begin: what a decoder reads
    before the first token that it writes. Each is None in a vocabulary without it. end: the tokens that end a text; the
    first is the one that texts are given with. ends: whether they are given with one.
    """

    pad: int | None = PAD
    unknown: int | None = UNKNOWN
    begin: int | None = BEGIN
    end: tuple[int, ...] = (END,)
    ends: bool = True

    @property
    def absent(self) -> int:
        """The number in a prompt or prefix where there is no token: that of padding, or -1."""
        return -1 if self.pad is None else self.pad

    @property
    def fill(self) -> int:
        """A token for the positions after a text, whose values do not count: padding, or any other."""
        return self.pad or 0

    @property
    def ignored(self) -> int:
        """The label of the positions after a text in training: padding, or `IGNORE` if padding may be a label."""
        return IGNORE if self.pad is None or self.pad in self.end else self.pad

    @property
    def begun(self) -> tuple[int, ...]:
        """What comes before a written text: the begin token, or nothing."""
        return () if self.begin is None else (self.begin,)

    @property
    def last(self) -> int:
        """The token that ends the texts that a model is given."""
        return self.end[0]

    @property
    def after(self) -> tuple[int, ...]:
        """What comes after a text that a model is given: the end token, or nothing."""
        return (self.last,) if self.ends else ()

    @property
    def choices(self) -> int:
        """The candidates of a step of a search for each hypothesis: all that end a text, and one that goes on."""
        return 1 + len(self.end)

    def widest(self, vocabulary: int) -> int:
        """The widest beam of a search that writes a vocabulary of so many tokens."""
        return max(1, vocabulary // self.choices)

    @property
    def usual(self) -> bool:
        """Whether the ids are those of the vocabularies that xformc trains."""
        return replace(self, ends=True) == SPECIAL

    def as_input(self, end: Sequence[int]) -> int | tuple[int, ...]:
        """These end tokens as the engine's input `end_token` has them: a number, or as many as it has itself."""
        count = len(self.end)
        return end[0] if count == 1 else tuple(end[place % len(end)] for place in range(count))

    @cached_property
    def ids(self) -> tuple[int, ...]:
        """All special tokens, in ascending order."""
        return tuple(sorted({*self.end, *(one for one in (self.pad, self.unknown, self.begin) if one is not None)}))


SPECIAL = SpecialTokens()
"""Those of the vocabularies that xformc trains."""
