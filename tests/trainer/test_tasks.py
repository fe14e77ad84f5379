"""Every task from data to the score of its engine, on data that a small model learns in a few seconds."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_line import CommandLine, mistake

from xformc.compiler.build import build_engine
from xformc.compiler.spec import Spec, load_spec
from xformc.compiler.weight_files import read_weights
from xformc.errors import UserError
from xformc.trainer.train import TrainResult, train

pytestmark = pytest.mark.processor

RECIPE = """
train:
  label_smoothing: 0.0
  schedule: {warmup_steps: 20, scale: 1.0, decay: linear}
  batch_tokens: 400
  steps: 120
  checkpoint: {every_steps: 60, every_minutes: null}
  average: 1
"""
SMALL = "layers: 1, d_model: 16, d_ff: 32, heads: 2, dropout: 0.0"
SPECS = {
    "classification": f"extends: text_classifier\nsizes: {{{SMALL}, vocabulary: 40}}\n"
    + RECIPE
    + "  tokenizer: {kind: word}\n",
    "tagging": "extends: bilstm_tagger\nsizes: {d_model: 16, vocabulary: 40, labels: 2, dropout: 0.0}\n"
    + RECIPE
    + "  tokenizer: {kind: word}\n",
    "language_model": f"extends: gpt\nsizes: {{{SMALL}, vocabulary: 40, max_positions: 20}}\n"
    + RECIPE
    + "  max_length: 20\n  tokenizer: {kind: char}\n",
    "images": """\
task: classification
sizes: {d_model: 16, height: 4, width: 3, channels: 1, labels: 2}
inputs: {image: {values: [height, width, channels]}}
model:
  hidden: {from: image, do: [linear: {over: [height, width, channels], to: d_model}, relu]}
  label: {from: hidden, do: [linear: labels]}
"""
    + RECIPE,
    "graphs": """\
task: tagging
sizes: {d_model: 16, d_k: 16, features: 2, labels: 2}
inputs: {nodes: {vectors: features}, edges: {edges: nodes}}
model:
  label:
    from: nodes
    do:
      own: {linear: d_model}
      query: {linear: d_k}
      key: {linear: {from: own, to: d_k}}
      keys: {as_keys: {from: key}}
      values: {as_keys: {from: own}}
      scores: {contract: {from: query, by: keys, over: d_k}}
      seen: {mask: {edges: edges}}
      weights: {softmax: keys}
      mixed: {contract: {by: values, over: keys}}
      output: {linear: labels}
"""
    + RECIPE,
}


def draw_classification(random: np.random.Generator, count: int) -> list[str]:
    """yes if the text has the word `one`."""
    texts = [random.choice(["one", "two", "three", "four"], random.integers(1, 6)) for _ in range(count)]
    return [f"{' '.join(words)}\t{'yes' if 'one' in words else 'no'}" for words in texts]


def draw_tagging(random: np.random.Generator, count: int) -> list[str]:
    """A word is `even` if its number is."""
    texts = [random.integers(0, 9, random.integers(1, 6)) for _ in range(count)]
    return [f"{' '.join(f'w{n}' for n in ns)}\t{' '.join('odd' if n % 2 else 'even' for n in ns)}" for ns in texts]


def draw_language_model(random: np.random.Generator, count: int) -> list[str]:
    """One letter, again and again."""
    return [str(random.choice(list("abcd"))) * int(random.integers(3, 30)) for _ in range(count)]


def draw_images(random: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    """Bright or dark."""
    labels = random.integers(0, 2, count)
    return {"image": random.normal(size=(count, 4, 3, 1)) / 4 + labels[:, None, None, None], "labels": labels}


def draw_graphs(random: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    """A node has the label of its only neighbour's first feature."""
    nodes = random.integers(0, 2, (count, 4, 2)).astype(np.float32)
    neighbour = random.integers(0, 4, (count, 4))
    edges = neighbour[:, :, None] == np.arange(4)
    labels = np.array(["no", "yes"])[np.take_along_axis(nodes[:, :, 0], neighbour, 1).astype(int)]
    return {"nodes": nodes, "nodes_lengths": np.full(count, 4), "edges": edges, "labels": labels}


DATA: dict[str, tuple[str, Callable[..., list[str] | dict[str, np.ndarray]]]] = {
    "classification": ("tsv", draw_classification),
    "tagging": ("tsv", draw_tagging),
    "language_model": ("txt", draw_language_model),
    "images": ("npz", draw_images),
    "graphs": ("npz", draw_graphs),
}


def write_data(folder: Path, name: str) -> Path:
    suffix, draw = DATA[name]
    random = np.random.default_rng(0)
    for split, count in (("train", 200), ("valid", 40)):
        drawn, path = draw(random, count), folder / f"{split}.{suffix}"
        if isinstance(drawn, dict):
            arrays: dict[str, Any] = drawn  # numpy's types would have the parameter allow_pickle be an array
            np.savez(path, **arrays)
        else:
            path.write_text("".join(f"{line}\n" for line in drawn), encoding="utf-8")
    return folder


def write_spec(folder: Path, name: str, precision: str = "auto") -> Spec:
    (folder / f"{name}.yaml").write_text(f"{SPECS[name]}  precision: {precision}\n", encoding="utf-8")
    return load_spec(folder / f"{name}.yaml")


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
