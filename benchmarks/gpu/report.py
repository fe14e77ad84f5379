"""Rows of results, written as JSON after each one and printed as a table; none outlasts the time that there is."""

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
"""How long a command may take: less than 9 minutes."""

Row = dict[str, Any]


class Missing(Exception):
    """What a row needs and is not here; the message says what."""


class OutOfTime(BaseException):
    """Raised inside a row when the time that it may take is over; no `except Exception` stops it."""


def preload(*modules: str) -> None:
    """Import what rows will need, as far as it is here: a row that ends in the middle of an import leaves a ruin."""
    for module in modules:
        with suppress(ImportError):
            import_module(module)


def make_parser(description: str | None) -> argparse.ArgumentParser:
    """The command line of a command that makes a report; see `parse`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--seconds", type=float, default=SECONDS, help="no row goes on after so many")
    parser.add_argument("--no-compile", dest="compile", action="store_false", help="leave out what torch compiles")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "build")), help="the results' folder")
    return parser


def parse(parser: argparse.ArgumentParser, on_a_cpu: str) -> argparse.Namespace:
    """What was asked for. Raises: SystemExit for a GPU where there is none; `on_a_cpu` are the options without one."""
    arguments = parser.parse_args()
    if arguments.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit(f"error: PyTorch sees no GPU here\nhint: {on_a_cpu} tries everything on a CPU")
    return arguments


@dataclass
class Report:
    """The results of one command.

    Each row has `what` it is of, and either figures or `reason`: why there are none. `deadline` is the end of the time
    for all, in seconds of `time.monotonic`.
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
        """Add the row of what `measure` finds, in `most` seconds at most; an error of any kind is its reason."""
        return self.add(measured(what, measure, min(most, self.left)))

    def add(self, row: Row) -> Row:
        """Add a row that was measured elsewhere."""
        self.rows.append(row)
        self.write()
        print(line(row), flush=True)
        return row

    def write(self) -> None:
        """Write all that was found so far."""
        content = {"title": self.title, "machine": self.facts, "rows": self.rows}
        self.path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def measured(what: Mapping[str, Any], measure: Callable[[], Mapping[str, Any]], most: float) -> Row:
    """The row of what `measure` finds in so many seconds, or why it finds nothing."""
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
    """A row of the table: what it is of, then its figures or the reason why there are none."""
    shown = {key: value for key, value in row.items() if key != "seconds_in_all"}
    return "  ".join(f"{key} {_short(value)}" for key, value in shown.items())


def _short(value: object) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else str(value)


@contextmanager
def time_limit(seconds: float) -> Generator[None]:
    """Raises OutOfTime inside the block when so many seconds have passed; at once if there are none."""

    def end(*_: object) -> None:
        raise OutOfTime

    if seconds <= 0:
        raise OutOfTime
    before = signal.signal(signal.SIGALRM, end)
    # Again and again: Python drops what is raised while it is in a callback of its own.
    signal.setitimer(signal.ITIMER_REAL, seconds, 2.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def machine(device: torch.device) -> Row:
    """What the figures are taken on and with."""
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
    """The name of the GPU, or `cpu`."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def synchronize(device: torch.device) -> None:
    """Return when the device has done all that it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds_of(run: Callable[[], object], device: torch.device) -> float:
    """How long the device takes for what `run` gives it."""
    synchronize(device)
    began = time.perf_counter()
    run()
    synchronize(device)
    return time.perf_counter() - began
