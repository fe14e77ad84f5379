import threading
import time
from collections.abc import Callable, Generator, Iterator
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xformc.errors import UserError
from xformc.runtime.stream import Batching, Work, run_stream


def stream(
    items: Iterator[int], run: Callable[[list[int]], list[int]], *, workers: int = 2, tokens: int = 40, window: int = 20
) -> Generator[int]:
    work = Work(size=lambda item: 1 + item % 7, run=run, stop=lambda: None)
    return run_stream(items, work, workers, Batching(workers, tokens, window))


def doubled(items: list[int]) -> list[int]:
    return [2 * item for item in items]


def threads_left() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("xformc")]


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 100), st.integers(1, 4), st.integers(1, 60), st.integers(1, 30))
def test_results_come_in_order(length: int, workers: int, tokens: int, window: int) -> None:
    found = stream(iter(range(length)), doubled, workers=workers, tokens=tokens, window=window)
    assert list(found) == doubled(list(range(length)))
    assert not threads_left()


def test_no_more_is_read_than_the_window() -> None:
    read = list[int]()

    def endless() -> Iterator[int]:
        for item in count():
            read.append(item)
            yield item

    found = stream(endless(), doubled, window=20)
    for number in range(500):
        assert next(found) == 2 * number
        assert len(read) <= number + 20
    found.close()
    assert not threads_left()


def test_with_a_window_of_one_each_item_is_answered_before_the_next_is_read() -> None:
    order: list[str] = []

    def items() -> Iterator[int]:
        for item in range(3):
            order.append(f"read {item}")
            yield item

    for result in stream(items(), doubled, window=1):
        order.append(f"given {result}")
    assert order == ["read 0", "given 0", "read 1", "given 2", "read 2", "given 4"]


def test_workers_run_at_once_and_take_more_before_all_are_done() -> None:
    """The first batch waits for five others: with a fixed window, or one batch at a time, they would never come."""
    others = threading.Semaphore(0)

    def run(items: list[int]) -> list[int]:
        if 0 not in items:
            others.release()
            return doubled(items)
        for _ in range(5):
            assert others.acquire(timeout=10)
        return doubled(items)

    assert list(stream(iter(range(30)), run, workers=2, tokens=1, window=10)) == doubled(list(range(30)))


@pytest.mark.parametrize("workers", [1, 3])
def test_an_error_of_the_input_comes_after_the_results_before_it(workers: int) -> None:
    def items() -> Iterator[int]:
        yield from range(25)
        raise UserError("broken", place="line 26")

    given: list[int] = []
    with pytest.raises(UserError, match="line 26: broken"):
        given.extend(stream_into(given, items(), doubled, workers))
    assert given == doubled(list(range(25)))
    assert not threads_left()


@pytest.mark.parametrize("workers", [1, 3])
def test_an_error_of_a_worker_comes_after_the_results_before_it(workers: int) -> None:
    def run(items: list[int]) -> list[int]:
        if 17 in items:
            raise ValueError("seventeen")
        return doubled(items)

    given: list[int] = []
    with pytest.raises(ValueError, match="seventeen"):
        given.extend(stream_into(given, iter(range(1000)), run, workers))
    assert given == doubled(list(range(len(given))))
    assert len(given) <= 17
    assert not threads_left()


def stream_into(
    given: list[int], items: Iterator[int], run: Callable[[list[int]], list[int]], workers: int
) -> list[int]:
    """Keep the results that come before an error."""
    for result in stream(items, run, workers=workers):
        given.append(result)
    return []


def test_a_stream_that_is_left_stops_what_runs() -> None:
    stopped = threading.Event()

    def run(items: list[int]) -> list[int]:
        if items[0] > 0:
            assert stopped.wait(timeout=10)
        return doubled(items)

    work = Work(size=lambda item: 1, run=run, stop=stopped.set)
    found = run_stream(iter(range(100)), work, 2, Batching(2, 1, 10))
    assert next(found) == 0
    began = time.perf_counter()
    found.close()
    assert time.perf_counter() - began < 5
    assert not threads_left()
