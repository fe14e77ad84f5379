"""The progress bar of work on files of text: a bar with the time left, and numbers."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from xformc.runtime.text.lines import COMPRESSED
from xformc.terminal import progress_console


def work_bar() -> Progress:
    """A bar on standard error, if that is a terminal; a task has the field `numbers`."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[numbers]}"),
    )
    console = progress_console()
    return Progress(*columns, console=console, transient=True, disable=console.quiet or not console.is_terminal)


def text_size(files: Iterable[Path]) -> int | None:
    """The bytes of the text, if all files are there and none is compressed."""
    every = list(files)
    known = all(path.is_file() and path.suffix not in (*COMPRESSED, ".parquet") for path in every)
    return sum(path.stat().st_size for path in every) if known else None


def dropped_text(dropped: Mapping[str, int]) -> str:
    """The numbers of dropped lines by reason, in brackets; nothing for none."""
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in dropped.items())
    return f" (dropped: {reasons})" if reasons else ""
