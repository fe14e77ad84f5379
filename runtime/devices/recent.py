"""A small LRU cache for values that are expensive to make."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

Key = TypeVar("Key")
Made = TypeVar("Made")


class Recent(Generic[Key, Made]):
    """The `most` values used most recently, by key."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values = OrderedDict[Key, Made]()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Key, make: Callable[[], Made]) -> Made:
        """Return the value of this key. A missing value is made after the least recently used one is dropped."""
        if key not in self._values:
            while len(self._values) >= self._most:
                self._values.popitem(last=False)
            self._values[key] = make()
        self._values.move_to_end(key)
        return self._values[key]
