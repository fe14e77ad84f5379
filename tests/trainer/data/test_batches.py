import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_model import pair_examples

from xformc.trainer.data.batches import Examples, make_batch, plan_batches


def draw_examples(count: int, longest: int, seed: int) -> Examples:
    random = np.random.default_rng(seed)
    sentences = [random.integers(4, 50, random.integers(1, longest)).tolist() for _ in range(2 * count)]
    return pair_examples(sentences[:count], sentences[count:], longest)


@given(count=st.integers(1, 200), longest=st.integers(2, 40), budget=st.integers(42, 400), seed=st.integers(0, 9))
def test_plan_batches_deals_every_pair_once_within_the_budget(count: int, longest: int, budget: int, seed: int) -> None:
    examples = draw_examples(count, longest, seed)
    plan = plan_batches(examples, budget, seed, epoch=3)
    assert sorted(np.concatenate(plan).tolist()) == list(range(count))
    for rows in plan:
        batch = make_batch(examples, rows)
        assert batch.inputs["source"].numel() <= budget
        assert batch.inputs["target"].numel() <= budget


def test_plan_batches_depends_on_seed_and_epoch_alone() -> None:
    examples = draw_examples(100, 20, 0)

    def plan(seed: int, epoch: int) -> list[list[int]]:
        return [rows.tolist() for rows in plan_batches(examples, 200, seed, epoch)]

    assert plan(1, 2) == plan(1, 2)
    assert plan(1, 2) != plan(1, 3)
    assert plan(1, 2) != plan(2, 2)


def test_plan_batches_has_little_padding() -> None:
    examples = draw_examples(2000, 30, 0)
    batches = [make_batch(examples, rows) for rows in plan_batches(examples, 1000, 1, 0)]
    assert sum(batch.count for batch in batches) > 0.85 * sum(batch.labels.numel() for batch in batches)


def test_make_batch_shifts_the_target_by_one() -> None:
    examples = pair_examples([[7, 8], [9]], [[5], [6, 7, 8]], longest=10)
    batch = make_batch(examples, np.array([0, 1]))
    assert batch.inputs["source"].tolist() == [[7, 8, 3, 0], [9, 3, 0, 0]]
    assert batch.inputs["target"].tolist() == [[2, 5, 0, 0], [2, 6, 7, 8]]
    assert batch.labels.tolist() == [[5, 3, 0, 0], [6, 7, 8, 3]]
    assert batch.count == 6
    assert {batch.inputs["source"].dtype, batch.inputs["target"].dtype, batch.labels.dtype} == {torch.int64}


def test_pair_examples_drops_and_counts_long_pairs() -> None:
    examples = pair_examples([[4] * 3, [4] * 4, [4]], [[5], [5], [5] * 4], longest=4)
    assert (len(examples), examples.too_long) == (1, 2)
