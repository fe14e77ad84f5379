"""Reading text a line at a time, strictly: UTF-8, bounded, and every complaint with its line number."""

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from xformc.errors import UserError

LINE_BYTES = 1 << 20


def read_lines(stream: BinaryIO, name: str) -> Iterator[str]:
    """The lines of `stream`, without their ends, which are a line feed, or a carriage return before one.

    Raises: UserError with `name` and the line number for invalid UTF-8 and for a line of more than 1 MiB.
    """
    number = 0
    while data := stream.readline(LINE_BYTES + 1):
        number += 1
        if len(data) > LINE_BYTES:
            raise UserError(
                f"the line is longer than {LINE_BYTES:,} bytes",
                place=f"{name}:{number}",
                hint="a line is one sentence; is this a text file?",
            )
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise UserError(
                f"not UTF-8: byte 0x{data[error.start]:02x} at byte column {error.start + 1}",
                place=f"{name}:{number}",
                hint="convert it first, for example: iconv -f latin1 -t utf-8",
            ) from error
        yield text.removesuffix("\n").removesuffix("\r")


def read_text_file(path: Path) -> list[str]:
    """The lines of a text file, which is unpacked if its name ends in `.gz`.

    Raises: UserError if it cannot be read, is broken, or is not UTF-8.
    """
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as handle:
            return list(read_lines(cast(BinaryIO, handle), str(path)))
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"not a whole gzip file: {error}", place=str(path), hint="copy it again") from error
