"""Output on standard error: progress, unless `--quiet`; details with `--verbose`."""

import logging

from rich.console import Console

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
