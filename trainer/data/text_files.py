"""Reads columns of text from files, and checks them line by line."""

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any, cast

from xformc.errors import UserError
from xformc.extras import import_extra
from xformc.runtime.rows import Array
from xformc.runtime.text.lines import LINE_BYTES, read_file_lines
from xformc.trainer.data.splits import JSON_LINES, PARQUET, Files, suffix_of

Row = tuple[str, ...]
Complete = Callable[[Mapping[str, str]], bool]
"""Returns whether the texts of a line, by column, are an example."""


@dataclass(frozen=True)
class Texts:
    """Columns of text by name, in the order of the file.

    lines: the line number of each row. path: the first file. empty: number of lines dropped for an empty column.
    sha256: hash of the content. arrays: those of the columns that name files, once these are read.
    """

    columns: Mapping[str, Sequence[str]]
    lines: Sequence[int]
    path: Path
    empty: int
    sha256: str
    arrays: Mapping[str, Sequence[Array]] = field(default_factory=dict[str, Sequence[Array]])

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.lines)

    @property
    def first_empty(self) -> str:
        """The place of the first line that was dropped; there must be one."""
        line = next((line for line, kept in enumerate(self.lines, start=1) if line != kept), len(self) + 1)
        return f"{self.path}:{line}"


def is_full(texts: Mapping[str, str]) -> bool:
    """Return whether no text is empty."""
    return all(texts.values())


def is_example(texts: Mapping[str, str], *, given: Collection[str], empty: Collection[str]) -> bool:
    """Return whether only these columns are `empty`, and not all that are `given` to the model."""
    return all(text or name in empty for name, text in texts.items()) and any(texts[name] for name in given)


def read_texts(files: Files, columns: Sequence[str], complete: Complete = is_full) -> Texts:
    """Read one split. Lines end at a line feed; spaces around a text are removed. Other lines than `complete` ones are
    dropped and counted.

    Raises: UserError for a missing or damaged file, invalid UTF-8, a NUL byte, a line of a TSV file with other columns,
    different line counts, or no rows; each with the file, and the line if there is one.
    """
    digest = hashlib.sha256()
    held: dict[str, list[str]] = {name: [] for name in columns}
    lines: list[int] = []
    count = 0
    for count, row in enumerate(read_rows(files, columns), start=1):
        if len(row) != len(columns) or not complete(dict(zip(columns, row, strict=True))):
            continue
        for texts, text in zip(held.values(), row, strict=True):
            texts.append(text)
        lines.append(count)
        digest.update(row_bytes(row))
    if not lines:
        raise UserError(f"has no line with {' and '.join(columns)}", place=str(files[0]))
    return Texts(held, lines, files[0], count - len(lines), digest.hexdigest())


def read_rows(files: Files, columns: Sequence[str]) -> Iterator[Row]:
    """Yield the texts of each line, of which only one is held; an empty column is an empty text. Raises: as
    `read_texts`."""
    path, *others = files
    if others:
        return _line_rows(files)
    return {JSON_LINES: _json_rows, PARQUET: _parquet_rows}.get(suffix_of(path), _tsv_rows)(path, columns)


def row_bytes(row: Row) -> bytes:
    """What a row adds to the hash of a text."""
    return ("\t".join(row) + "\n").encode()


def _line_rows(files: Files) -> Iterator[Row]:
    sides = [read_file_lines(path) for path in files]
    for number, row in enumerate(zip_longest(*sides)):
        if None in row:
            sources, targets = (
                number + (text is not None) + sum(1 for _ in side) for text, side in zip(row, sides, strict=True)
            )
            raise UserError(
                f"has {sources} lines, but {files[1]} has {targets}",
                place=str(files[0]),
                hint="line n of one file must translate line n of the other",
            )
        yield tuple(text.strip() for text in row)


def _tsv_rows(path: Path, columns: Sequence[str]) -> Iterator[Row]:
    """Yield the rows of a file; the rows of a single column may contain tabs."""
    for number, line in enumerate(read_file_lines(path), start=1):
        row = line.split("\t") if len(columns) > 1 else [line]
        if len(row) != len(columns) and line.strip():
            raise UserError(
                f"{len(row)} column{'s' * (len(row) > 1)}; {len(columns)} are required",
                place=f"{path}:{number}",
                hint=f"each line must be {', one tab, '.join(columns)}",
            )
        yield tuple(text.strip() for text in row) if len(row) == len(columns) else ("",)


def _parquet_rows(path: Path, columns: Sequence[str]) -> Iterator[Row]:
    """Yield the texts of a Parquet file's columns; other columns are ignored, line ends become spaces."""
    pyarrow, parquet = import_extra("pyarrow"), import_extra("pyarrow.parquet")
    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            names, kinds = file.schema_arrow.names, file.schema_arrow
            missing = [name for name in columns if name not in names or str(kinds.field(name).type) not in _TEXT_TYPES]
            if missing:
                there = ", ".join(f"{field.name} ({field.type})" for field in kinds)
                message = f"no column of text {' and '.join(missing)}; there are: {there}"
                raise UserError(message, place=str(path), hint="name the columns after the inputs of the spec")
            for batch in file.iter_batches(columns=list(columns)):
                for row in zip(*(batch.column(name).to_pylist() for name in columns), strict=True):
                    number += 1
                    yield tuple(_cell(text, f"{path}: row {number}") for text in row)
    except (pyarrow.ArrowException, OSError, ValueError, KeyError) as error:
        raise UserError(
            f"not a Parquet file that can be read: {error}", place=str(path), hint="write it again"
        ) from error


_TEXT_TYPES = ("string", "large_string", "string_view")


def _cell(text: str | None, place: str) -> str:
    """A text as a line has it; nothing for a null."""
    found = (text or "").replace("\n", " ").strip()
    try:
        size = len(found.encode())
    except UnicodeError as error:
        raise UserError(
            "not valid Unicode text", place=place, hint="half of a surrogate pair is no character"
        ) from error
    if "\0" in found or size > LINE_BYTES:
        raise UserError(f"a text with a NUL byte, or of more than {LINE_BYTES:,} bytes", place=place)
    return found


def _json_rows(path: Path, columns: Sequence[str]) -> Iterator[Row]:
    """Yield the texts of a file with a JSON object in each line; other keys are ignored, line ends become spaces."""
    for number, line in enumerate(read_file_lines(path), start=1):
        if not line.strip():
            yield ("",)
            continue
        place = f"{path}:{number}"
        found = _json_object(line)
        wrong = [name for name in columns if name not in found or not isinstance(found[name], str | None)]
        if wrong:
            keys = " and ".join(f'"{name}"' for name in columns)
            lacks, has = "; ".join(f'no text "{name}"' for name in wrong), ", ".join(map(str, found))
            hint = f"it has {lacks}; its keys are {has[:200]}" if found else None
            raise UserError(f"not a JSON object with the text of {keys}", place=place, hint=hint)
        yield tuple(_cell(found[name], place) for name in columns)


def _json_object(line: str) -> dict[str, Any]:
    """The object of a line, or an empty one if it is none."""
    try:
        found: object = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
