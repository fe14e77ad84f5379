"""The sizes of axes that are known only at run time, as functions of the sizes of other such axes."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Length:
    """The size of an axis: the sum of the sizes of the axes `of`, divided by `stride` and rounded up, `times` a number,
    plus `more`.
    """

    of: tuple[str, ...]
    stride: int = 1
    more: int = 0
    times: int = 1

    def at(self, sizes: Mapping[str, int]) -> int:
        """The size for these sizes. Raises: KeyError if one is missing."""
        return divide_up(sum(sizes[name] for name in self.of), self.stride) * self.times + self.more


def divide_up(size: int, stride: int) -> int:
    """The quotient, rounded up: how many of `size` elements are multiples of `stride`, counted from 0."""
    return -(-size // stride)
