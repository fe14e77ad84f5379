"""Runs a stream of items in bounded memory: reads ahead, runs batches in workers, and yields results in order."""

import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Generic, TypeVar

from xformc.errors import UserError
from xformc.runtime.lookahead import Lookahead
from xformc.runtime.session import MAX_THREADS

WINDOW = 1024
"""Default number of items to read ahead for each worker."""

MAX_BATCH_TOKENS = 16_384
"""Default maximum tokens of a batch for tasks that generate text."""

logger = logging.getLogger(__name__)

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Batching:
    """How a call forms and runs batches.

    workers: batches run at the same time; None for the number that the engine was loaded for.
    max_batch_tokens: maximum tokens of a batch, padding included; an item that needs more has its own batch.
    window: items read ahead of the results; None for WINDOW per worker. With 1, each result is yielded before the
        next item is read.

    Raises: UserError for a number below 1, or for more than MAX_THREADS workers.
    """

    workers: int | None = None
    max_batch_tokens: int = MAX_BATCH_TOKENS
    window: int | None = None

    def __post_init__(self) -> None:
        for name in ("workers", "max_batch_tokens", "window"):
            value: object = getattr(self, name)
            if value is not None and (type(value) is not int or value < 1):
                raise UserError(f"{name} must be 1 or more, not {value!r}")
        if self.workers is not None and self.workers > MAX_THREADS:
            raise UserError(f"workers must be at most {MAX_THREADS}, not {self.workers}")


@dataclass(frozen=True)
class Work(Generic[Item, Result]):
    """The functions that process the items of a call.

    size: returns the maximum number of tokens that an item needs.
    run: returns the results of some items, in order; several threads call it at once.
    stop: ends the running calls of `run` early.
    """

    size: Callable[[Item], int]
    run: Callable[[list[Item]], Sequence[Result]]
    stop: Callable[[], None]


def run_stream(items: Iterator[Item], work: Work[Item, Result], workers: int, batching: Batching) -> Generator[Result]:
    """Yield the result of each item, in order.

    A free worker takes the next batch of the items read ahead; as results are yielded, more items are read. An error
    from `items` or `run` is raised in place of the first result that it affects. No thread outlives the call.
    """
    pool = ThreadPoolExecutor(workers, thread_name_prefix="xformc")
    try:
        yield from _Stream(items, work, workers, batching, pool).results()
    finally:
        work.stop()
        pool.shutdown(cancel_futures=True)


class _Stream(Generic[Item, Result]):
    """The state of one call: each numbered item is waiting, running or done."""

    def __init__(
        self,
        items: Iterator[Item],
        work: Work[Item, Result],
        workers: int,
        batching: Batching,
        pool: ThreadPoolExecutor,
    ) -> None:
        self._items, self._work, self._workers, self._pool = items, work, workers, pool
        self._window = WINDOW * workers if batching.window is None else batching.window
        self._waiting = Lookahead(batching.max_batch_tokens, workers)
        self._read: dict[int, Item] = {}
        self._running: dict[Future[Sequence[Result]], list[int]] = {}
        self._done: dict[int, Result] = {}
        self._failed: tuple[int, BaseException] | None = None
        self._ended = False
        self._count = 0

    def results(self) -> Generator[Result]:
        given = 0
        while True:
            while given in self._done:
                yield self._done.pop(given)
                given += 1
            if self._failed is not None and self._failed[0] == given:
                raise self._failed[1]
            self._fill(given + self._window)
            self._start()
            if not self._running:
                if given == self._count:
                    return
                continue
            self._collect()

    def _fill(self, until: int) -> None:
        """Read items up to but excluding this number."""
        while not self._ended and self._count < until:
            try:
                item = next(self._items)
            except StopIteration:
                self._ended = True
            except Exception as error:
                self._fail(self._count, error)
                self._count += 1
            else:
                self._read[self._count] = item
                self._waiting.add(self._count, self._work.size(item))
                self._count += 1

    def _start(self) -> None:
        """Start a batch for each worker, and queue one more for the first worker that finishes."""
        while len(self._waiting) and len(self._running) <= self._workers:
            numbers = self._waiting.take(last=self._ended)
            logger.debug("batch of %d, from item %d", len(numbers), min(numbers) + 1)
            items = [self._read.pop(number) for number in numbers]
            self._running[self._pool.submit(self._work.run, items)] = numbers

    def _collect(self) -> None:
        """Wait for a batch, and keep the results of all finished batches."""
        finished, _ = wait(self._running, return_when=FIRST_COMPLETED)
        for future in finished:
            numbers = self._running.pop(future)
            error = future.exception()
            if error is None:
                self._done.update(zip(numbers, future.result(), strict=True))
            else:
                self._fail(numbers[0], error)

    def _fail(self, number: int, error: BaseException) -> None:
        """Record an error; no result from this item on will be yielded."""
        self._ended = True
        if self._failed is None or number < self._failed[0]:
            self._failed = number, error
            self._waiting.drop_from(number)
