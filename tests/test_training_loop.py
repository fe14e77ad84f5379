"""The page about one's own training loop runs, with fewer steps."""

import os
import re
import subprocess
import sys
from pathlib import Path

from command_line import CommandLine

PAGE = (Path(__file__).parents[1] / "docs" / "training_loop.md").read_text(encoding="utf-8")


def test_the_loop_of_the_page_trains_builds_and_translates(xformc: CommandLine, tmp_path: Path) -> None:
    size = ("--train", "800", "--valid", "5", "--test", "5")
    assert xformc("corpus", "numbers", "-o", tmp_path / "data", *size).code == 0
    loop, save = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert "STEPS, BATCH = 600, 64" in loop and "if step % 100 == 0" in loop
    short = loop.replace("STEPS, BATCH = 600, 64", "STEPS, BATCH = 4, 8").replace("step % 100", "step % 2")
    found = subprocess.run(
        [sys.executable, "-c", short + save], cwd=tmp_path, env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    shown = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)[0]
    stages = re.findall(r"^ok   (\w+) ", shown, re.MULTILINE)
    assert re.findall(r"^ok   (\w+) ", found.stdout, re.MULTILINE) == stages
    assert re.findall(r"^step +(\d+) ", found.stdout, re.MULTILINE) == ["2", "4"]
    weights, engine = tmp_path / "weights.safetensors", tmp_path / "again"
    assert xformc("build", "numbers", "--weights", weights, "-o", engine).code == 0
