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


TAGGER = """\
sizes: {d_model: 8, features: 4, labels: 3}
inputs: {frames: {vectors: features}}
results: {found: {labels: result}}
model: {result: {from: frames, do: {one: {linear: d_model}, two: tanh, end: {linear: labels}}}}
train: {schedule: {width: d_model}}
"""
OTHERS = {
    "{labels: result}": ("{numbers: result}", "found.kind     labels -> numbers"),
    "found: {labels: result}": ("found: {labels: result, several: true}", "found.several  False -> True"),
    "two: tanh": ("two: sin", "unary function=tanh  1 -> -"),
    "features}}\nresults": ("features}}\ninitial: {default: {normal: 0.5}}\nresults", "normal 0.5"),
    "one: {linear: d_model}, two: tanh": ("two: {tanh: {from: x}}, one: {linear: d_model}", "FLOPs"),
    "two: tanh, end": ("two: tanh, again: {plus: one}, three: tanh, end", "add"),
    "end: {linear: labels}": ("last: {linear: labels}", "parameters"),
}


@pytest.mark.parametrize("old", OTHERS)
def test_diff_sees_what_specs_compute(xformc: CommandLine, tmp_path: Path, old: str) -> None:
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    assert TAGGER.count(old) == 1
    first.write_text(TAGGER)
    second.write_text(TAGGER.replace(old, OTHERS[old][0]))
    found = xformc("diff", first, second)
    assert found.code == 0 and OTHERS[old][1] in found.out, found.err
    assert xformc("diff", first, first).out == "first and first do not differ\n"


def test_diff_of_one_spec_needs_settings(xformc: CommandLine) -> None:
    assert "nothing to compare the spec with" in mistake(xformc("diff", "gpt"))
    assert xformc("diff", "gpt", "gpt").out == "gpt and gpt do not differ\n"
