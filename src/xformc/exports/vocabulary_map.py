"""Writes a shortlist as CTranslate2's file of the target tokens that source tokens allow."""

from collections.abc import Sequence
from pathlib import Path

from xformc.compiler.shortlist import Shortlist

VOCABULARY_MAP = "vmap.txt"
"""The file in a model's folder; `use_vmap=True` makes CTranslate2 read it."""


def write_vocabulary_map(shortlist: Shortlist, names: tuple[Sequence[str], Sequence[str]], path: Path) -> None:
    """Write a line for each source token, with a tab before its target tokens, and one without a source token for those
    that any text may have. `names` are those of the source's and the target's tokens."""
    source, target = names
    rows = [("", shortlist.common), *zip(source, shortlist.likely, strict=True)]
    lines = [f"{name}\t{' '.join(str(target[token]) for token in row if token >= 0)}\n" for name, row in rows]
    path.write_text("".join(lines), encoding="utf-8")
