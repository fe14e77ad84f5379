"""Runs a function on a stream of items in several processes; the results come back in the order of the items.

The processes import no PyTorch, unless the function does.
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection, get_context, parent_process
from typing import Any, TypeVar

from xformc.errors import UserError

AHEAD = 2
"""The items that wait for each process."""

Job = TypeVar("Job")
Item = TypeVar("Item")
Result = TypeVar("Result")


def in_order(
    items: Iterable[Item], make: Callable[[Job], Callable[[Item], Result]], job: Job, workers: int
) -> Iterator[tuple[Item, Result]]:
    """Yield each item with the result of `make(job)`, which each process calls once; with one worker in this process.

    A job must be small: a process that ends before it has read more than a pipe holds would leave this one waiting.

    Raises: UserError if a process is killed, and what `make(job)` and its result raise.
    """
    if workers == 1:
        function = make(job)
        yield from ((item, function(item)) for item in items)
        return
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _begin, (make, job))
    waiting = deque[tuple[Item, Future[Result]]]()
    try:
        for item in items:
            waiting.append((item, pool.submit(_run, item)))
            if len(waiting) >= AHEAD * workers:
                yield _first_of(waiting)
        while waiting:
            yield _first_of(waiting)
    except BrokenProcessPool as error:
        hint = "continue with --resume, with fewer --workers if memory was short"
        raise UserError("one of the processes was killed", hint=hint) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _first_of(waiting: "deque[tuple[Item, Future[Result]]]") -> tuple[Item, Result]:
    item, result = waiting.popleft()
    return item, result.result()


_functions: list[Callable[[Any], Any]] = []
"""That of this process, if it is one of the pool; made by its first item, so that an error in it is a result."""


def _begin(make: Callable[[Any], Callable[[Any], Any]], job: object) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()

    def first(item: object) -> Any:
        _functions[0] = make(job)
        return _functions[0](item)

    _functions.append(first)


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _run(item: object) -> Any:
    return _functions[0](item)
