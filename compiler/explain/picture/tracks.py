"""The order of horizontal lines in a gap between rows, such that no two of their vertical ends lie on each other."""

from collections.abc import Mapping, Sequence

NEAR = 4.0
"""Vertical lines closer than this, in points, would be read as one."""


def order_tracks(
    names: Sequence[str], starts: Mapping[str, float], ends: Mapping[str, Sequence[float]]
) -> tuple[str, ...]:
    """The names from the highest line to the lowest; each comes up at its start and goes on up at its ends.

    A line that comes up where another one goes on must turn below it. Where that is a circle, the first goes on top.
    """
    left, ordered = list(names), list[str]()
    while left:
        free = (name for name in left if not any(_below(name, other, starts, ends) for other in left if other != name))
        ordered.append(next(free, left[0]))
        left.remove(ordered[-1])
    return tuple(ordered)


def _below(name: str, other: str, starts: Mapping[str, float], ends: Mapping[str, Sequence[float]]) -> bool:
    return any(abs(starts[name] - end) < NEAR for end in ends[other])
