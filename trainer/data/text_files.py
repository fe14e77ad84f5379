"""Text in columns, read from files and checked line by line."""

import gzip
import hashlib
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from xformc.errors import UserError
from xformc.trainer.data.splits import Files

Row = tuple[str, ...]


@dataclass(frozen=True)
class Texts:
    """Columns of text by name, in the order of the file; `lines` has the number of the line of each row.

    `path` is the first file. `empty` counts the rows left out because a column had no text; `sha256` names the content.
    """

    columns: Mapping[str, Sequence[str]]
    lines: Sequence[int]
    path: Path
    empty: int
    sha256: str

    def __len__(self) -> int:
        """How many rows."""
        return len(self.lines)


def read_texts(files: Files, columns: Sequence[str]) -> Texts:
    """Read one split whole. Lines end at a line feed; spaces around a text are dropped.

    Raises: UserError for a missing or broken file, invalid UTF-8, a NUL byte, a line of a TSV file without
    exactly these columns, unequal line counts, or no row left; each with the file, and the line if it has one.
    """
    digest = hashlib.sha256()
    held: dict[str, list[str]] = {name: [] for name in columns}
    lines: list[int] = []
    count = 0
    for count, row in enumerate(_tsv_rows(files[0], columns) if len(files) == 1 else _line_rows(files), start=1):
        if not all(row):
            continue
        for texts, text in zip(held.values(), row, strict=True):
            texts.append(text)
        lines.append(count)
        digest.update(("\t".join(row) + "\n").encode())
    if not lines:
        raise UserError(f"holds no line with {' and '.join(columns)}", place=str(files[0]))
    return Texts(held, lines, files[0], count - len(lines), digest.hexdigest())


def _line_rows(files: Files) -> Iterator[Row]:
    sources, targets = map(read_lines, files)
    count = 0
    for source in sources:
        target = next(targets, None)
        if target is None:
            _raise_unequal(files, count + 1 + sum(1 for _ in sources), count)
        else:
            count += 1
            yield source, target
    rest = sum(1 for _ in targets)
    if rest:
        _raise_unequal(files, count, count + rest)


def _raise_unequal(files: Files, source_lines: int, target_lines: int) -> None:
    raise UserError(
        f"has {source_lines} lines and {files[1]} has {target_lines}",
        place=str(files[0]),
        hint="line n of one file must translate line n of the other",
    )


def _tsv_rows(path: Path, columns: Sequence[str]) -> Iterator[Row]:
    """The rows of a file; one of one column may contain tabs."""
    for number, line in enumerate(read_lines(path, strip=False), start=1):
        row = line.split("\t") if len(columns) > 1 else [line]
        if len(row) != len(columns) and line.strip():
            raise UserError(
                f"{len(row)} column{'s' * (len(row) > 1)}, where {len(columns)} are required",
                place=f"{path}:{number}",
                hint=f"a line is {', one tab, '.join(columns)}",
            )
        yield tuple(text.strip() for text in row) if len(row) == len(columns) else ("",)


def read_lines(path: Path, *, strip: bool = True) -> Iterator[str]:
    """The lines of a UTF-8 text file, which is unpacked if its name ends in `.gz`.

    Raises: UserError with the place for a file that cannot be read, is not UTF-8, or holds a NUL byte.
    """
    try:
        with _open(path) as handle:
            for number, line in enumerate(handle, start=1):
                text = _decode(line, f"{path}:{number}", first=number == 1)
                yield text.strip() if strip else text
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(
            f"not a whole gzip file ({error})",
            place=str(path),
            hint="copy it again; if it is plain text, take .gz off its name",
        ) from error
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror or error}", place=str(path)) from error


def _open(path: Path) -> IO[bytes] | gzip.GzipFile:
    return gzip.open(path, "rb") if path.name.endswith(".gz") else path.open("rb")


def _decode(line: bytes, place: str, *, first: bool) -> str:
    if b"\0" in line:
        raise UserError(f"NUL byte at column {line.index(0) + 1}", place=place, hint="is this a text file?")
    try:
        return line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8-sig" if first else "utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"not UTF-8: byte 0x{error.object[error.start]:02x} at byte column {error.start + 1}",
            place=place,
            hint="convert the file first: iconv -f latin1 -t utf-8",
        ) from error
