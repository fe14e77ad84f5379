"""Runs the command line in tests: in this process for speed, or in a new one to test processes."""

import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from xformc.cli import main


@dataclass(frozen=True)
class Result:
    """How a command ended."""

    code: int
    out: str
    err: str


class CommandLine:
    """Runs `xformc ARGUMENTS` inside this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, *arguments: str | Path, stdin: str | bytes = b"") -> Result:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        self._monkeypatch.setattr(sys, "argv", ["xformc", *map(str, arguments)])
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(data))))
        with pytest.raises(SystemExit) as caught:
            main()
        out, err = self._capsys.readouterr()
        code = caught.value.code
        return Result(code if isinstance(code, int) else 0 if code is None else 1, out, err)


def spawn(*arguments: str | Path, **options: Any) -> "subprocess.Popen[bytes]":
    """Start `xformc ARGUMENTS` as a process of its own, which an interrupt ends also where the tests ignore it."""
    command = [sys.executable, "-m", "xformc", *map(str, arguments)]
    options = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL), **options}
    return subprocess.Popen[bytes](command, stderr=subprocess.PIPE, **options)


def finish(process: "subprocess.Popen[bytes]", stdin: bytes | None = None) -> tuple[int, str]:
    """Exit code and standard error. A process that does not end is killed: it would slow down the other tests."""
    try:
        _, err = process.communicate(stdin, timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return process.returncode, err.decode()


def mistake(result: Result, out: str = "") -> str:
    """The message of a result that must be a user's mistake: exit code 2, `out` on stdout, no traceback."""
    assert (result.code, result.out) == (2, out), result
    assert result.err.startswith("error: "), result.err
    assert "Traceback" not in result.err
    return result.err.removeprefix("error: ").rstrip("\n")


def limit_file_size(size: int) -> Callable[[], None]:
    """For `preexec_fn`: writing more than `size` bytes to a file fails, as on a full disk."""
    import resource

    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def listing(folder: Path) -> list[str]:
    """Every name below `folder`, to see that nothing half written was left."""
    return sorted(os.path.relpath(path, folder) for path in folder.rglob("*"))
