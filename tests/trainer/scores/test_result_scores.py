"""The scores of declared results."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from xformc.compiler.spec import load_spec
from xformc.errors import UserError
from xformc.trainer.data.columns import Groups
from xformc.trainer.data.targets.target import Target
from xformc.trainer.scores.result_scores import SCORES
from xformc.trainer.train import train


def recall(vectors: np.ndarray) -> float | None:
    target = Target("meaning", "meaning", "vectors", (2,), None, {})
    first, *_ = SCORES["vectors"](target, list(vectors), Groups(len(vectors) // 2), ())
    return first.value


def test_recall_counts_the_nearest_and_equal_vectors_find_nothing() -> None:
    corners = np.array([[1, 0], [0, 1], [-1, 0]], np.float32)
    assert recall(np.concatenate([corners, corners])) == 1
    assert recall(np.concatenate([corners, np.roll(corners, 1, axis=0)])) == 0
    assert recall(np.ones((6, 2), np.float32)) == 0


RECIPE = """
train: {steps: 1, batch_tokens: 64, average: 1, schedule: {kind: constant, peak: 0.001}}
"""
BY_CTC = """
sizes: {features: 4, vocabulary: 8}
inputs: {frames: {vectors: features}}
results: {text: {ctc: logits}}
model: {logits: {from: frames, do: [linear: vocabulary]}}
"""
WRITTEN = """
sizes: {features: 4, vocabulary: 8, d_model: 8}
inputs: {frames: {vectors: features}, text: {tokens: vocabulary}}
results: {text: {text: logits}}
model:
  vector: {from: frames, do: [linear: d_model, mean]}
  states: {from: text, do: [embedding: d_model, {gru_from: {start: vector}}]}
  logits: {from: states, do: [linear: vocabulary]}
"""


@pytest.mark.processor
@pytest.mark.parametrize(("model", "prefix"), [(BY_CTC, "text_"), (WRITTEN, "")])
def test_texts_are_compared_with_all_that_the_vocabulary_lacks(tmp_path: Path, model: str, prefix: str) -> None:
    for name, text in (("train", "ab"), ("valid", "abxyz")):  # x, y and z are in no training text
        arrays: dict[str, Any] = {"frames": np.ones((2, 8, 4), np.float32), "frames_lengths": np.array([8, 8])}
        np.savez(tmp_path / f"{name}.npz", **arrays, text=np.array([text, text]))
    (tmp_path / "model.yaml").write_text(model + RECIPE)
    scores = train(load_spec(tmp_path / "model.yaml"), tmp_path, tmp_path / "run").scores
    assert scores[f"{prefix}cer"].note.endswith("errors in 10 characters")
    assert scores[f"{prefix}exact_match"].value == 0


@pytest.mark.parametrize("name", ["frames", "frames_lengths", "amount"])
def test_arrays_with_another_number_of_rows_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "model.yaml").write_text(
        "sizes: {features: 4, numbers: 1}\ninputs: {frames: {vectors: features}}\n"
        "results: {amount: {numbers: made}}\nmodel: {made: {from: frames, do: [mean, linear: numbers]}}\n" + RECIPE
    )
    arrays: dict[str, Any] = {
        "frames": np.ones((3, 8, 4)),
        "frames_lengths": np.array([8, 8, 8]),
        "amount": np.ones((3, 1)),
    }
    for split in ("train", "valid"):
        np.savez(tmp_path / f"{split}.npz", **(arrays | {name: arrays[name][:2]}))
    with pytest.raises(UserError, match=f"one row for each example; .*'{name}' has 2"):
        train(load_spec(tmp_path / "model.yaml"), tmp_path, tmp_path / "run")
    assert not (tmp_path / "run").exists()
