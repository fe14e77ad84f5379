"""Writes a shortlist as CTranslate2's file of the target tokens that source tokens allow."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from xformc.compiler.shortlist import Shortlist


def write_vocabulary_map(shortlist: Shortlist, names: tuple[Sequence[str], Sequence[str]], path: Path) -> None:
    """Write a line for each source token, with a tab before its target tokens, and one without a source token for those
    that any text may have. `names` are those of the source's and the target's tokens; the file cannot name one with
    spaces, which is left out.
    """
    source, target = names
    rows = [("", shortlist.common), *zip(source, shortlist.likely, strict=True)]
    lines = [f"{name}\t{' '.join(_named(target, row))}\n" for name, row in rows if _is_plain(name)]
    path.write_text("".join(lines), encoding="utf-8")


def _named(names: Sequence[str], row: NDArray[np.int32]) -> list[str]:
    named = [str(names[token]) for token in row.tolist() if token >= 0]
    return [name for name in named if _is_plain(name)]


def _is_plain(name: str) -> bool:
    return not {*" \t\r\n"} & {*name}
