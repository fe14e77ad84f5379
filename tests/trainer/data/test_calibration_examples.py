"""Calibration examples of every task: the inputs of the training graph, one at a time and without padding."""

from pathlib import Path

import numpy as np
import pytest
from tiny_engine import train_tokenizer

from tests.task_specs import write_task
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.ops.roundable import linear_weights
from xformc.compiler.pipeline import compile_engine
from xformc.compiler.quantize.calibration import EXAMPLES, calibrate, calibrated_weights
from xformc.compiler.spec import Spec, load_spec
from xformc.errors import UserError
from xformc.format.tokens import BEGIN, END
from xformc.trainer.data.calibration_examples import calibration_examples

TRANSLATION = "extends: transformer_base\nsizes: {layers: 1, d_model: 8, d_ff: 8, heads: 1, vocabulary: 80}\n"


def translation(folder: Path) -> Spec:
    path = folder / "translation.yaml"
    path.write_text(TRANSLATION)
    return load_spec(path)


def written(folder: Path, name: str, *lines: str) -> Path:
    path = folder / name
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def arrays_of(folder: Path, task: str) -> Path:
    """Six examples of the task in an .npz file, of different lengths."""
    random, path = np.random.default_rng(0), folder / "valid.npz"
    if task == "images":
        np.savez(path, image=random.random((6, 3, 2, 3), np.float32), labels=random.integers(0, 4, 6))
    elif task == "frames":
        lengths = np.array([1, 2, 3, 4, 5, 5])
        frames, labels = random.random((6, 5, 6), np.float32), np.where(np.arange(5) < lengths[:, None], 1, -100)
        np.savez(path, frames=frames, frames_lengths=lengths, labels=labels)
    else:
        nodes = np.array([[5, 6, 0], [7, 0, 0], [5, 6, 7]] * 2)
        labels = np.where(nodes > 0, 1, -100)
        np.savez(path, nodes=nodes, links=np.ones((6, 3, 3), np.bool_), labels=labels)
    return path


def test_a_pair_is_the_source_with_its_end_and_the_target_after_the_begin_token(tmp_path: Path) -> None:
    train_tokenizer(tmp_path / "tokenizer.model")
    tokenizers = {name: tmp_path / "tokenizer.model" for name in ("source", "target")}
    files = [written(tmp_path, "valid.en", "one two three"), written(tmp_path, "valid.de", "hello world")]
    (example,) = calibration_examples(files, translation(tmp_path), tokenizers, None)
    assert list(example) == ["source", "target"] and example["source"].dtype == np.int64
    assert example["source"][0, -1] == END and example["target"][0, 0] == BEGIN
    assert all((ids > 0).all() and ids.shape[0] == 1 for ids in example.values())


def test_only_so_many_are_taken_and_they_are_spread_evenly(tmp_path: Path) -> None:
    lines = [" ".join(["word"] * (1 + index % 20)) for index in range(5 * EXAMPLES)]
    files = [written(tmp_path, "valid.en", *lines), written(tmp_path, "valid.de", *lines)]
    examples = calibration_examples(files, translation(tmp_path), None, None)
    lengths = [example["source"].shape[1] - 1 for example in examples]
    assert len(examples) == EXAMPLES and (lengths[0], lengths[-1]) == (1, 20)
    assert {lengths.count(length) for length in range(1, 21)} <= set(range(15, 37))


def test_a_language_model_takes_one_text_and_a_tagger_words_with_their_labels(tmp_path: Path) -> None:
    text = written(tmp_path, "valid.txt", "a b c", "d")
    examples = calibration_examples([text], write_task(tmp_path, "language_model"), None, None)
    assert [example["text"].shape for example in examples] == [(1, 4), (1, 2)]
    rows = written(tmp_path, "valid.tsv", "a b c\tA B C", "d e\tD E")
    examples = calibration_examples([rows], write_task(tmp_path, "tagging"), None, None)
    assert [example["words"].shape for example in examples] == [(1, 3), (1, 2)]


@pytest.mark.parametrize("task", ["images", "frames", "graph"])
def test_arrays_calibrate_every_product(task: str, tmp_path: Path) -> None:
    spec = write_task(tmp_path, task)
    examples = calibration_examples(
        [arrays_of(tmp_path, task)], spec, {}, [str(label) for label in range(4)][: 4 - (task != "images")]
    )
    assert len(examples) == 6
    graph = compile_engine(spec, "tensorrt").graph
    weights = calibrated_weights(spec.precisions("float8"), linear_weights(graph), examples=True)
    steps = calibrate(TorchModule(graph), weights, examples)
    assert steps and all(0 < step != 1.0 for step in steps.values())


@pytest.mark.parametrize(
    ("task", "names", "message"),
    [
        ("translation", ["valid.txt"], "translation is calibrated with a source and its target, not with 1"),
        ("language_model", ["valid.txt", "valid.txt"], "language_model is calibrated with one file, not with 2"),
        ("tagging", ["valid.txt"], "valid.txt: tagging with these inputs is calibrated with .tsv or .npz"),
        ("images", ["valid.txt"], "valid.txt: classification with these inputs is calibrated with .tsv or .npz"),
        ("language_model", ["valid.npz"], "valid.npz: language_model with these inputs is calibrated with text, not"),
        ("translation", ["valid.txt", "valid.npz"], "valid.npz: translation with these inputs is calibrated with text"),
    ],
)
def test_files_that_do_not_fit_the_task_are_refused(task: str, names: list[str], message: str, tmp_path: Path) -> None:
    written(tmp_path, "valid.txt", "a b c")
    spec = translation(tmp_path) if task == "translation" else write_task(tmp_path, task)
    with pytest.raises(UserError, match=message):
        calibration_examples([tmp_path / name for name in names], spec, None, None)


def test_text_for_weights_that_were_trained_on_arrays_is_refused(tmp_path: Path) -> None:
    rows = written(tmp_path, "valid.tsv", "a b\tA B")
    with pytest.raises(UserError, match="trained on arrays, without a tokenizer") as caught:
        calibration_examples([rows], write_task(tmp_path, "tagging"), {}, ["A", "B", "C", "D", "E"])
    assert caught.value.hint == "calibrate with an .npz file like the training data"
