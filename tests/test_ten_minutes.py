"""The page from nothing to an engine runs from the first command to the last, with the output that it shows."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[1] / "docs" / "ten_minutes.md").read_text(encoding="utf-8")
FENCE = re.compile(r"(?:`(\w+\.yaml)`:\n\n)?```(yaml|sh|python)\n(.*?)```\n(?:```text\n(.*?)```\n)?", re.DOTALL)
RUNNERS = {"sh": ["bash", "-euo", "pipefail", "-c"], "python": [sys.executable, "-c"]}
OF_THE_MACHINE = re.compile(r"\d+\.\d+(?:e[-+]\d+)?|(?:float32|bfloat16) on (?:cpu|cuda)")
"""Measured numbers, and what training chooses by the hardware."""


@dataclass(frozen=True)
class Part:
    """A fenced part of the page: its language, the file it is saved as if it is one, and what it prints."""

    file: str
    language: str
    text: str
    prints: str


def parts() -> list[Part]:
    return [Part(*found) for found in FENCE.findall(PAGE)]


def run(part: Part, folder: Path) -> str:
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    environment = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    command = [*RUNNERS[part.language], part.text]
    result = subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert result.returncode == 0, f"{part.text}\n{result.stdout}"
    return result.stdout


def missing(wanted: str, found: str) -> list[str]:
    """The lines of the page with which no line of the output begins; what is of the machine may be other."""
    return [line for line in wanted.splitlines() if not re.search(f"^{pattern(line)}", found, re.MULTILINE)]


def pattern(line: str) -> str:
    return f"(?:{OF_THE_MACHINE.pattern})".join(re.escape(part) for part in OF_THE_MACHINE.split(line))


def test_only_what_is_of_the_machine_may_differ() -> None:
    shown = "  ok   step      4.9e-07 <= 1e-04  logits\n"
    assert missing(shown, "engine\n" + shown.replace("4.9e-07", "1.25e-06")) == []
    assert missing(shown, shown.replace("4.9e-07", "0.0e+00")) == []
    assert missing(shown, shown.replace("1e-04", "1e-03")) == [shown.rstrip("\n")]
    assert missing("129,312 parameters, float32 on cpu\n", "129,312 parameters, bfloat16 on cpu\n") == []
    assert missing("41 42 43\n", "41 42 44\n") == ["41 42 43"]


@pytest.mark.processor
def test_page_runs_and_prints_what_it_shows(tmp_path: Path) -> None:
    for part in parts():
        if part.language == "yaml":
            (tmp_path / part.file).write_text(part.text, encoding="utf-8")
        else:
            found = run(part, tmp_path)
            assert missing(part.prints, found) == [], found


def test_page_saves_every_spec_and_shows_what_every_command_prints() -> None:
    assert all(part.file for part in parts() if part.language == "yaml")
    assert all(part.prints for part in parts() if part.language != "yaml")
    assert PAGE.count("```") == sum(4 if part.prints else 2 for part in parts())
