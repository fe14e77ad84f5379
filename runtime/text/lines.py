"""Reads text line by line: strict UTF-8, bounded line length, and a line number in every error."""

import codecs
import gzip
import io
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

from xformc.errors import UserError
from xformc.extras import explain_missing

LINE_BYTES = 1 << 20
"""The maximum bytes of a line, its line ending included."""

COMPRESSED = (".gz", ".zst")
"""The endings of files that are decompressed while they are read."""

ZSTD_BYTES = 1 << 10
"""The bytes of a zstd file that are decompressed at once: 1 KiB may become 32 MiB."""


ZSTD_WINDOW = 1 << 31
"""The largest window of a zstd file, that of `zstd --long=31`."""


def read_lines(stream: BinaryIO, name: str) -> Iterator[str]:
    """Yield the lines of `stream` without their line endings, LF or CRLF. A leading byte order mark is dropped.

    Raises: UserError with `name` and the line number for invalid UTF-8, a NUL byte, or a line of more than 1 MiB.
    """
    number = 0
    while data := stream.readline(LINE_BYTES + 1):
        number += 1
        yield _decoded(data.removeprefix(codecs.BOM_UTF8) if number == 1 else data, f"{name}:{number}")


def read_file_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a text file, decompressed if its name ends in `.gz` or `.zst`.

    Raises: UserError if the file cannot be read or decompressed, and as `read_lines` does; ModuleNotFoundError for
    `.zst` without the package zstandard.
    """
    try:
        with _opened(path) as handle:
            yield from read_lines(handle, str(path))
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        hint = f"copy it again; if it is plain text, remove {path.suffix} from its name"
        kind = "zstd" if path.suffix == ".zst" else "gzip"
        raise UserError(f"not a complete {kind} file: {error}", place=str(path), hint=hint) from error
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror or error}", place=str(path)) from error


def plain_name(path: Path) -> str:
    """The name of a file without the ending of its compression: `train.tsv` for `train.tsv.gz`."""
    return path.stem if path.suffix in COMPRESSED else path.name


@contextmanager
def _opened(path: Path) -> Generator[BinaryIO]:
    if path.suffix == ".gz":
        with gzip.open(path, "rb") as handle:
            yield cast(BinaryIO, handle)
        return
    with path.open("rb") as handle:
        yield cast(BinaryIO, io.BufferedReader(_Zstd(handle))) if path.suffix == ".zst" else handle


class _Zstd(io.RawIOBase):
    """The content of a zstd file, of one frame or several. Raises: EOFError for what is no whole one."""

    def __init__(self, file: BinaryIO) -> None:
        try:
            import zstandard  # noqa: PLC0415  # of an extra
        except ModuleNotFoundError as error:
            raise explain_missing(error) from error
        self._file, self._error = file, zstandard.ZstdError
        self._frame, self._decoder = partial(zstandard.ZstdDecompressor, max_window_size=ZSTD_WINDOW), None
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left:
            given = self._file.read(ZSTD_BYTES)
            if not given:
                if self._decoder is not None:
                    raise EOFError("it ends early")
                return 0
            self._left = memoryview(b"".join(self._decompressed(given)))
        size = min(len(buffer), len(self._left))
        buffer[:size], self._left = self._left[:size], self._left[size:]
        return size

    def _decompressed(self, given: bytes) -> Iterator[bytes]:
        while given:
            self._decoder = self._decoder or self._frame().decompressobj()
            try:
                yield self._decoder.decompress(given)
            except self._error as error:
                raise EOFError(str(error)) from error
            given = self._decoder.unused_data
            if self._decoder.eof:
                self._decoder = None


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
