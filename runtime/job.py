"""The work of an engine's method on its items, run as a stream or all at once."""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from xformc.errors import UserError
from xformc.runtime.interrupts import run_once
from xformc.runtime.session import Session
from xformc.runtime.stream import Batching, Work, run_stream
from xformc.runtime.text.texts import TooLongError

Item = TypeVar("Item")
Other = TypeVar("Other")
Row = TypeVar("Row")
Result = TypeVar("Result")

LARGEST_WINDOW = 1 << 16
"""Number of items sorted by size at a time, if all items are given at once."""


@dataclass(frozen=True)
class Job(Generic[Item, Row, Result]):
    """Encodes items as rows, and runs rows of similar size as batches.

    encode: returns the row of the item on a line, counted from 1; raises UserError for an item that does not fit.
    size: returns the maximum number of tokens that a row needs.
    run: returns the results of some rows, in order, from a session.
    """

    encode: Callable[[int, Item], Row]
    size: Callable[[Row], int]
    run: Callable[[Session, Sequence[Row]], Sequence[Result]]

    def stream(self, session: Session, items: Iterable[Item], batching: Batching) -> Generator[Result]:
        """Yield the results of any number of items, in order."""
        return self._rows(session, self.encoded(items), batching)

    def all(self, session: Session, method: str, items: Iterable[Item], batching: Batching) -> list[Result]:
        """Return the results of these items, in order. Raises: UserError before any is run if an item is invalid."""
        self.require_several(method, items)
        rows = list(self.encoded(items))
        if rows and _workers(session, batching) == 1 and self._is_one_batch(rows, batching.max_batch_tokens):
            return list(run_once(session.shared_by(1), lambda stoppable: self.run(stoppable, rows)))
        whole = Batching(batching.workers, batching.max_batch_tokens, min(len(rows) + 1, LARGEST_WINDOW))
        return list(self._rows(session, iter(rows), whole))

    def _is_one_batch(self, rows: Sequence[Row], max_batch_tokens: int) -> bool:
        return len(rows) == 1 or all(len(rows) * self.size(row) <= max_batch_tokens for row in rows)

    @staticmethod
    def require_several(method: str, items: object) -> None:
        """Raises: UserError for one text in place of a list."""
        if isinstance(items, str):
            raise UserError(f"{method} takes a list of texts, not one text", hint=f"engine.{method}([text])")

    def encoded(self, items: Iterable[Item]) -> Iterator[Row]:
        """Yield the rows of items, whose lines count from 1. Raises: UserError at one that is invalid."""
        for line, item in enumerate(items, start=1):
            try:
                yield self.encode(line, item)
            except TooLongError as error:
                raise error.advised("truncate=True", "max_batch_tokens=") from None

    def _rows(self, session: Session, rows: Iterator[Row], batching: Batching) -> Generator[Result]:
        workers = _workers(session, batching)
        stoppable = session.shared_by(workers).stoppable()
        return run_stream(rows, Work(self.size, partial(self.run, stoppable), stoppable.stop), workers, batching)


def _workers(session: Session, batching: Batching) -> int:
    return session.workers if batching.workers is None else batching.workers


def paired(
    items: Iterable[Item], others: Iterable[Other], *, none: str, several: str, one: str
) -> Iterator[tuple[Item, Other]]:
    """Yield each text with what is given for it. Raises: UserError at the first that is alone.

    none, several, one: the others in messages, such as "is no prefix", "prefixes" and "one".
    """
    rest, line, hint = iter(others), 0, f"give {one} for each text"
    for line, item in enumerate(items, start=1):
        other = next(rest, None)
        if other is None:
            raise UserError(f"there {none} for this text", place=f"line {line}", hint=hint)
        yield item, other
    if next(rest, None) is not None:
        raise UserError(f"there are more {several} than texts, which are {line:,}", hint=hint)


def as_it_is(_: int, row: Any) -> Any:
    """Encode an item that is already a row."""
    return row
