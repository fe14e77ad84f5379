"""One row of the zoo: data, training, the engine with its certificate, and its score on the test set."""

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import yaml

from benchmarks.zoo.rows import Row
from benchmarks.zoo.tasks import TASKS
from xformc.compiler import compile_spec
from xformc.compiler.spec import load_spec

TEST_SETS = (("test.en", "test.de"), ("test.words", "test.trees"), ("test.tsv",), ("test.npz",), ("test.txt",))
"""Names of the files that hold a task's test set; the first of these that are there are it."""
SEED = 1


@dataclass(frozen=True)
class Outcome:
    """What became of a row; `mistake` is the last line of the command that failed, and then the rest is missing."""

    name: str
    task: str
    parameters: int | None = None
    training_seconds: float | None = None
    measure: str | None = None
    score: float | None = None
    needed: float | None = None
    certificate: bool = False
    reached: bool = False
    mistake: str | None = None


class CommandFailed(Exception):
    """A command of xformc ended with an error; the message is what it said."""


def run_row(row: Row, folder: Path) -> Outcome:
    """Run the row in a folder of its own below `folder`, which must be new; the data is shared by the rows."""
    try:
        return _run(row, folder)
    except CommandFailed as error:
        return Outcome(row.name, row.task, measure=row.score, needed=row.needed, mistake=str(error))


def _run(row: Row, folder: Path) -> Outcome:
    data, own = _data(row.task, folder), folder / row.name
    own.mkdir()
    spec, run, engine = own / "spec.yaml", own / "run", own / "engine"
    spec.write_text(yaml.safe_dump(dict(row.spec), sort_keys=False), encoding="utf-8")
    _xformc("check", spec)
    began = time.monotonic()
    _xformc("train", spec, "--data", data, "--out", run, "--minutes", row.minutes, "--seed", SEED)
    seconds = time.monotonic() - began
    _xformc("build", spec, "--weights", run, "--out", engine, "--target", "cpu")
    score = json.loads(_xformc("evaluate", engine, *_test_set(data), "--json"))[row.score]
    return Outcome(
        name=row.name,
        task=row.task,
        parameters=compile_spec(load_spec(spec)).parameter_count(),
        training_seconds=round(seconds, 1),
        measure=row.score,
        score=score,
        needed=row.needed,
        certificate=json.loads((engine / "certificate.json").read_text(encoding="utf-8"))["passed"],
        reached=row.reached(score),
    )


def _data(task: str, folder: Path) -> Path:
    data = folder / "data" / task
    if not data.exists():
        TASKS[task](data, SEED)
    return data


def _test_set(data: Path) -> list[Path]:
    return next([data / name for name in names] for names in TEST_SETS if all((data / name).exists() for name in names))


def _xformc(*arguments: object) -> str:
    """What the command prints. Raises: CommandFailed."""
    command = [sys.executable, "-m", "xformc", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        first = next((line for line in said if line.startswith("error:")), said[-1] if said else "no message")
        raise CommandFailed(f"xformc {arguments[0]}: {first.removeprefix('error: ')}")
    return done.stdout
