"""`xformc build`, `inspect` and `predict` for engines that predict labels, from a folder like a finished run's."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import CommandLine, mistake
from safetensors.numpy import save_file
from task_specs import PAIRS, SPECS
from tiny_engine import train_tokenizer

from xformc.compiler import compile_spec
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.spec import load_spec
from xformc.errors import UserError
from xformc.runtime.engine import load

BUILD = ("build", "--target", "portable")


def write_run(folder: Path, text: str, labels: str | None, *, tokenizer: bool = True) -> Path:
    folder.mkdir()
    (folder / "spec.yaml").write_text(text)
    if tokenizer:
        train_tokenizer(folder / "tokenizer.model")
    if labels is not None:
        (folder / "labels.txt").write_text("".join(f"{label}\n" for label in labels.split()))
    module = TorchModule(compile_spec(load_spec(folder / "spec.yaml")), seed=1)
    save_file(module.arrays(), folder / "weights.safetensors")
    return folder


@pytest.fixture
def pairs(xformc: CommandLine, tmp_path: Path) -> Path:
    run = write_run(tmp_path / "run", PAIRS, "no perhaps yes")
    assert xformc(*BUILD, run / "spec.yaml", "--weights", run, "--out", tmp_path / "engine").code == 0
    return tmp_path / "engine"


def test_build_takes_the_labels_of_the_run_and_inspect_shows_them(xformc: CommandLine, pairs: Path) -> None:
    lines = xformc("inspect", pairs).out.splitlines()
    assert lines[0].startswith("spec: classification, ")
    assert lines[2:6] == [
        "inputs       premise: tokens of 80 pieces (tokenizer.model)",
        "             claim: tokens of 80 pieces (tokenizer.model)",
        "labels       3: no, perhaps, yes",
        "outputs      probabilities [batch, labels] float32",
    ]


def test_predict_reads_columns_and_prints_a_label_a_line(xformc: CommandLine, pairs: Path) -> None:
    lines = "hello world\ttwo dogs\ntwenty-one\t\n"
    result = xformc("predict", pairs, stdin=lines)
    assert (result.code, result.err) == (0, "")
    labels = result.out.splitlines()
    assert len(labels) == 2 and set(labels) <= {"no", "perhaps", "yes"}
    rows = [json.loads(line) for line in xformc("predict", pairs, "--json", stdin=lines).out.splitlines()]
    assert [row["line"] for row in rows] == [1, 2] and [row["label"] for row in rows] == labels
    assert list(rows[0]["probabilities"]) == ["no", "perhaps", "yes"]
    assert sum(rows[0]["probabilities"].values()) == pytest.approx(1, abs=1e-5)


def test_an_example_may_be_a_mapping_from_the_inputs(pairs: Path) -> None:
    with load(pairs, threads=1) as engine:
        named = {"claim": "two dogs", "premise": "hello world"}
        (found,), (expected,) = engine.predict([named]), engine.predict([("hello world", "two dogs")])
        assert found.probabilities.tolist() == expected.probabilities.tolist()
        for wrong in ({"premise": "hello world", "claims": "two dogs"}, {"premise": "hello world"}):
            with pytest.raises(UserError, match="needs a text for each of premise, claim, found premise"):
                engine.predict([wrong])
        unusable: tuple[Any, ...] = ({"hello world", "two dogs"}, 3)
        for unordered in unusable:
            with pytest.raises(UserError, match="an example must be a text or several, found "):
                engine.predict([unordered])


def test_predict_reads_lines_of_json(xformc: CommandLine, pairs: Path) -> None:
    line = json.dumps({"premise": "hello\nworld", "claim": "two dogs"})
    found = xformc("predict", pairs, "--json", "--json-input", stdin=f"{line}\n")
    assert found.out == xformc("predict", pairs, "--json", stdin="hello world\ttwo dogs\n").out
    more = json.dumps({"premise": "hello", "claim": "two", "beam_size": 2})
    wrong = mistake(xformc("predict", pairs, "--json", "--json-input", stdin=f"{more}\n"))
    assert wrong.startswith("line 1: beam_size is no option of a text")


def test_predict_names_the_line_with_too_few_columns(xformc: CommandLine, pairs: Path) -> None:
    result = xformc("predict", pairs, stdin="hello world\ttwo dogs\nhello\n")
    assert result.code == 2
    assert result.err.startswith("error: line 2: needs a text for each of premise, claim, found 1\nhint: ")


def test_predict_labels_words_with_spaces_between(xformc: CommandLine, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", SPECS["tagging"], "A B C D E")
    xformc(*BUILD, run / "spec.yaml", "--weights", run, "--out", tmp_path / "engine")
    assert "labels       5 for each position of words: A, B, C, D, E\n" in xformc("inspect", tmp_path / "engine").out
    result = xformc("predict", tmp_path / "engine", stdin="two dogs\n\none man in the snow\n")
    assert [len(line.split(" ")) if line else 0 for line in result.out.splitlines()] == [2, 0, 5]
    (row,) = map(json.loads, xformc("predict", tmp_path / "engine", "--json", stdin="two dogs\n").out.splitlines())
    assert len(row["labels"]) == len(row["probabilities"]) == 2
    assert set(row["probabilities"][0]) == set("ABCDE")


def test_predict_takes_arrays_from_a_file(xformc: CommandLine, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", SPECS["images"], "cat dog hen owl", tokenizer=False)
    assert xformc(*BUILD, run / "spec.yaml", "--weights", run, "--out", tmp_path / "engine").code == 0
    np.savez(tmp_path / "data.npz", image=np.random.default_rng(0).standard_normal((3, 3, 2, 3)), labels=np.zeros(3))
    result = xformc("predict", tmp_path / "engine", "--input", tmp_path / "data.npz")
    assert len(result.out.splitlines()) == 3 and set(result.out.split()) <= {"cat", "dog", "hen", "owl"}
    found = mistake(xformc("predict", tmp_path / "engine", stdin="a cat\n"))
    assert found == "a cat: 'image' is read from a .png, .jpg or .jpeg file\nhint: or give arrays, as an .npz file"
    np.savez(tmp_path / "data.npz", image=np.array([{}]))
    found = mistake(xformc("predict", tmp_path / "engine", "--input", tmp_path / "data.npz"))
    assert "data.npz: the array 'image' holds Python objects\nhint: write numbers or texts" in found
    (tmp_path / "data.npz").write_text("text")
    assert "not an .npz file" in mistake(xformc("predict", tmp_path / "engine", "--input", tmp_path / "data.npz"))
    missing = mistake(xformc("predict", tmp_path / "engine", "--input", tmp_path / "none.npz"))
    assert missing == f"{tmp_path / 'none.npz'}: No such file or directory"


def test_commands_for_another_task_name_the_right_one(xformc: CommandLine, pairs: Path, copy_engine: Path) -> None:
    found = mistake(xformc("translate", pairs, stdin="hello\n"))
    assert found.startswith("spec is a classification engine; translate needs a translation engine\nhint: ")
    assert "xformc predict on the command line" in found
    assert "xformc translate on the command line" in mistake(xformc("predict", copy_engine, stdin="hello\n"))


def test_build_needs_the_labels_of_trained_weights(xformc: CommandLine, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", SPECS["images"], None, tokenizer=False)
    arguments = (*BUILD, run / "spec.yaml", "--weights", run, "--out", tmp_path / "engine")
    assert mistake(xformc(*arguments)).startswith(f"{run}: no labels.txt beside these weights\nhint: ")
    (run / "labels.txt").write_text("cat\ndog\n")
    assert mistake(xformc(*arguments)).startswith("the model has 4 labels, found 2 different names\nhint: ")
