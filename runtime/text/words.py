"""The words of a text that each of its tokens is part of; a word is what stands between spaces."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence

Words = tuple[int, int]
"""The words of a token: the first, counted from 0, and the one after the last. Both are equal if it has none."""

NO_WORDS: Words = (0, 0)


def words_at(text: str, spans: Iterable[tuple[int, int]]) -> list[Words]:
    """Return the words of tokens that stand at these places of a text, each from its first character on."""
    words = [match.span() for match in re.finditer(r"\S+", text)]
    begins, ends = [begin for begin, _ in words], [end for _, end in words]
    found = ((bisect_right(ends, begin), bisect_left(begins, end)) for begin, end in spans)
    return [(first, last) if first < last else NO_WORDS for first, last in found]


def written_words(decode: Callable[[Sequence[int]], str], ids: Sequence[int]) -> list[Words]:
    """Return the words of the tokens of a text that `decode` makes; tokens that add nothing to it have none.

    No more than a word is decoded again with each token.
    """
    found: list[Words] = []
    start, first, last = 0, 0, list[str]()
    for index in range(len(ids)):
        now = decode(ids[start : index + 1]).split()
        same = next((place for place, pair in enumerate(zip(last, now, strict=False)) if pair[0] != pair[1]), len(last))
        found.append((first + same, first + len(now)) if now != last else NO_WORDS)
        if last and same == len(last) < len(now):
            start, first, now = index, first + same, now[same:]
        last = now
    return found
