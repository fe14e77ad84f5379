"""Pairs of any inputs, for a contrastive loss."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sounds import tone, write_wav

from xformc.compiler.spec import load_spec
from xformc.errors import UserError
from xformc.trainer.data.data_schema import data_schema
from xformc.trainer.data.dataset import encode_split, read_split

IMAGES = """\
sizes: {d_model: 4, height: 4, width: 4}
inputs: {image: {values: [height, width]}}
results: {meaning: {vectors: sight}}
model: {sight: {from: image, do: [linear: {over: [height, width], to: d_model}]}}
"""
SOUNDS = """\
sizes: {sample_rate: 8000, hop: 80, d_model: 4}
inputs: {wave: {vectors: hop, rate: sample_rate}}
results: {meaning: {vectors: sound}}
model: {sound: {from: wave, do: [linear: d_model, mean]}}
"""


def examples(folder: Path, text: str, path: Path) -> Any:
    (folder / "model.yaml").write_text(text)
    schema = data_schema(load_spec(folder / "model.yaml"))
    return encode_split(read_split((path,), schema), schema, None, {})


def test_pairs_of_images_are_the_first_rows_and_then_the_second(tmp_path: Path) -> None:
    first = np.arange(48, dtype=np.float32).reshape(3, 4, 4)
    np.savez(tmp_path / "train.npz", image=first, image_similar=first + 100)
    column = examples(tmp_path, IMAGES, tmp_path / "train.npz").inputs["image"]
    assert len(column) == 3 and column.widths(100).tolist() == [8, 8, 8]
    batch = column.at(np.array([2, 0])).tensors("image", np.array([0, 1]), 0)["image"].numpy()
    np.testing.assert_array_equal(batch, np.concatenate([first[[2, 0]], first[[2, 0]] + 100]))


def test_pairs_of_files_are_read(tmp_path: Path) -> None:
    for index, count in enumerate((160, 320, 400)):
        write_wav(tmp_path / f"{index}.wav", tone(count))
    (tmp_path / "train.tsv").write_text("0.wav\t1.wav\n1.wav\t2.wav\n")
    column = examples(tmp_path, SOUNDS, tmp_path / "train.tsv").inputs["wave"]
    assert column.lengths().tolist() == [4, 5] and column.widths(100).tolist() == [8, 12]


def test_pairs_beside_a_result_of_single_examples_are_refused(tmp_path: Path) -> None:
    text = IMAGES.replace("{vectors: sight}", "{vectors: sight}, bright: {numbers: sight}")
    np.savez(
        tmp_path / "train.npz", image=np.zeros((3, 4, 4)), image_similar=np.zeros((3, 4, 4)), bright=np.zeros((3, 4))
    )
    with pytest.raises(UserError) as caught:
        examples(tmp_path, text, tmp_path / "train.npz")
    assert caught.value.message == "'meaning' is trained on pairs of examples, and 'bright' on single ones"
    assert caught.value.place == str(tmp_path / "train.npz")


def test_a_size_that_only_a_rate_uses_is_used(tmp_path: Path) -> None:
    (tmp_path / "model.yaml").write_text(SOUNDS)
    resolved = load_spec(tmp_path / "model.yaml").resolved_yaml()
    assert "sample_rate: 8000" in resolved
    (tmp_path / "again.yaml").write_text(resolved)
    assert load_spec(tmp_path / "again.yaml").graph() == load_spec(tmp_path / "model.yaml").graph()
