"""`xformc new` and `xformc diff`: a spec to start from, and the differences of two."""

import json
from pathlib import Path

import pytest
from command_line import CommandLine, mistake

from xformc.compiler.explain.starters import STARTERS
from xformc.format.tasks import NAMED


@pytest.mark.parametrize("task", NAMED)
def test_a_new_spec_is_right_and_has_its_schema(xformc: CommandLine, tmp_path: Path, task: str) -> None:
    path = tmp_path / "new" / "model.yaml"
    assert xformc("new", task, "-o", path).out == f"{path}\n"
    assert json.loads(xformc("check", path, "--json").out)["task"] == task
    assert json.loads((tmp_path / "new" / "schema.json").read_text())["title"] == "xformc spec"
    assert path.read_text().startswith("# yaml-language-server: $schema=schema.json\n# A small ")


def test_each_task_has_a_starter() -> None:
    assert set(STARTERS) == set(NAMED)


def test_new_prints_its_files_as_json(xformc: CommandLine, tmp_path: Path) -> None:
    files = json.loads(xformc("new", "tagging", "-o", tmp_path / "a.yaml", "--json").out)
    assert files == {"spec": str(tmp_path / "a.yaml"), "schema": str(tmp_path / "schema.json")}


def test_new_replaces_no_spec(xformc: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "model.yaml").write_text("mine")
    assert "the file exists already" in mistake(xformc("new", "tagging", "-o", tmp_path / "model.yaml"))
    assert (tmp_path / "model.yaml").read_text() == "mine"
    assert "unknown task 'taging'" in mistake(xformc("new", "taging"))


def test_diff_shows_what_differs(xformc: CommandLine) -> None:
    lines = xformc("diff", "positions/rotary", "transformer_base").out.splitlines()
    assert lines[0] == "rotary -> transformer_base"
    assert lines[1:3] == ["choices", "  positions  rotary -> sinusoidal"]
    assert "parameters" not in lines


def test_diff_counts_parameters_by_layer(xformc: CommandLine) -> None:
    settings = ("--set", "sizes.layers=5", "--set", "train.seed=9", "--set", "choices.norm=pre")
    found = json.loads(xformc("diff", "multi30k", *settings, "--json").out)
    sections = found["sections"]
    layers = sections["sizes"]["layers"]
    assert layers[1] == "5" and sections["settings"] == {"train.seed": ["1", "9"]}
    gains = sections["parameters"]["encoder/*/feed_forward/layer_norm/gain"]
    assert gains == [f"{layers[0]} x [d_model]", "5 x [d_model]"]
    assert next(iter(sections["cost"])).endswith("FLOPs")


def test_diff_of_one_spec_needs_settings(xformc: CommandLine) -> None:
    assert "nothing to compare the spec with" in mistake(xformc("diff", "gpt"))
    assert xformc("diff", "gpt", "gpt").out == "gpt and gpt do not differ\n"
