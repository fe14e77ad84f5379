"""Any number of items in constant memory: so many are read ahead, run together, and given back in order."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

from xformc.errors import UserError

BATCH_TOKENS = 2048
WINDOW = 1024

Item = TypeVar("Item")
Read = TypeVar("Read")
Result = TypeVar("Result")


def in_windows(
    items: Iterable[Item],
    encode: Callable[[int, Item], Read],
    run: Callable[[list[Read]], Sequence[Result]],
    window: int,
    batch_tokens: int,
) -> Iterator[Result]:
    """What `run` gives for the items, `window` of them at a time, once `encode` has had the line (from 1) and the item.

    Raises: UserError for a size below 1, and what `encode` raises.
    """
    positive("window", window)
    positive("batch_tokens", batch_tokens)
    encoded = (encode(line, item) for line, item in enumerate(items, start=1))

    def results() -> Iterator[Result]:
        while batch := list(islice(encoded, window)):
            yield from run(batch)

    return results()


def positive(name: str, value: int) -> int:
    """The value. Raises: UserError if it is less than 1."""
    if value < 1:
        raise UserError(f"{name} must be 1 or more, not {value}")
    return value


def whole_window(method: str, texts: Sequence[Any]) -> int:
    """The window that holds all of the texts. Raises: UserError for one text in place of a list."""
    if isinstance(texts, str):
        raise UserError(f"{method} takes a list of texts, not one text", hint=f"engine.{method}([text])")
    return max(1, len(texts))
