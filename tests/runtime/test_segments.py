"""Segments of texts with timestamps, and where the next part of a sound begins."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pytest

from xformc.errors import UserError
from xformc.format.interfaces import PREFIX
from xformc.format.speech import Timestamps
from xformc.runtime.searching.spoken import Spoken, Timed
from xformc.runtime.searching.translate import Hypothesis
from xformc.runtime.stream import Batching
from xformc.runtime.text.segments import Segment, segments_of

TIMES = Timestamps(100, 0.5, 1.0)
END = 50


@pytest.mark.parametrize(
    ("tokens", "whole", "segments", "kept"),
    [
        ([], False, [Segment(0, None, ())], 0),
        ([100, 1, 2], False, [Segment(0, None, (1, 2))], 3),
        ([101, 1, 104], False, [Segment(0.5, 2, (1,))], 3),
        ([100, 1, 102, 102, 2, 104], False, [Segment(0, 1, (1,)), Segment(1, 2, (2,))], 6),
        ([100, 1, 102, 102, 2], False, [Segment(0, 1, (1,))], 3),
        ([100, 1, 102, 102, 2], True, [Segment(0, 1, (1,)), Segment(1, None, (2,))], 5),
        ([100, 1, 102, 103, 2, 105, 105], False, [Segment(0, 1, (1,)), Segment(1.5, 2.5, (2,))], 6),
    ],
)
def test_two_times_end_a_segment(tokens: list[int], whole: bool, segments: list[Segment], kept: int) -> None:
    assert segments_of(tokens, TIMES, whole=whole) == (segments, kept)


@dataclass(frozen=True)
class Reader:
    """Stands for a search: the texts of each part, by its first sample; samples count the positions of the sound."""

    texts: dict[int, list[Hypothesis]]
    seen: list[tuple[int, int]]
    encode: Any = None

    def stream(self, session: object, rows: Sequence[Any], batching: object) -> Iterator[list[Hypothesis]]:
        for row in rows:
            first, count = int(row["wave"][0, 0]), len(row["wave"])
            self.seen.append((first, count))
            yield self.texts[first]


def read(texts: dict[int, list[list[int]]], length: int, *, alone: bool = True) -> tuple[list[Hypothesis], Reader]:
    """Read a sound of so many positions of half a second, at most 10 in a part."""
    timed = Timed(TIMES, 60, (END,), lambda tokens: " ".join(f"w{token}" for token in tokens))
    spoken = Spoken("wave", 10, 0.5, None, None, lambda _: np.array([], np.int64), alone, timed)
    found = {first: [Hypothesis("", -1.0, tuple(tokens)) for tokens in several] for first, several in texts.items()}
    reader, sound = Reader(found, []), {"wave": np.arange(length).reshape(-1, 1)}
    [result] = spoken.stream(cast(Any, reader), cast(Any, None), [sound], Batching())
    return result, reader


def spans(found: Hypothesis) -> list[tuple[float, float, str]]:
    return [(part.start, part.end, part.text) for part in found.parts]


def test_the_next_part_begins_where_the_last_segment_ends() -> None:
    [found], reader = read({0: [[100, 1, 104, 104, 2, END]], 4: [[100, 3, 108, END]]}, 12)
    assert reader.seen == [(0, 10), (4, 8)]
    assert spans(found) == [(0, 2, "w1"), (2, 6, "w3")] and found.text == "w1 w3"
    assert found.tokens == (100, 1, 104, 100, 3, 108, END) and found.score == -2


def test_without_an_end_it_begins_where_the_part_ends() -> None:
    [found], reader = read({0: [[100, 1, 104]], 10: [[101, 2, 130]]}, 12)
    assert reader.seen == [(0, 10), (10, 2)]
    assert spans(found) == [(0, 2, "w1"), (5.5, 6, "w2")], "no segment leaves its sound"


def test_a_segment_that_ends_at_once_is_not_begun_again() -> None:
    [found], reader = read({0: [[100, 1, 101, 101, 2]], 10: [[100, 3, 102]]}, 12)
    assert reader.seen == [(0, 10), (10, 2)]
    assert spans(found) == [(0, 0.5, "w1"), (0.5, 5, "w2"), (5, 6, "w3")]


def test_the_n_best_texts_of_a_short_sound_are_read_once() -> None:
    found, reader = read({0: [[100, 1, 104, 104, 2], [100, 3, 104]]}, 8, alone=False)
    assert reader.seen == [(0, 8)]
    assert [one.text for one in found] == ["w1 w2", "w3"]


def test_a_prefix_of_texts_without_timestamps_is_refused() -> None:
    timed = Timed(TIMES, 60, (END,), str)
    spoken = Spoken("wave", 10, 0.5, None, None, lambda _: np.array([], np.int64), True, timed)
    sound = {"wave": np.zeros((4, 1)), PREFIX: np.array([7, 60])}
    with pytest.raises(UserError, match="a prefix has the token 60, which is that of texts without timestamps"):
        list(spoken.stream(cast(Any, Reader({}, [])), cast(Any, None), [sound], Batching()))
