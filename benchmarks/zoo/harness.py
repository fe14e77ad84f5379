"""Runs one row of the zoo: data, training, the engine with its certificate, and its score on the test set."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from benchmarks.zoo.rows import GAIN, Row
from benchmarks.zoo.tasks import TASKS
from benchmarks.zoo.tasks.language import is_sentence
from xformc.compiler import compile_spec
from xformc.compiler.spec import load_spec

TEST_SETS = (("test.en", "test.de"), ("test.words", "test.trees"), ("test.tsv",), ("test.npz",), ("test.txt",))
"""The files of a task's test set: the first of these groups that exists."""
SEED = 1
TEXTS = 300
"""The number of texts a language model generates, to count those that the grammar accepts."""


@dataclass(frozen=True)
class Outcome:
    """The result of a row; if a command failed, `mistake` is its message, and the rest is empty."""

    row: Row
    parameters: int = 0
    training_seconds: float = 0.0
    scores: Mapping[str, float] = field(default_factory=dict[str, float])
    certificate: bool = False
    mistake: str | None = None

    @property
    def reached(self) -> bool:
        """Whether the engine passed its certificate and reached the needed scores."""
        return self.mistake is None and self.certificate and self.row.reached(self.scores)


class CommandFailed(Exception):
    """A command of xformc failed, with this message."""


def run_row(row: Row, folder: Path) -> Outcome:
    """Run the row in its own subfolder of `folder`, replacing an earlier run; the rows share the data."""
    try:
        return _run(row, folder)
    except CommandFailed as error:
        return Outcome(row, mistake=str(error))


def _run(row: Row, folder: Path) -> Outcome:
    source, own = data(row.task, folder), folder / row.spec["name"]
    if (own / "spec.yaml").exists():
        shutil.rmtree(own)
    own.mkdir()
    spec = own / "spec.yaml"
    spec.write_text(yaml.safe_dump(dict(row.spec), sort_keys=False), encoding="utf-8")
    _xformc("check", spec)
    began = time.monotonic()
    engine = _train(row, spec, source, own, [] if row.start is None else ["--start", folder / row.start / "run"])
    seconds = time.monotonic() - began
    scores = _scores(row, engine, source)
    if row.start is not None:
        alone = _scores(row, _train(row, spec, source, own / "alone", []), source)
        scores[GAIN] = scores[row.measure] - alone[row.measure]
    return Outcome(
        row,
        parameters=compile_spec(load_spec(spec)).parameter_count(),
        training_seconds=round(seconds, 1),
        scores=scores,
        certificate=json.loads((engine / "certificate.json").read_text(encoding="utf-8"))["passed"],
    )


def _train(row: Row, spec: Path, source: Path, folder: Path, start: Sequence[object]) -> Path:
    """Train the row, and return its engine."""
    run, engine = folder / "run", folder / "engine"
    _xformc("train", spec, "--data", source, "--output", run, "--minutes", row.minutes, "--seed", SEED, *start)
    _xformc("build", run, "--output", engine, "--target", "cpu")
    return engine


def _scores(row: Row, engine: Path, source: Path) -> dict[str, float]:
    brackets = [] if "bracket_f1" not in row.needed else ["--metric", "brackets"]
    measured = json.loads(_xformc("evaluate", engine, *_test_set(source), *brackets, "--json"))
    if "grammatical" in row.needed:
        written = _xformc("generate", engine, "--seed", SEED, stdin="\n" * TEXTS).splitlines()
        measured["grammatical"] = sum(map(is_sentence, written)) / TEXTS
    return {name: measured[name] for name in row.needed if name != GAIN}


def data(task: str, folder: Path) -> Path:
    """Return the folder of a task's data below `folder`, creating the data if it is missing."""
    found = folder / "data" / task
    if not found.exists():
        TASKS[task](found, SEED)
    return found


def _test_set(folder: Path) -> list[Path]:
    return next(
        [folder / name for name in names] for names in TEST_SETS if all((folder / name).exists() for name in names)
    )


def _xformc(*arguments: object, stdin: str = "") -> str:
    """Return the output of a command. Raises: CommandFailed."""
    command = [sys.executable, "-m", "xformc", *map(str, arguments)]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        first = next((line for line in said if line.startswith("error:")), said[-1] if said else "no message")
        raise CommandFailed(f"xformc {arguments[0]}: {first.removeprefix('error: ')}")
    return done.stdout
