"""The scores of declared results."""

import numpy as np

from xformc.trainer.data.columns import Groups
from xformc.trainer.data.targets.target import Target
from xformc.trainer.scores.result_scores import SCORES


def recall(vectors: np.ndarray) -> float | None:
    target = Target("meaning", "meaning", "vectors", (2,), None, {})
    first, *_ = SCORES["vectors"](target, list(vectors), Groups(len(vectors) // 2), ())
    return first.value


def test_recall_counts_the_nearest_and_equal_vectors_find_nothing() -> None:
    corners = np.array([[1, 0], [0, 1], [-1, 0]], np.float32)
    assert recall(np.concatenate([corners, corners])) == 1
    assert recall(np.concatenate([corners, np.roll(corners, 1, axis=0)])) == 0
    assert recall(np.ones((6, 2), np.float32)) == 0
