"""A few values that are costly to make, kept by their keys: the least recently used goes first."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

Key = TypeVar("Key")
Made = TypeVar("Made")


class Recent(Generic[Key, Made]):
    """What was asked for lately, `most` values of it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values = OrderedDict[Key, Made]()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Key, make: Callable[[], Made]) -> Made:
        """The value of this key, made if it is not here; before that, room is made for it."""
        if key not in self._values:
            while len(self._values) >= self._most:
                self._values.popitem(last=False)
            self._values[key] = make()
        self._values.move_to_end(key)
        return self._values[key]
