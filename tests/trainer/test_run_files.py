"""The files of a run, found from its folder, a checkpoint or a copy of its weights."""

from pathlib import Path

import pytest
from task_specs import TAGGING

from xformc.compiler.spec import Spec, load_spec
from xformc.errors import UserError
from xformc.trainer.run_files import RunFiles, find_run_files

TRANSLATION = "extends: transformer_base\nsizes: {layers: 1, d_model: 8, d_ff: 8, heads: 1, vocabulary: 40}\n"


def spec(folder: Path, text: str) -> Spec:
    (folder / "spec.yaml").write_text(text)
    return load_spec(folder / "spec.yaml")


def test_a_checkpoint_has_the_files_of_its_run(tmp_path: Path) -> None:
    checkpoint = tmp_path / "run" / "checkpoints" / "0001"
    checkpoint.mkdir(parents=True)
    shared = tmp_path / "run" / "tokenizer.model"
    shared.touch()
    found = find_run_files(checkpoint / "weights.safetensors", spec(tmp_path / "run", TRANSLATION))
    assert found == RunFiles({"source": shared, "target": shared})


def test_a_tokenizer_above_a_run_is_not_its_own(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "tokenizer.model").touch()
    (tmp_path / "run" / "weights.safetensors").touch()
    for weights in (tmp_path / "run", tmp_path / "run" / "weights.safetensors"):
        with pytest.raises(UserError, match=r"no tokenizer.model"):
            find_run_files(weights, spec(tmp_path / "run", TRANSLATION))


def test_each_input_may_have_its_own_tokenizer(tmp_path: Path) -> None:
    for name in ("source", "target"):
        (tmp_path / f"{name}.model").touch()
    found = find_run_files(tmp_path, spec(tmp_path, TRANSLATION))
    assert found.tokenizers == {name: tmp_path / f"{name}.model" for name in ("source", "target")}


def test_a_run_without_its_tokenizer_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no tokenizer.model, or source.model and target.model, beside these weights"):
        find_run_files(tmp_path, spec(tmp_path, TRANSLATION))


def test_labels_are_in_the_order_of_their_ids(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("B\nO\n")
    assert find_run_files(tmp_path, spec(tmp_path, TAGGING)) == RunFiles({}, {"labels": ["B", "O"]})
