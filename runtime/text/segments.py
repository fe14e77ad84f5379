"""The segments of a text with timestamps."""

from collections.abc import Sequence
from dataclasses import dataclass

from xformc.format.speech import Timestamps


@dataclass(frozen=True)
class Segment:
    """Tokens of text between two times, in seconds of the part of the sound; None: its end."""

    start: float
    end: float | None
    tokens: tuple[int, ...]


def segments_of(tokens: Sequence[int], timestamps: Timestamps, *, whole: bool = False) -> tuple[list[Segment], int]:
    """Return the segments of a part, by its tokens without prefix and end token, and how many of the tokens they have:
    the others are of a segment that the next part is to have; with `whole`, none are.

    Two times beside each other end one segment and begin the next (Whisper's rule). What follows the last two is left,
    unless it ends with a time; without two, all is one segment.
    """
    times = [timestamps.seconds(token) for token in tokens]
    cuts = [index for index in range(1, len(times)) if times[index] is not None and times[index - 1] is not None]
    if whole or not cuts or (times[-2:-1] == [None] and times[-1] is not None):
        cuts.append(len(tokens))
    found: list[Segment] = []
    for first, stop in zip([0, *cuts], cuts, strict=False):
        start, end = times[first] if first < stop else None, times[stop - 1] if stop - first > 1 else None
        words = tuple(token for token in tokens[first:stop] if timestamps.seconds(token) is None)
        found.append(Segment(start or 0.0, end, words))
    return found, cuts[-1]
