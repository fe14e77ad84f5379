"""Text in columns, read from files and checked line by line."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from xformc.errors import UserError
from xformc.runtime.lines import read_file_lines, read_text_file
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
    sources, targets = map(read_text_file, files)
    if len(sources) != len(targets):
        raise UserError(
            f"has {len(sources)} lines and {files[1]} has {len(targets)}",
            place=str(files[0]),
            hint="line n of one file must translate line n of the other",
        )
    for source, target in zip(sources, targets, strict=True):
        yield source.strip(), target.strip()


def _tsv_rows(path: Path, columns: Sequence[str]) -> Iterator[Row]:
    """The rows of a file; one of one column may contain tabs."""
    for number, line in enumerate(read_file_lines(path), start=1):
        row = line.split("\t") if len(columns) > 1 else [line]
        if len(row) != len(columns) and line.strip():
            raise UserError(
                f"{len(row)} column{'s' * (len(row) > 1)}, where {len(columns)} are required",
                place=f"{path}:{number}",
                hint=f"a line is {', one tab, '.join(columns)}",
            )
        yield tuple(text.strip() for text in row) if len(row) == len(columns) else ("",)
