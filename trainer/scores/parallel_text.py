"""Reads sources and their references line by line."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from xformc.errors import UserError
from xformc.runtime.text.lines import read_text_file


@dataclass(frozen=True)
class Parallel:
    """Sources with one or more references: `references` has a list for each file, and `place` is the first file."""

    sources: Sequence[str]
    references: Sequence[Sequence[str]]
    place: str


def read_parallel(paths: Sequence[Path]) -> Parallel:
    """Read the source and the references. Raises: UserError unless all have the same number of lines, at least one."""
    texts, *references = map(read_text_file, paths)
    for path, lines in zip(paths[1:], references, strict=True):
        if len(lines) != len(texts):
            raise UserError(
                f"has {len(lines):,} lines, but {paths[0]} has {len(texts):,}",
                place=str(path),
                hint="line n of a reference must translate line n of the source",
            )
    if not texts:
        raise UserError("holds no text", place=str(paths[0]))
    return Parallel(texts, references, str(paths[1]))
