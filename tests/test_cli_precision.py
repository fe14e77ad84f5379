"""`xformc build --precision` and `--compare`, and their error messages."""

import json
from pathlib import Path
from typing import get_args

import pytest
from command_line import CommandLine, mistake
from safetensors.numpy import save_file
from tiny_engine import train_tokenizer

from tests.task_specs import LANGUAGE_MODEL
from xformc.compiler import compile_spec
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.spec import load_spec
from xformc.format.precision import WORDS, Precision, PrecisionWord
from xformc.trainer.scores import rounding_cost

SPEC = "extends: transformer_base\nsizes: {layers: 1, d_model: 16, d_ff: 24, heads: 2, vocabulary: 80}\n"
BUILD = ("build", "--target", "portable")
TEXT = "one two three four five\nsix seven eight nine ten\n"


def test_every_precision_has_its_name_and_some_a_short_one() -> None:
    assert tuple(WORDS) == get_args(PrecisionWord)
    assert [WORDS[name] for name in get_args(Precision)] == list(get_args(Precision))
    assert set(WORDS.values()) == set(get_args(Precision))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A folder like a finished run's, with random weights, and a source and its reference beside it."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "spec.yaml").write_text(SPEC)
    train_tokenizer(folder / "tokenizer.model")
    module = TorchModule(compile_spec(load_spec(folder / "spec.yaml")), seed=1)
    save_file(module.arrays(), folder / "weights.safetensors")
    for name in ("source", "reference"):
        (tmp_path / name).write_text(TEXT)
    return folder


def test_precision_is_shown_by_inspect_and_verified(xformc: CommandLine, run: Path, tmp_path: Path) -> None:
    out = tmp_path / "engine"
    built = xformc(*BUILD, run / "spec.yaml", "--weights", run, "--precision", "int8", "--out", out)
    assert built.code == 0 and "products with int8 and their definition" in built.out
    shown = xformc("inspect", out).out
    assert "portable, int8," in shown and "agrees" in shown
    assert [line.strip() for line in built.out.splitlines()[1:]] == [
        line.strip() for line in xformc("inspect", out, "--certificate").out.splitlines()
    ]
    assert xformc("verify", out).code == 0


def compared(*files: str | Path) -> list[str | Path]:
    """The options that name the files of a test set."""
    return [word for file in files for word in ("--compare", file)]


def test_compare_states_what_rounding_costs(xformc: CommandLine, run: Path, tmp_path: Path) -> None:
    out, files = tmp_path / "engine", (tmp_path / "source", tmp_path / "reference")
    result = xformc(*BUILD, run / "spec.yaml", "--weights", run, "--precision", "fp16", *compared(*files), "--out", out)
    assert result.code == 0 and "BLEU lost to quantization: 0.00 in float32, 0.00 here" in result.out
    stage = json.loads((out / "certificate.json").read_text())["stages"][-1]
    assert (stage["name"], stage["bound"]) == ("bleu", 0.3)


def test_compare_takes_chrf_where_bleu_is_undefined(xformc: CommandLine, run: Path, tmp_path: Path) -> None:
    """Every reference is shorter than four words."""
    (tmp_path / "short").write_text("two words\n")
    options = ("--precision", "fp16", *compared(tmp_path / "short", tmp_path / "short"), "--out", tmp_path / "engine")
    result = xformc(*BUILD, run / "spec.yaml", "--weights", run, *options)
    assert result.code == 0 and "chrF2 lost to quantization: " in result.out
    stage = json.loads((tmp_path / "engine" / "certificate.json").read_text())["stages"][-1]
    assert (stage["name"], stage["bound"]) == ("chrf", 0.3) and "1 of 1 outputs are the same" in stage["detail"]


