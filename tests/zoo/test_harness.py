"""The zoo's table and harness: the training of a row, its line in the table, and failing rows."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.zoo.__main__ import as_json, choose, line, record
from benchmarks.zoo.harness import Outcome, run_row
from benchmarks.zoo.rows import Row, merge, read_rows
from benchmarks.zoo.tasks import TASKS
from xformc.compiler import compile_spec
from xformc.compiler.spec import load_spec
from xformc.specs import shipped_specs

TABLE = """\
recipe: {steps: 100, schedule: {warmup_steps: 10, scale: 2}}
tasks:
  numbers: {needed: {exact_match: 0.5}, minutes: 1, train: {schedule: {scale: 3}}, decode: {beam_size: 2}}
rows:
  transformer_base: {task: numbers, sizes: {layers: 1}, train: {steps: 7}, needed: {exact_match: 0.25}}
  other: {task: numbers, spec: numbers, quick: true}
"""


def row(**changes: Any) -> Row:
    settings: dict[str, Any] = {
        "name": "tiny",
        "task": "tagging",
        "spec": {"name": "tiny"},
        "needed": {"accuracy": 0.9},
        "minutes": 1.0,
    }
    return Row(**{**settings, **changes})


def test_row_adds_its_own_settings_to_those_of_its_task_and_of_all(tmp_path: Path) -> None:
    (tmp_path / "rows.yaml").write_text(TABLE)
    first, second = read_rows(tmp_path / "rows.yaml")
    assert first.spec == {
        "name": "transformer_base",
        "extends": "transformer_base",
        "sizes": {"layers": 1},
        "train": {"steps": 7, "schedule": {"warmup_steps": 10, "scale": 3}},
        "decode": {"beam_size": 2},
    }
    assert (first.needed, first.minutes, first.quick) == ({"exact_match": 0.25}, 1, False)
    assert (second.spec["extends"], second.needed, second.quick) == ("numbers", {"exact_match": 0.5}, True)


def test_merge_leaves_its_arguments_as_they_are() -> None:
    base, over = {"a": {"b": 1}}, {"a": {"c": 2}}
    assert merge(base, over) == {"a": {"b": 1, "c": 2}}
    assert (base, over) == ({"a": {"b": 1}}, {"a": {"c": 2}})


@pytest.mark.parametrize("row", read_rows(), ids=lambda row: row.name)
def test_every_row_is_a_spec_without_mistakes(row: Row, tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(dict(row.spec)))
    assert compile_spec(load_spec(path)).parameter_count() < 2_000_000
    assert row.task in TASKS


def test_every_score_must_keep_to_its_bound_and_perplexity_must_be_low() -> None:
    both = row(needed={"perplexity": 11.0, "grammatical": 0.5})
    assert both.reached({"perplexity": 10.9, "grammatical": 0.5})
    assert not both.reached({"perplexity": 11.1, "grammatical": 0.9})
    assert not both.reached({"perplexity": 10.9, "grammatical": 0.4})


def test_quick_and_only_choose_rows() -> None:
    rows = [row(name="a"), row(name="b", quick=True)]
    assert choose(rows, None, quick=False) == rows
    assert choose(rows, None, quick=True) == rows[1:]
    assert choose(rows, ["a"], quick=False) == rows[:1]


def test_only_refuses_a_row_that_there_is_not() -> None:
    with pytest.raises(SystemExit, match="no row c; the rows are a, b"):
        choose([row(name="a"), row(name="b")], ["c"], quick=False)


def test_errors_must_be_low_and_the_gain_of_a_start_high() -> None:
    both = row(needed={"exact_match": 0.5, "gain": 0.2, "quality_mae": 0.1})
    assert both.reached({"exact_match": 0.5, "gain": 0.2, "quality_mae": 0.1}) and both.measure == "exact_match"
    assert not both.reached({"exact_match": 0.5, "gain": 0.1, "quality_mae": 0.1})
    assert not both.reached({"exact_match": 0.5, "gain": 0.2, "quality_mae": 0.2})


def test_a_row_brings_the_one_that_it_starts_from() -> None:
    rows = [row(name="a"), row(name="b"), row(name="c", start="a")]
    assert [one.name for one in choose(rows, ["c"], quick=False)] == ["a", "c"]
    assert {one.start for one in read_rows()} <= {None, *(one.name for one in read_rows())}


def test_ci_has_a_row_for_itself() -> None:
    assert 0 < len(choose(read_rows(), None, quick=True)) < len(read_rows())


def test_row_that_fails_says_which_command_and_why(tmp_path: Path) -> None:
    outcome = run_row(row(spec={"name": "tiny", "extends": "transformer_bass"}), tmp_path)
    assert outcome.mistake is not None and outcome.mistake.startswith("xformc check: ")
    assert "there is no spec 'transformer_bass'" in outcome.mistake
    assert not outcome.reached and not outcome.certificate
    assert "failed: xformc check" in line(outcome)


def test_line_and_json_say_what_was_reached_and_missed() -> None:
    good = Outcome(row(), 1234, 5.0, {"accuracy": 0.95}, certificate=True)
    assert line(good).split() == ["tiny", "1,234", "tagging", "5", "s", "accuracy", "0.950", "0.9", "passed"]
    assert as_json(good)["reached"]
    bad = Outcome(row(), 1234, 5.0, {"accuracy": 0.85}, certificate=True)
    assert line(bad).endswith("passed, score MISSED")
    assert not as_json(bad)["reached"]
    assert not Outcome(row(), 1234, 5.0, {"accuracy": 0.95}, certificate=False).reached


def test_results_keep_other_rows_and_replace_the_same(tmp_path: Path) -> None:
    for name, score in (("a", 0.5), ("b", 0.6), ("a", 0.95)):
        record(Outcome(row(name=name), 1234, 5.0, {"accuracy": score}, certificate=True), tmp_path / "results.json")
    found = json.loads((tmp_path / "results.json").read_text())
    assert [(item["name"], item["scores"]["accuracy"]) for item in found] == [("a", 0.95), ("b", 0.6)]


def test_every_shipped_architecture_has_a_row() -> None:
    trained = {row.spec["extends"] for row in read_rows()}
    sizes_alone = {"transformer_big", "multi30k", "numbers", "parsing_semi_supervised"}
    assert {name for name in shipped_specs().keys() - trained if not name.startswith("table3/")} == sizes_alone
