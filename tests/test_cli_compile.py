"""The commands that need the compiler, on a model that builds in seconds."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from command_line import CommandLine, limit_file_size, listing, mistake, spawn
from safetensors.numpy import save_file
from tiny_engine import train_tokenizer

from xformc.compiler import compile_spec
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.spec import load_spec
from xformc.runtime import load

SPEC = """\
extends: transformer_base
sizes: {layers: 1, d_model: 16, d_ff: 24, heads: 2, vocabulary: 80}
"""
PARAMETERS = {"transformer_base": 63_082_496, "transformer_big": 214_245_376}


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like a finished run's: spec, tokenizer and (random) weights."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "spec.yaml").write_text(SPEC)
    train_tokenizer(folder / "tokenizer.model")
    module = TorchModule(compile_spec(load_spec(folder / "spec.yaml")), seed=1)
    weights = module.arrays()
    save_file(weights, folder / "weights.safetensors")
    return folder


@pytest.fixture(scope="session")
def built(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The engine of that run, made by the command."""
    out = tmp_path_factory.mktemp("built") / "engine"
    process = spawn("build", run / "spec.yaml", "--weights", run, "--target", "portable", "--out", out)
    _, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, b"")
    return out


@pytest.mark.parametrize("name", PARAMETERS)
def test_check_counts_the_papers_parameters(xformc: CommandLine, name: str) -> None:
    assert f"  total{PARAMETERS[name]:>33,}\n" in xformc("check", name).out
    found = json.loads(xformc("check", name, "--json").out)
    assert found["parameters"]["total"] == PARAMETERS[name]
    assert found["sizes"]["vocabulary"] == 37_000


@pytest.mark.parametrize("command", ["check", "train"])
def test_what_cannot_be_decoded_is_refused_before_training(xformc: CommandLine, tmp_path: Path, command: str) -> None:
    spec = tmp_path / "sees_all.yaml"
    spec.write_text("extends: gpt\nmodel: {decoder: {do: [embed, self_attention]}}\ntie: []\n", encoding="utf-8")
    options = ("--data", tmp_path, "--out", tmp_path / "run") if command == "train" else ()
    found = mistake(xformc(command, spec, *options))
    assert "cannot be decoded step by step: every position sees the ones after it" in found
    assert "sees_all.yaml:2:" in found
    assert listing(tmp_path) == ["sees_all.yaml"]


def test_schema_is_a_json_schema(xformc: CommandLine) -> None:
    assert "properties" in json.loads(xformc("schema").out)


def test_ir_lists_the_passes_and_prints_the_graphs_after_one(xformc: CommandLine, run: Path) -> None:
    names = [line.split()[0] for line in xformc("ir", run / "spec.yaml").out.splitlines()]
    assert names == ["elaborate", "share", "fuse", "hoist", "inference", "step", "beam"]
    training = xformc("ir", run / "spec.yaml", "--training").out.splitlines()
    assert [line.split()[0] for line in training] == [
        *("elaborate", "share", "fuse", "hoist", "scan", "linear_attention", "loss")
    ]
    assert xformc("ir", run / "spec.yaml", "--after", "step").out.startswith("graph spec prepare\n")
    assert "attend_cached" in xformc("ir", run / "spec.yaml", "--after", "lower", "--target", "native").out
    found = mistake(xformc("ir", run / "spec.yaml", "--after", "lower"))
    assert "the pass lower is not used for translation and target portable\nhint: add --target native" in found
    assert "there is no pass 'stp'" in mistake(xformc("ir", run / "spec.yaml", "--after", "stp"))


def test_inspect_shows_what_build_checked(xformc: CommandLine, built: Path) -> None:
    assert "trained parameters" in xformc("inspect", built).out
    lines = xformc("inspect", built, "--certificate").out.splitlines()
    assert len(lines) == 11
    assert all(line.startswith("ok   ") for line in lines)


def test_verify_repeats_the_certificate(xformc: CommandLine, built: Path) -> None:
    result = xformc("verify", built)
    names = [line.split()[1] for line in result.out.splitlines()]
    assert result.code == 0
    recorded = [line.split()[1] for line in xformc("inspect", built, "--certificate").out.splitlines()]
    assert names == [*recorded, "models"]
    found = xformc("verify", built, "--json")
    content = json.loads(found.out)
    assert (found.code, content["passed"], content["note"]) == (0, True, "")
    assert [stage["name"] for stage in content["stages"]] == names


