"""Output on standard error: progress, unless `--quiet`; details with `--verbose`."""

import logging
from collections.abc import Iterable
from typing import TypeVar

from rich.console import Console
from rich.progress import track

Item = TypeVar("Item")

LOGGER = logging.getLogger("xformc")


def set_verbosity(*, quiet: bool, verbose: bool) -> None:
    """Leave out progress and notes, or log details. Warnings and errors are always shown."""
    LOGGER.setLevel(logging.WARNING if quiet else logging.DEBUG if verbose else logging.INFO)


def is_quiet() -> bool:
    """Whether progress and notes were turned off."""
    return LOGGER.level > logging.INFO


def progress_console() -> Console:
    """A console on standard error for progress and notes."""
    return Console(stderr=True, quiet=is_quiet())


def tracked(items: Iterable[Item], label: str, total: int | None = None) -> Iterable[Item]:
    """The items, with a progress bar on a terminal while they are taken; `total` is their number, if they lack it."""
    console = progress_console()
    hidden = not console.is_terminal or console.quiet
    return track(items, label, total=total, console=console, transient=True, disable=hidden)
