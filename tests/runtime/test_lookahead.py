from hypothesis import given
from hypothesis import strategies as st

from xformc.runtime.lookahead import Lookahead


def take_all(sizes: list[int], budget: int, workers: int, *, last: bool) -> list[list[int]]:
    waiting = Lookahead(budget, workers)
    for number, size in enumerate(sizes):
        waiting.add(number, size)
    batches: list[list[int]] = []
    while len(waiting):
        batches.append(waiting.take(last=last))
    return batches


@given(st.lists(st.integers(1, 50)), st.integers(1, 200), st.integers(1, 4), st.booleans())
def test_batches_hold_each_item_once_within_the_budget(sizes: list[int], budget: int, workers: int, last: bool) -> None:
    batches = take_all(sizes, budget, workers, last=last)
    assert sorted(number for batch in batches for number in batch) == list(range(len(sizes)))
    for batch in batches:
        assert batch == sorted(batch)
        assert len(batch) == 1 or len(batch) * max(sizes[number] for number in batch) <= budget


@given(st.lists(st.integers(1, 50), min_size=1), st.integers(1, 200))
def test_a_batch_has_the_oldest_item_while_others_follow(sizes: list[int], budget: int) -> None:
    remaining = set(range(len(sizes)))
    for batch in take_all(sizes, budget, 2, last=False):
        assert batch[0] == min(remaining)
        remaining -= set(batch)


def test_batches_put_like_sizes_together() -> None:
    assert take_all([20, 90, 20, 90, 30], 180, 1, last=True) == [[1, 3], [0, 2, 4]]
    assert take_all([20, 90, 20, 90, 30], 60, 1, last=False) == [[0, 2], [1], [3], [4]]


def test_a_batch_has_as_many_rows_as_the_budget_allows() -> None:
    assert [len(batch) for batch in take_all([16] * 10, 64, 1, last=False)] == [4, 4, 2]


def test_workers_share_what_is_left_at_the_end() -> None:
    assert [len(batch) for batch in take_all([10] * 8, 1000, 1, last=True)] == [8]
    assert [len(batch) for batch in take_all([10] * 80, 1000, 2, last=True)] == [40, 20, 12, 8]


def test_items_from_a_number_on_can_be_dropped() -> None:
    waiting = Lookahead(100, 1)
    for number, size in enumerate([10, 30, 20, 10]):
        waiting.add(number, size)
    waiting.drop_from(2)
    assert waiting.take(last=False) == [0, 1]
    assert len(waiting) == 0