def test_a_built_engine_translates_by_every_option(xformc: CommandLine, built: Path) -> None:
    options = ("--beam-size", "5", "--n-best", "3", "--max-length-factor", "0", "--max-length-offset", "4")
    result = xformc("translate", built, *options, "--json", stdin="hello world\n\none two three\n")
    rows = [json.loads(line)["hypotheses"] for line in result.out.splitlines()]
    assert [len(row) for row in rows] == [3, 1, 3]
    scores = [one["score"] for one in rows[0]]
    assert scores == sorted(scores, reverse=True)
    found = load(built, threads=1).search([[5, 6, 3]], max_length_factor=0, max_length_offset=4)
    assert found.lengths.max() <= 4


FILES = ("model.onnx", "tokenizer.model", "certificate.json", "spec.yaml", "engine.json")


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_byte_is_a_mistake_for_verify(xformc: CommandLine, built: Path, tmp_path: Path, name: str) -> None:
    engine = shutil.copytree(built, tmp_path / "engine")
    data = bytearray((engine / name).read_bytes())
    data[data.index(b"e", len(data) // 2)] ^= 1
    (engine / name).write_bytes(data)
    assert "the content has changed since it was built" in mistake(xformc("verify", engine))


def test_weights_of_another_spec_are_a_mistake(xformc: CommandLine, run: Path, tmp_path: Path) -> None:
    out = tmp_path / "engine"
    found = mistake(xformc("build", "numbers", "--weights", run, "--out", out))
    assert "the weights do not match spec numbers" in found
    assert "hint: " in found
    assert not out.exists()


def test_weights_without_a_tokenizer_are_a_mistake(xformc: CommandLine, run: Path, tmp_path: Path) -> None:
    shutil.copy(run / "weights.safetensors", tmp_path)
    result = xformc("build", run / "spec.yaml", "--weights", tmp_path, "--out", tmp_path / "engine")
    assert "no tokenizer.model" in mistake(result)


def test_weights_outside_of_a_run_are_built_with_the_files_of_one(
    xformc: CommandLine, run: Path, tmp_path: Path
) -> None:
    average, out = tmp_path / "average.safetensors", ("--target", "cpu", "--out", tmp_path / "engine")
    shutil.copy(run / "weights.safetensors", average)
    found = mistake(xformc("build", average, *out))
    assert found.startswith(f"{average}: are weights outside of a run")
    assert found.endswith(f"hint: name the run that they are of: xformc build RUN --weights {average}")
    assert xformc("build", run, "--weights", average, *out).code == 0
    assert (tmp_path / "engine" / "tokenizer.model").read_bytes() == (run / "tokenizer.model").read_bytes()


def test_missing_weights_are_a_mistake(xformc: CommandLine, run: Path, tmp_path: Path) -> None:
    result = xformc("build", run / "spec.yaml", "--weights", tmp_path / "none", "--out", tmp_path / "engine")
    assert mistake(result).startswith(f"{tmp_path / 'none'}: no such file or folder")


def test_build_replaces_engines_only(xformc: CommandLine, run: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    found = mistake(xformc("build", run / "spec.yaml", "--out", tmp_path))
    assert found.startswith(f"{tmp_path}: exists, and is not an engine")
    assert listing(tmp_path) == ["thesis.txt"]


def test_options_of_plans_need_their_target(xformc: CommandLine, run: Path, tmp_path: Path) -> None:
    for option in (("--profile", "batch=1"), ("--builder", "tensorrt")):
        found = mistake(xformc("build", run / "spec.yaml", *option, "--out", tmp_path / "engine"))
        assert found == "--profile and --builder need --target tensorrt"


def test_a_full_disk_leaves_no_half_engine(run: Path, tmp_path: Path) -> None:
    arguments = ("build", run / "spec.yaml", "--weights", run, "--target", "cpu", "--out", tmp_path / "engine")
    process = spawn(*arguments, preexec_fn=limit_file_size(10_000))
    _, err = process.communicate(timeout=120)
    assert process.returncode == 2, err
    assert err.decode().startswith("error: ")
    assert len(err.decode().splitlines()) <= 2
    assert listing(tmp_path) == []


def test_average_is_the_mean_of_the_last_checkpoints(xformc: CommandLine, tmp_path: Path) -> None:
    for step in (1, 2, 4):
        folder = tmp_path / "checkpoints" / f"{step:08d}"
        folder.mkdir(parents=True)
        save_file({"a": np.full(3, step, np.float32)}, folder / "weights.safetensors")
    result = xformc("average", tmp_path, "--last", "2")
    assert result.out == f"{tmp_path / 'average-2.safetensors'}: the average of steps 2, 4\n"
    found = mistake(xformc("average", tmp_path, "--last", "4"))
    assert found.startswith(f"{tmp_path}: has 3 checkpoints, but --last is 4\nhint: average 3;")
