"""Reads text line by line: strict UTF-8, bounded line length, and a line number in every error."""

import codecs
import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from xformc.errors import UserError

LINE_BYTES = 1 << 20
"""The maximum bytes of a line, its line ending included."""


def read_lines(stream: BinaryIO, name: str) -> Iterator[str]:
    """Yield the lines of `stream` without their line endings, LF or CRLF. A leading byte order mark is dropped.

    Raises: UserError with `name` and the line number for invalid UTF-8, a NUL byte, or a line of more than 1 MiB.
    """
    number = 0
    while data := stream.readline(LINE_BYTES + 1):
        number += 1
        yield _decoded(data.removeprefix(codecs.BOM_UTF8) if number == 1 else data, f"{name}:{number}")


def read_file_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a text file, decompressed if its name ends in `.gz`.

    Raises: UserError if the file cannot be read or decompressed, and as `read_lines` does.
    """
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as handle:
            yield from read_lines(cast(BinaryIO, handle), str(path))
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        hint = "copy it again; if it is plain text, remove .gz from its name"
        raise UserError(f"not a complete gzip file: {error}", place=str(path), hint=hint) from error
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror or error}", place=str(path)) from error


def read_text_file(path: Path) -> list[str]:
    """Return the lines of `read_file_lines` as a list."""
    return list(read_file_lines(path))


def _decoded(line: bytes, place: str) -> str:
    if len(line) > LINE_BYTES:
        hint = "each line is one text; is this a text file?"
        raise UserError(f"the line is longer than {LINE_BYTES:,} bytes", place=place, hint=hint)
    if b"\0" in line:
        raise UserError(f"NUL byte at byte column {line.index(0) + 1}", place=place, hint="is this a text file?")
    try:
        return line.removesuffix(b"\n").removesuffix(b"\r").decode()
    except UnicodeDecodeError as error:
        message = f"not UTF-8: byte 0x{line[error.start]:02x} at byte column {error.start + 1}"
        hint = "convert it first, for example: iconv -f latin1 -t utf-8"
        raise UserError(message, place=place, hint=hint) from error
