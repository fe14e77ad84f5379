"""Sweeps: every setting is trained, a failure loses nothing, and what is done is not done again."""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
from command_line import CommandLine, mistake
from tiny_run import SPEC, write_corpus, write_spec

from xformc.errors import UserError
from xformc.trainer.sweep import Result, name_of, read_grid, sweep, table

SHORT = SPEC.replace("steps: 60", "steps: 2").replace("every_steps: 5", "every_steps: 1")


def grid(folder: Path, text: str) -> Path:
    path = folder / "grid.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_grids_are_lists_or_products(tmp_path: Path) -> None:
    listed = read_grid(grid(tmp_path, "- {a.b: 1, c: [1]}\n- {}\n"))
    assert listed == [{"a.b": 1, "c": [1]}, {}]
    assert read_grid(grid(tmp_path, "train.schedule.peak: [7e-4, .5]\n")) == [
        {"train.schedule.peak": 7e-4},
        {"train.schedule.peak": 0.5},
    ]
    combined = read_grid(grid(tmp_path, "a: [1, 2]\nb: [x, y]\n"))
    assert combined == [{"a": 1, "b": "x"}, {"a": 1, "b": "y"}, {"a": 2, "b": "x"}, {"a": 2, "b": "y"}]
    assert name_of({"a": 1, "b": 2}) == name_of({"b": 2, "a": 1}) != name_of({"a": 1, "b": 3})


@pytest.mark.parametrize(
    ("text", "message"),
    [("3", "not a list"), ("a: 1", "a value is not a list"), ("[]", "has 0 settings"), ("- a", "of settings"),
     ("- {a: 1}\n- {a: 1}", "twice: a=1"), ("{", "not YAML")],
)  # fmt: skip
def test_wrong_grids_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_grid(grid(tmp_path, text))


def test_table_marks_the_lowest_loss_and_failures() -> None:
    results = [
        Result({"a": 1}, "out/11", "done", 10, 60.0, 2.0, {"bleu": 12.345}),
        Result({"a": 2}, "out/22", "done", 1000, 90.0, 1.5, {"bleu": 20.0}),
        Result({"a": 3}, "out/33", "failed", error="exit code 2"),
    ]
    assert table(results) == [
        "        valid loss   bleu  steps  minutes  run  settings",
        "            2.0000  12.35     10      1.0  11   a=1",
        "     *      1.5000     20  1,000      1.5  22   a=2",
        "failed                         0      0.0  33   a=3",
    ]


def test_sweep_trains_all_and_resumes(tmp_path: Path, xformc: CommandLine) -> None:
    spec, data, out = write_spec(tmp_path, SHORT), write_corpus(tmp_path / "data", 40), tmp_path / "out"
    settings = grid(tmp_path, "- {sizes.vocabulary: 9000}\n- {train.seed: 3}\n")
    words = ("train", spec, "--data", data, "-o", out, "--sweep", settings)
    failed = xformc(*words)
    assert failed.code == 2 and "1 of 2 trainings failed" in failed.err
    lines = failed.out.splitlines()
    assert lines[1].startswith("failed") and lines[1].endswith("sizes.vocabulary=9000") and "*" in lines[2]
    results = json.loads((out / "sweep.json").read_text())
    assert [one["state"] for one in results] == ["failed", "done"]
    assert results[1]["steps"] == 2 and results[1]["scores"]["chrf"] >= 0
    weights = out / name_of({"train.seed": 3}) / "weights.safetensors"
    written = weights.stat().st_mtime_ns
    assert "already exists" in mistake(xformc(*words))
    grid(tmp_path, "- {train.seed: 3}\n")
    again = xformc(*words, "--resume")
    assert again.code == 0 and weights.stat().st_mtime_ns == written
    assert "begun with other options" in mistake(xformc(*words, "--resume", "--seed", "5"))
    assert "another spec and other options" in mistake(xformc(*words, "--resume", "--set", "sizes.dropout=0.3"))
    write_spec(tmp_path, SHORT.replace("steps: 2", "steps: 3"))
    assert "begun with another spec" in mistake(xformc(*words, "--resume"))
    write_spec(tmp_path, SHORT)
    write_corpus(tmp_path / "data", 39)
    assert "begun with other data" in mistake(xformc(*words, "--resume"))
    write_corpus(tmp_path / "data", 40)
    grid(tmp_path, "- {train.seed: 3}\n- {train.stepz: 3}\n")
    assert "train.stepz=3" in mistake(xformc(*words, "--resume"))


def test_an_interrupt_waits_for_the_training_that_runs(tmp_path: Path) -> None:
    code = """
import pathlib, signal, sys, time
def end(*_):
    pathlib.Path(sys.argv[1], "checkpoint").touch()
    sys.exit(130)
signal.signal(signal.SIGINT, end)
pathlib.Path(sys.argv[1], "ready").touch()
time.sleep(60)
"""

    def interrupt() -> None:
        while not (tmp_path / "ready").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread, before = threading.Thread(target=interrupt), signal.signal(signal.SIGINT, signal.default_int_handler)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            sweep([{"a": 1}, {"a": 2}], lambda _, run: [sys.executable, "-c", code, str(tmp_path)], tmp_path, print)
    finally:
        signal.signal(signal.SIGINT, before)
        thread.join()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint", "ready"]
