"""Makes the next items of an iterator in a thread, while the last ones are used."""

import threading
from collections.abc import Generator, Iterator
from queue import Empty, Full, Queue
from typing import TypeVar

Item = TypeVar("Item")

AHEAD = 8
SECONDS = 0.1
"""How often the thread looks whether its items are still wanted."""


def prefetched(items: Iterator[Item], ahead: int = AHEAD) -> Generator[Item]:
    """Yield the items in order; a thread has up to `ahead` of them ready. Raises: what `items` raises."""
    ready = Queue[tuple[Item, None] | tuple[None, BaseException]](ahead)
    ended = threading.Event()

    def put(item: tuple[Item, None] | tuple[None, BaseException]) -> None:
        while not ended.is_set():
            try:
                return ready.put(item, timeout=SECONDS)
            except Full:
                continue

    def work() -> None:
        try:
            for item in items:
                put((item, None))
                if ended.is_set():
                    return
            put((None, StopIteration()))
        except BaseException as error:  # it is raised where the items are used
            put((None, error))

    thread = threading.Thread(target=work, name="prefetch", daemon=True)
    thread.start()
    try:
        while True:
            item, error = ready.get()
            if isinstance(error, StopIteration):
                return
            if error is not None:
                raise error
            yield item  # pyright: ignore[reportReturnType]
    finally:
        ended.set()
        while True:
            try:
                ready.get_nowait()
            except Empty:
                break
        thread.join()
