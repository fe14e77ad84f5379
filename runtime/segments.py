"""The segments of a text with timestamps, and where the next part of its sound begins."""

from collections.abc import Sequence
from dataclasses import dataclass

from xformc.format.speech import Timestamps


@dataclass(frozen=True)
class Segment:
    """Tokens of text between two times, in seconds of the part of the sound; None: its end."""

    start: float
    end: float | None
    tokens: tuple[int, ...]


def segments_of(tokens: Sequence[int], timestamps: Timestamps) -> tuple[list[Segment], float | None]:
    """Return the segments of a part, by its tokens without prefix and end token, and the second of the part at which
    the next one begins; None: where this one ends.

    Two times beside each other end one segment and begin the next (Whisper's rule). If nothing ends the last one, it is
    left to the next part, unless it is the only one.
    """
    times = [timestamps.seconds(token) for token in tokens]
    cuts = [place for place in range(1, len(times)) if times[place] is not None and times[place - 1] is not None]
    ends_by_time = times[-2:-1] == [None] and times[-1] is not None
    if not cuts or ends_by_time:
        cuts.append(len(tokens))
    found: list[Segment] = []
    for first, stop in zip([0, *cuts], cuts, strict=False):
        start, end = times[first] if first < stop else None, times[stop - 1] if stop - first > 1 else None
        words = tuple(token for token in tokens[first:stop] if timestamps.seconds(token) is None)
        found.append(Segment(start or 0.0, end, words))
    if ends_by_time or cuts[-1] == len(tokens):
        return found, None
    return found, found[-1].end or None
