"""Lines of text between a command and its standard streams."""

import io
import os
import stat
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TypeVar, cast

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from xformc.runtime.lines import read_lines
from xformc.runtime.session import thread_count
from xformc.runtime.texts import TooLongError

Result = TypeVar("Result")

WINDOW_HELP = "Lines read ahead to batch by length; 1 answers at once.  [default: 1024 for each worker]"
WORKERS_HELP = "Batches run at once, which share the cores.  [default: as many as the input keeps busy]"
DEVICE_HELP = "Where to run it: cpu, or cuda for a GPU.  [default: what the engine was built for]"
MOST_WORKERS = 8
LINES_EACH = 8


@dataclass(frozen=True)
class Pace:
    """How the lines of standard input are worked on: how many are read ahead, and how many batches run at once."""

    window: int | None
    workers: int


def pace_of_stdin(window: int | None, workers: int | None, threads: int | None) -> Pace:
    """What was asked for, and what suits standard input where nothing was.

    On a terminal each line is answered at once, by all cores. Else there is a worker for each core, MOST_WORKERS at
    most, but no more than one for LINES_EACH of the lines that wait: a few are done sooner if all cores share each.
    """
    stream = sys.stdin.buffer
    window = 1 if stream.isatty() else window
    if workers is not None or window == 1:
        return Pace(window, 1 if workers is None else workers)
    waiting = cast(io.BufferedReader, stream).peek()
    most = min(thread_count(threads), MOST_WORKERS)
    plenty = len(waiting) >= io.DEFAULT_BUFFER_SIZE
    return Pace(window, most if plenty else max(1, min(most, waiting.count(b"\n") // LINES_EACH)))


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


def write_results(results: Generator[Result], render: Callable[[int, Result], str]) -> None:
    """Write what each result, numbered from 1, is rendered as when it is there; in the end, also of an error, close."""
    with closing(results):
        try:
            for line, result in enumerate(results, start=1):
                sys.stdout.write(render(line, result))
                sys.stdout.flush()
        except TooLongError as error:
            raise error.advised("--truncate", "--max-batch-tokens ") from None
