"""A report of result rows with a time limit, written as JSON after each row and printed as a table."""

import argparse
import importlib.metadata
import json
import os
import platform
import signal
import time
import traceback
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from xformc.errors import UserError

PACKAGES = ("torch", "onnxruntime-gpu", "onnxruntime", "tensorrt", "tensorrt-rtx", "transformers", "ctranslate2")
SECONDS = 510.0
"""The default time limit of a command: less than 9 minutes."""

Row = dict[str, Any]


class Missing(Exception):
    """Something that a row needs is missing; the message names it."""


class OutOfTime(BaseException):
    """Raised inside a row at its time limit; a BaseException, so that no `except Exception` stops it."""


def preload(*modules: str) -> None:
    """Import the modules that are installed: an import cut off by a row's time limit would leave a broken module."""
    for module in modules:
        with suppress(ImportError):
            import_module(module)


def make_parser(description: str | None) -> argparse.ArgumentParser:
    """Return the parser of a command that makes a report; see `parse`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--seconds", type=float, default=SECONDS, help="time limit of all rows together")
    parser.add_argument("--no-compile", dest="compile", action="store_false", help="skip torch.compile")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "build")), help="folder for the results")
    return parser


def parse(parser: argparse.ArgumentParser, on_a_cpu: str) -> argparse.Namespace:
    """Parse the command line. Raises: SystemExit without a GPU, with a hint to the options `on_a_cpu`."""
    arguments = parser.parse_args()
    if arguments.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit(f"error: PyTorch finds no GPU\nhint: {on_a_cpu} runs everything on a CPU")
    return arguments


@dataclass
class Report:
    """The results of one command.

    Each row has the fields that identify it, and either figures or a `reason` for their absence. `deadline` is the time
    limit of all rows, on the clock `time.monotonic`.
    """

    path: Path
    title: str
    deadline: float
    device: torch.device
    rows: list[Row] = field(default_factory=list[Row])
    facts: Row = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        self.facts = {**machine(self.device), **self.facts}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        print(f"{self.title}: {json.dumps(self.facts)}", flush=True)

    @property
    def left(self) -> float:
        """Seconds until the deadline."""
        return self.deadline - time.monotonic()

    def row(self, what: Mapping[str, Any], measure: Callable[[], Mapping[str, Any]], most: float = 60.0) -> Row:
        """Add a row with the figures of `measure`, within `most` seconds; any error becomes the row's reason."""
        return self.add(measured(what, measure, min(most, self.left)))

    def add(self, row: Row) -> Row:
        """Add a row that was measured elsewhere."""
        self.rows.append(row)
        self.write()
        print(line(row), flush=True)
        return row

    def write(self) -> None:
        """Write all rows so far."""
        content = {"title": self.title, "machine": self.facts, "rows": self.rows}
        self.path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def measured(what: Mapping[str, Any], measure: Callable[[], Mapping[str, Any]], most: float) -> Row:
    """Return a row with the figures of `measure` within `most` seconds, or with the reason for their absence."""
    began, row = time.monotonic(), dict(what)
    try:
        with time_limit(most):
            row |= measure()
    except OutOfTime:
        row["reason"] = f"out of time after {time.monotonic() - began:.0f} s"
    except (Missing, UserError, ImportError) as error:
        row["reason"] = " ".join(str(error).split())
    except Exception as error:
        row["reason"] = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        row["failed"] = True
        traceback.print_exc()
    row["seconds_in_all"] = round(time.monotonic() - began, 2)
    return row


def line(row: Mapping[str, Any]) -> str:
    """Return a row of the table: its identity, then its figures or the reason for their absence."""
    shown = {key: value for key, value in row.items() if key != "seconds_in_all"}
    return "  ".join(f"{key} {_short(value)}" for key, value in shown.items())


def _short(value: object) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else str(value)


@contextmanager
def time_limit(seconds: float) -> Generator[None]:
    """Raise OutOfTime inside the block after `seconds`, at once if they are 0 or less."""

    def end(*_: object) -> None:
        raise OutOfTime

    if seconds <= 0:
        raise OutOfTime
    before = signal.signal(signal.SIGALRM, end)
    # The timer repeats, because Python drops an exception raised inside its own callbacks.
    signal.setitimer(signal.ITIMER_REAL, seconds, 2.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def machine(device: torch.device) -> Row:
    """Return the machine and package versions of the figures."""
    found: Row = {"device": device_name(device), "cpu": platform.processor() or platform.machine()}
    if device.type == "cuda":
        found["memory_GiB"] = round(torch.cuda.get_device_properties(device).total_memory / 2**30, 1)
        found["cuda"] = torch.version.cuda
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


def device_name(device: torch.device) -> str:
    """Return the name of the GPU, or `cpu`."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished all its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds_of(run: Callable[[], object], device: torch.device) -> float:
    """Return the seconds that the device takes for the work of `run`."""
    synchronize(device)
    began = time.perf_counter()
    run()
    synchronize(device)
    return time.perf_counter() - began
