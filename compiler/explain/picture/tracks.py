"""Orders the horizontal lines in a gap between rows so that their vertical ends do not overlap."""

from collections.abc import Mapping, Sequence

NEAR = 4.0
"""Vertical lines closer than this, in points, look like one."""


def order_tracks(
    names: Sequence[str], starts: Mapping[str, float], ends: Mapping[str, Sequence[float]]
) -> tuple[str, ...]:
    """The names from the highest line to the lowest; each line comes up at its start and continues up at its ends.

    A line that comes up where another one continues must turn below it. In a cycle, the first name goes on top.
    """
    left, ordered = list(names), list[str]()
    while left:
        free = (name for name in left if not any(_below(name, other, starts, ends) for other in left if other != name))
        ordered.append(next(free, left[0]))
        left.remove(ordered[-1])
    return tuple(ordered)


def _below(name: str, other: str, starts: Mapping[str, float], ends: Mapping[str, Sequence[float]]) -> bool:
    return any(abs(starts[name] - end) < NEAR for end in ends[other])
