from hypothesis import given
from hypothesis import strategies as st

from xformc.runtime.batches import batches_by_length


@given(st.lists(st.integers(1, 50)), st.integers(1, 200))
def test_batches_hold_each_index_once_within_the_budget(lengths: list[int], budget: int) -> None:
    groups = batches_by_length(lengths, budget)
    assert sorted(index for group in groups for index in group) == list(range(len(lengths)))
    for group in groups:
        assert len(group) == 1 or len(group) * max(lengths[index] for index in group) <= budget


def test_batches_put_like_lengths_together() -> None:
    assert batches_by_length([20, 90, 20, 90, 30], 180) == [[1, 3], [4, 0, 2]]


def test_batches_of_short_sentences_are_bounded_in_rows() -> None:
    assert [len(group) for group in batches_by_length([2] * 10, 64)] == [4, 4, 2]
