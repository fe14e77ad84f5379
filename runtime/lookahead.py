"""Chooses batches of similar size from the items that were read ahead, the oldest first."""

from bisect import bisect_left, insort
from collections import deque

SMALLEST_SHARE = 8
"""The last batches may use 1/SMALLEST_SHARE of the budget: smaller ones cost more than balanced workers gain."""


class Lookahead:
    """Waiting items, by number, with their sizes in tokens. The cost of a batch is its rows times its largest size."""

    def __init__(self, budget: int, workers: int) -> None:
        self._budget = budget
        self._workers = workers
        self._sorted: list[tuple[int, int]] = []
        self._sizes: dict[int, int] = {}
        self._oldest = deque[int]()
        self._total = 0

    def __len__(self) -> int:
        return len(self._sizes)

    def add(self, number: int, size: int) -> None:
        """Add an item; numbers must increase."""
        insort(self._sorted, (size, number))
        self._sizes[number] = size
        self._oldest.append(number)
        self._total += size

    def take(self, *, last: bool) -> list[int]:
        """Remove the next batch and return its numbers, in order; at least one item must be waiting.

        The batch holds the oldest item, so that results can leave in order, and the items nearest to it in size, within
        the budget. With `last`, when no more items will follow, it holds the largest item and at most one worker's
        share of the rest, so that the workers finish at the same time.
        """
        low = len(self._sorted) - 1 if last else self._place_of_the_oldest()
        high, budget = low + 1, self._share() if last else self._budget
        while low > 0 or high < len(self._sorted):
            rows = high - low + 1
            fits_above = high < len(self._sorted) and rows * self._sorted[high][0] <= budget
            fits_below = low > 0 and rows * self._sorted[high - 1][0] <= budget
            if fits_above and not (fits_below and self._is_nearer_below(low, high)):
                high += 1
            elif fits_below:
                low -= 1
            else:
                break
        numbers = sorted(number for _, number in self._sorted[low:high])
        del self._sorted[low:high]
        for number in numbers:
            self._total -= self._sizes.pop(number)
        return numbers

    def drop_from(self, number: int) -> None:
        """Drop the items from this number on."""
        self._sorted = [(size, other) for size, other in self._sorted if other < number]
        self._sizes = {other: size for other, size in self._sizes.items() if other < number}
        self._total = sum(self._sizes.values())

    def _place_of_the_oldest(self) -> int:
        while self._oldest[0] not in self._sizes:
            self._oldest.popleft()
        number = self._oldest[0]
        return bisect_left(self._sorted, (self._sizes[number], number))

    def _is_nearer_below(self, low: int, high: int) -> bool:
        """Whether the item below `low` is at least as close in size to the batch as the item at `high`."""
        return self._sorted[low][0] - self._sorted[low - 1][0] <= self._sorted[high][0] - self._sorted[high - 1][0]

    def _share(self) -> int:
        if self._workers == 1:
            return self._budget
        share = self._total // self._workers
        return min(self._budget, max(share, self._budget // SMALLEST_SHARE))
