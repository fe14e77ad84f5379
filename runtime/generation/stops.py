"""Stop strings: texts before which a continuation ends, wherever the borders of its tokens are."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

from xformc.errors import UserError

MOST_STOPS, LONGEST_STOP = 64, 1000
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True)
class Stops:
    """The stop strings of a call. The first one in a text is the one that ends first, the longest if several do."""

    texts: tuple[str, ...] = ()

    def found(self, text: str) -> bool:
        """Return whether the text has a stop string."""
        return any(one in text for one in self.texts)

    def size(self, tokens: Sequence[int], new: Sequence[int], text: Callable[[Sequence[int]], str]) -> int | None:
        """Return the number of new tokens up to the one that completes a stop string; None if none does."""
        if not self.texts:
            return None
        sizes = range(1, len(new) + 1)
        return next((size for size in sizes if self.found(text([*tokens, *new[:size]]))), None)

    def cut(self, text: str) -> str:
        """Return the text before its first stop string."""
        places = [(text.find(one) + len(one), text.find(one)) for one in self.texts if one in text]
        return text[: min(places)[1]] if places else text

    def settled(self, text: str) -> str:
        """Return the text without the longest end that begins a stop string, which more text may complete."""
        open_ends = (size for one in self.texts for size in range(1, len(one)) if text.endswith(one[:size]))
        return text[: len(text) - max(open_ends, default=0)]


NO_STOPS = Stops()


def checked_stops(given: object) -> Stops:
    """Return the stop strings of an argument. Raises: UserError unless it is None or a list of texts in bounds."""
    if given is None:
        return NO_STOPS
    if not isinstance(given, list | tuple):
        raise UserError(f"stop takes a list of texts, not {_shown(given)}", hint='such as stop=["END"]')
    texts = cast(Sequence[object], given)
    if len(texts) > MOST_STOPS:
        raise UserError(f"there are {len(texts)} stop strings; at most {MOST_STOPS} are allowed", hint="leave some out")
    for one in texts:
        if not isinstance(one, str) or not 1 <= len(one) <= LONGEST_STOP:
            message = f"a stop string must be a text of 1 to {LONGEST_STOP:,} characters, not {_shown(one)}"
            raise UserError(message, hint="a text ends before it; leave it out if there is none")
        if REPLACEMENT in one:
            message = "a stop string cannot have U+FFFD, which stands for bytes that are no character yet"
            raise UserError(message, hint="leave it out")
    return Stops(tuple(cast(Sequence[str], texts)))


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."