def test_compare_refuses_an_engine_that_lost_too_much(
    xformc: CommandLine, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(rounding_cost.BOUNDS, "bleu", rounding_cost.Bound(-0.1))
    out, files = tmp_path / "engine", (tmp_path / "source", tmp_path / "reference")
    found = mistake(
        xformc(*BUILD, run / "spec.yaml", "--weights", run, "--precision", "int8", *compared(*files), "--out", out)
    )
    assert "quantization costs 0.00 BLEU" in found and "hint: store sensitive weights more precisely" in found
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--precision", "int9"), "'int9' is not one of 'float32', 'float16', 'bfloat16', 'int8'"),
        (("--weights", "RUN", *compared("source", "reference")), "no weights are quantized"),
        (
            ("--precision", "int8", *compared("source", "reference")),
            "--compare needs a trained model, not randomly initialized weights",
        ),
        (("--weights", "RUN", "--precision", "int8", *compared("source", "gone")), "gone"),
        (("--weights", "RUN", "--precision", "int8", *compared("source", "short")), "has 1 lines, but"),
    ],
)
def test_a_mistake_is_one_message(
    xformc: CommandLine, run: Path, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    (tmp_path / "short").write_text("two words\n")
    places = {"RUN": run, **{name: tmp_path / name for name in ("source", "reference", "gone", "short")}}
    given = [places.get(argument, argument) for argument in arguments]
    found = mistake(xformc(*BUILD, run / "spec.yaml", *given, "--out", tmp_path / "engine"))
    assert message in found
    assert not (tmp_path / "engine").exists()


@pytest.mark.parametrize("word", ["int8", "fp8"])
def test_a_table_that_is_looked_up_alone_has_no_products_to_calibrate(
    xformc: CommandLine, tmp_path: Path, word: str
) -> None:
    path, text = tmp_path / "spec.yaml", tmp_path / "text"
    path.write_text(f"{LANGUAGE_MODEL}precision: {{decoder/embed: {word}}}\n")
    text.write_text(TEXT)
    arguments = ("build", path, "--target", "tensorrt", "--calibrate", text, "--out", tmp_path / "engine")
    assert "are calibrated, and there are none" in mistake(xformc(*arguments))


def test_a_precision_that_does_not_fit_is_shown_where_it_counts(xformc: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(f"{SPEC}precision: {{default: fp8, logits: fp8}}\n")
    for arguments, column in (((), 22), (("--precision", "int8"), 35)):
        found = mistake(xformc(*BUILD, path, *arguments, "--out", tmp_path / "engine"))
        assert found.startswith(f"{path}:3:{column}: float8 matrix products need TensorRT")


def test_calibrate_takes_texts_like_those_of_training(xformc: CommandLine, run: Path, tmp_path: Path) -> None:
    out, files = tmp_path / "engine", (tmp_path / "source", tmp_path / "reference")
    pytest.importorskip("tensorrt_rtx")
    built = xformc(
        *("build", run / "spec.yaml", "--weights", run, "--target", "tensorrt", "--precision", "fp8"),
        *("--calibrate", files[0], "--calibrate", files[1]),
        *("--profile", "batch=1,source=1:4:8,room=1:4:8", "--out", out),
    )
    assert built.code == 0 and "products with float8 and their definition" in built.out
    shown = xformc("inspect", out).out
    assert "tensorrt, float8," in shown and "calibration  of what products are given, from 2 examples, by mse" in shown
    assert "float8" in xformc("verify", out).out


def test_fresh_weights_are_calibrated_with_the_words_of_the_texts(tmp_path: Path) -> None:
    from xformc.trainer.data.calibration_examples import calibration_examples

    path = tmp_path / "spec.yaml"
    path.write_text(SPEC)
    files = [tmp_path / "source", tmp_path / "reference"]
    for file in files:
        file.write_text(TEXT * 400)
    examples = calibration_examples(files, load_spec(path), None, None)
    assert len(examples) == 512 and all(example["source"].shape == (1, 6) for example in examples)
    assert all(example["target"][0, 0] == 2 and (example["target"] != 0).all() for example in examples)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--precision", "fp8"), "float8 matrix products need TensorRT, not target portable"),
        (("--target", "tensorrt", "--precision", "fp8"), "add --calibrate valid.en --calibrate valid.de"),
        (
            ("--precision", "int8", "--calibrate", "source", "--calibrate", "reference"),
            "only matrix products of --target tensorrt",
        ),
        (("--target", "tensorrt", "--calibrate", "source", "--calibrate", "reference"), "and there are none"),
        (("--target", "tensorrt", "--precision", "int8", "--calibrate", "source"), "a source and its target, not with"),
        (
            ("--target", "tensorrt", "--precision", "int8", "--calibrate", "source", "--calibrate", "short"),
            "has 2 lines, but",
        ),
        (
            ("--target", "tensorrt", "--precision", "int8", "--calibrate", "source", "--calibrate", "gone"),
            "gone: cannot be read",
        ),
        (("reference",), "is not a run: an ensemble is built from several runs"),
    ],
)
def test_a_mistake_in_calibration_is_one_message(
    xformc: CommandLine, run: Path, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    (tmp_path / "short").write_text("two words\n")
    places = {name: tmp_path / name for name in ("source", "reference", "gone", "short")}
    given = [places.get(argument, argument) for argument in arguments]
    assert message in mistake(xformc(*BUILD, run / "spec.yaml", *given, "--out", tmp_path / "engine"))
    assert not (tmp_path / "engine").exists()
