"""Sources and their references, line by line."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from xformc.errors import UserError
from xformc.runtime.lines import read_text_file


@dataclass(frozen=True)
class Parallel:
    """Sources with one reference or more: `references` has a list for each file, `place` is the first of these."""

    sources: Sequence[str]
    references: Sequence[Sequence[str]]
    place: str


def read_parallel(paths: Sequence[Path]) -> Parallel:
    """The source and the references. Raises: UserError unless all have as many lines, and one at least."""
    texts, *references = map(read_text_file, paths)
    for path, lines in zip(paths[1:], references, strict=True):
        if len(lines) != len(texts):
            raise UserError(
                f"has {len(lines):,} lines and {paths[0]} has {len(texts):,}",
                place=str(path),
                hint="line n of a reference must translate line n of the source",
            )
    if not texts:
        raise UserError("holds no text", place=str(paths[0]))
    return Parallel(texts, references, str(paths[1]))
