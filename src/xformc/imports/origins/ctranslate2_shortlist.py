"""Reads CTranslate2's vocabulary map: the target tokens that source tokens allow."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from xformc.compiler.shortlist import MOST_LIKELY, Shortlist, padded
from xformc.errors import UserError
from xformc.imports.origin import REMOVE

VOCABULARY_MAP, MOST_BYTES = "vmap.txt", 2**30


def read_vocabulary_map(
    path: Path, names: tuple[Sequence[str], Sequence[str]], always: Sequence[int], rows: int
) -> Shortlist:
    """The lists of a file. `names` are those of the tokens of the source and of the target, `always` the tokens that
    CTranslate2 adds to every list, `rows` the number of source tokens. Lines of several source tokens are left out:
    a shortlist has none.

    Raises: UserError for a file that is none, or is too large.
    """
    if path.stat().st_size > MOST_BYTES:
        raise UserError(f"has more than {MOST_BYTES:,} bytes", place=str(path), hint=REMOVE)
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise UserError(f"not UTF-8: {error}", place=str(path), hint=REMOVE) from None
    source, target = ({name: token for token, name in enumerate(side)} for side in names)
    likely, common = [np.zeros(0, np.int32)] * rows, [*always]
    for number, line in enumerate(lines, start=1):
        key, tab, rest = line.rstrip("\r").partition("\t")
        if not line or " " in key:
            continue
        if not tab:
            raise UserError("a line without a tab", place=f"{path}:{number}", hint=REMOVE)
        tokens = [target[name] for name in rest.split(" ") if name in target]
        if len(tokens) > MOST_LIKELY:
            raise UserError(f"a line of more than {MOST_LIKELY:,} tokens", place=f"{path}:{number}", hint=REMOVE)
        if not key:
            common += tokens
        elif key in source:
            likely[source[key]] = np.array(tokens, np.int32)
    if len(common) == len(always) and not any(map(len, likely)):
        raise UserError("names no tokens of this model", place=str(path), hint=REMOVE)
    return Shortlist(np.unique(np.array(common, np.int32)), padded(likely, MOST_LIKELY))
