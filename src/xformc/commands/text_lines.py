"""Lines of text between a command and its input and output."""

import gzip
import io
import os
import stat
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeVar, cast

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from xformc.errors import UserError, refuse_together
from xformc.extras import import_extra
from xformc.files import atomic_write
from xformc.format.inputs import Input
from xformc.runtime.media.reader import suffixes_of
from xformc.runtime.session import thread_count
from xformc.runtime.text.lines import COMPRESSED, read_file_lines, read_lines
from xformc.runtime.text.texts import TooLongError
from xformc.terminal import is_quiet, progress_console

Result = TypeVar("Result")

STANDARD = Path("-")
"""Standard input, or standard output."""

MOST_WORKERS = 8
LINES_EACH = 8


@dataclass(frozen=True)
class Pace:
    """How lines are worked on: how many are read ahead, and how many batches run at the same time."""

    window: int | None
    workers: int


def choose_pace(path: Path | None, window: int | None, workers: int | None, threads: int | None) -> Pace:
    """The pace that was asked for, else the one that suits the input.

    On a terminal each line is answered at once, by all cores. Otherwise there is a worker for each core, MOST_WORKERS
    at most, and no more than one for LINES_EACH of the lines that wait: a few lines finish sooner if all cores share
    each of them.
    """
    file = _named(path)
    window = 1 if file is None and sys.stdin.buffer.isatty() else window
    if workers is not None or window == 1:
        return Pace(window, 1 if workers is None else workers)
    most = min(thread_count(threads), MOST_WORKERS)
    if file is not None and file.exists() and not file.is_file():
        return Pace(window, most)  # a pipe can be read only once
    waiting = cast(io.BufferedReader, sys.stdin.buffer).peek() if file is None else _beginning(file)
    plenty = len(waiting) >= io.DEFAULT_BUFFER_SIZE or (file is not None and file.suffix in COMPRESSED)
    return Pace(window, most if plenty else max(1, min(most, waiting.count(b"\n") // LINES_EACH)))


def files_pace(files: Sequence[Path], window: int | None, workers: int | None) -> Pace:
    """The pace for these files, all of which are examples."""
    return Pace(window, max(1, min(len(files) // LINES_EACH, MOST_WORKERS)) if workers is None else workers)


@contextmanager
def file_names(files: Sequence[Path], path: Path | None, inputs: Mapping[str, Input]) -> Generator[Iterator[str]]:
    """The names of files as lines. Raises: UserError beside `--input`, or for an engine that takes no files alone."""
    if path is not None:
        raise UserError("the examples are either files or lines of --input", hint="leave one of them out")
    if len(inputs) > 1:
        hint = "write a line for each example, with tabs between its texts and files, and give the lines to --input"
        raise UserError("this engine has several inputs", hint=hint)
    if not any(suffixes_of(item) for item in inputs.values()):
        raise UserError("this engine reads no files as examples", hint="give it lines of text by --input FILE")
    yield iter(map(str, files))


def columns_of(lines: Iterable[str], inputs: Mapping[str, Input]) -> Iterator[str | list[str]]:
    """The lines as examples: of several inputs the texts between tabs."""
    return (line.split("\t") if len(inputs) > 1 else line for line in lines)


def one_line(text: str) -> str:
    """The text without line breaks."""
    return text.replace("\r", " ").replace("\n", " ")


@contextmanager
def input_lines(path: Path | None) -> Generator[Iterator[str]]:
    """The lines of a file or of standard input, with a progress bar if the lines do not come from a terminal."""
    file, stream = _named(path), sys.stdin.buffer
    lines = read_lines(stream, "<stdin>") if file is None else read_file_lines(file)
    if (file is None and stream.isatty()) or not sys.stderr.isatty() or is_quiet():
        yield lines
        return
    size = _size(stream) if file is None else None
    columns = (BarColumn(), TextColumn("{task.fields[lines]:,} lines"), TimeElapsedColumn())
    with Progress(*columns, console=progress_console(), transient=True) as progress:
        task = progress.add_task("", total=size, lines=0)

        def counted() -> Iterator[str]:
            for number, line in enumerate(lines, start=1):
                progress.update(task, lines=number, completed=stream.tell() if size else 0)
                yield line

        yield counted()


def given_prefixes(text: str | None, file: Path | None) -> str | Iterator[str] | None:
    """What texts begin with: the same for all of them, or a line for each. Raises: UserError for both."""
    refuse_together({"--prefix": text, "--prefixes": file})
    return text if file is None else read_file_lines(file)


def given_phrases(file: Path | None) -> Iterator[list[str]] | None:
    """The phrases of each text: those of each line of the file, separated by tabs."""
    if file is None:
        return None
    return ([phrase for phrase in line.split("\t") if phrase] for line in read_file_lines(file))


@contextmanager
def output_text(path: Path | None) -> Generator[IO[str]]:
    """Standard output, or a file, compressed by the ending of its name, which is there only when the block ends well.

    Raises: ModuleNotFoundError for .zst without the package zstandard.
    """
    file = _named(path)
    if file is None:
        yield sys.stdout
        return
    if file.is_dir():
        raise UserError("is a folder", place=str(file), hint="give --output a file")
    if file.exists() and not file.is_file():
        with file.open("w", encoding="utf-8", buffering=1) as handle:  # a pipe or a device is written to, not replaced
            yield handle
        return
    opener = {".gz": gzip.open, ".zst": _open_zstd}.get(file.suffix, open)
    with atomic_write(file) as part, cast(IO[str], opener(part, "wt", encoding="utf-8")) as handle:
        yield handle


def write_results(results: Generator[Result], render: Callable[[int, Result], str], path: Path | None = None) -> None:
    """Write each result, numbered from 0, as soon as it is there; at the end, also after an error, close them all."""
    with output_text(path) as output, closing(results):
        try:
            for index, result in enumerate(results):
                output.write(render(index, result))
                if output is sys.stdout:
                    output.flush()
        except TooLongError as error:
            raise error.advised("--truncate", "--max-batch-tokens ") from None


def _open_zstd(path: Path, mode: str, *, encoding: str) -> IO[str]:
    return cast(IO[str], import_extra("zstandard").open(path, mode, encoding=encoding))


def _named(path: Path | None) -> Path | None:
    return None if path in (None, STANDARD) else path


def _beginning(file: Path) -> bytes:
    """As much of a file as standard input would have waiting. Raises: UserError if it cannot be read."""
    try:
        with file.open("rb") as handle:
            return handle.read(io.DEFAULT_BUFFER_SIZE)
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror or error}", place=str(file)) from error


def _size(stream: IO[bytes]) -> int | None:
    status = os.fstat(stream.fileno())
    return status.st_size if stat.S_ISREG(status.st_mode) else None
