"""Every task from data to the score of its engine, on data that a small model learns in a few seconds."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from command_line import CommandLine, mistake
from learnable_tasks import DATA, write_data, write_spec

from xformc.compiler.build import build_engine
from xformc.compiler.spec import load_spec
from xformc.compiler.weight_files import read_weights
from xformc.errors import UserError
from xformc.trainer.train import TrainResult, train

pytestmark = pytest.mark.processor


def run(folder: Path, name: str, precision: str = "auto") -> TrainResult:
    torch.set_num_threads(1)
    return train(write_spec(folder, name, precision), write_data(folder, name), folder / "run")


def build(folder: Path, name: str) -> Path:
    run = folder / "run"
    labels = (run / "labels.txt").read_text().split() if (run / "labels.txt").exists() else None
    tokenizers = {"text": run / "tokenizer.model"} if (run / "tokenizer.model").exists() else None
    weights = read_weights(run).arrays
    build_engine(load_spec(folder / f"{name}.yaml"), weights, tokenizers, "portable", folder / "engine", labels=labels)
    return folder / "engine"


@pytest.mark.parametrize("name", ["classification", "tagging", "images", "graphs"])
def test_labels_are_learnt_and_evaluated(name: str, tmp_path: Path, xformc: CommandLine) -> None:
    result = run(tmp_path, name)
    accuracy = result.scores["accuracy"].value
    assert accuracy is not None
    assert accuracy > 0.9
    test = tmp_path / f"valid.{DATA[name][0]}"
    found = json.loads(xformc("evaluate", build(tmp_path, name), test, "--json", "--threads", "1").out)
    assert found["accuracy"] == accuracy
    assert found["macro_f1"] == result.scores["macro_f1"].value
    assert found["examples"] == 40


@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-4), ("bfloat16", 1e-2)])
def test_language_model_is_learnt_and_evaluated(
    precision: str, tolerance: float, tmp_path: Path, xformc: CommandLine
) -> None:
    """The validation loss is of the precision of training, the perplexity of float32."""
    result = run(tmp_path, "language_model", precision)
    perplexity = result.scores["perplexity"].value
    assert perplexity is not None
    assert perplexity < 2.5
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert np.log(perplexity) == pytest.approx(lines[-1]["valid_loss"], rel=tolerance)
    engine = build(tmp_path, "language_model")
    found = json.loads(xformc("evaluate", engine, tmp_path / "valid.txt", "--json").out)
    assert found["perplexity"] == pytest.approx(perplexity)
    assert found["bits_per_byte"] == pytest.approx(np.log2(perplexity) * 710 / 630)
    assert mistake(xformc("evaluate", engine, tmp_path / "valid.txt", "--beam-size", "2", "--truncate")) == (
        "--beam-size and --truncate do not apply to a language_model engine"
    )
    assert mistake(xformc("evaluate", engine, "a", "b")).startswith("this engine is evaluated on one file, found 2")
    rounded = ("--precision", "int8", "--compare", tmp_path / "valid.txt", "-o", tmp_path / "small")
    built = xformc("build", tmp_path / "run", "--target", "portable", *rounded)
    assert f"perplexity lost to quantization: {perplexity:.2f} in float32, " in built.out


def test_run_of_labels_names_them(tmp_path: Path) -> None:
    spec = write_spec(tmp_path, "tagging")
    write_data(tmp_path, "tagging")
    train(spec, tmp_path, tmp_path / "run", minutes=0.001)
    assert (tmp_path / "run" / "labels.txt").read_text() == "even\nodd\n"
    again = train(spec, tmp_path, tmp_path / "run", minutes=0.001, resume=True)
    assert again.state.step >= 1
    (tmp_path / "valid.tsv").write_text("w1\tneither\n")
    with pytest.raises(UserError, match="the model does not know: neither"):
        train(spec, tmp_path, tmp_path / "other")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("images", "no file train.tsv or train.npz"),
        ("language_model", "no file train.txt"),
        ("tagging", "no file train.tsv or train.npz"),
    ],
)
def test_data_of_another_task_is_refused(name: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "train.en").write_text("one\n")
    with pytest.raises(UserError, match=message.replace(".", r"\.")):
        train(write_spec(tmp_path, name), tmp_path, tmp_path / "run")
    with pytest.raises(UserError, match="--languages en-de needs the task translation"):
        train(write_spec(tmp_path, name), tmp_path, tmp_path / "run", languages="en-de")
