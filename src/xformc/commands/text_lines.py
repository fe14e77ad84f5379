"""Lines of text between a command and its standard streams."""

import os
import stat
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from xformc.runtime.lines import read_lines


def one_line(text: str) -> str:
    """The text without line breaks."""
    return text.replace("\r", " ").replace("\n", " ")


@contextmanager
def lines_of_stdin() -> Generator[Iterator[str]]:
    """The lines of standard input; with a progress bar if only standard error is a terminal."""
    stream = sys.stdin.buffer
    lines = read_lines(stream, "<stdin>")
    if stream.isatty() or not sys.stderr.isatty():
        yield lines
        return
    status = os.fstat(stream.fileno())
    size = status.st_size if stat.S_ISREG(status.st_mode) else None
    columns = (BarColumn(), TextColumn("{task.fields[lines]:,} lines"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=size, lines=0)

        def counted() -> Iterator[str]:
            for number, line in enumerate(lines, start=1):
                progress.update(task, lines=number, completed=stream.tell() if size else 0)
                yield line

        yield counted()
