"""Items that were read and not yet run, and which of them to run together: those of like size, the oldest first."""

from bisect import bisect_left, insort
from collections import deque

SMALLEST_SHARE = 8
"""At the end of the input a batch is at least this part of the budget: smaller ones cost more than they balance."""


class Lookahead:
    """Items waiting by number, each of a size: the tokens that it may need. A batch needs rows times its largest."""

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
        """One item more; numbers come in order."""
        insort(self._sorted, (size, number))
        self._sizes[number] = size
        self._oldest.append(number)
        self._total += size

    def take(self, *, last: bool) -> list[int]:
        """The numbers of the next batch, in order, removed; there must be an item.

        It has the oldest item, so that results can leave in order, and those nearest to it in size that the budget
        allows. With `last`, when no item will follow, it has the largest item, and no more than a worker's share of
        all, so that the workers come to an end together.
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
        """Forget the items from this number on."""
        self._sorted = [(size, other) for size, other in self._sorted if other < number]
        self._sizes = {other: size for other, size in self._sizes.items() if other < number}
        self._total = sum(self._sizes.values())

    def _place_of_the_oldest(self) -> int:
        while self._oldest[0] not in self._sizes:
            self._oldest.popleft()
        number = self._oldest[0]
        return bisect_left(self._sorted, (self._sizes[number], number))

    def _is_nearer_below(self, low: int, high: int) -> bool:
        """Whether the item before `low` is as near in size to those between as the one at `high`."""
        return self._sorted[low][0] - self._sorted[low - 1][0] <= self._sorted[high][0] - self._sorted[high - 1][0]

    def _share(self) -> int:
        if self._workers == 1:
            return self._budget
        share = self._total // self._workers
        return min(self._budget, max(share, self._budget // SMALLEST_SHARE))
