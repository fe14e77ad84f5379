"""Reads Marian's binary files of lexical shortlists, as Bergamot's models have them."""

import struct
from itertools import pairwise
from pathlib import Path

import numpy as np

from xformc.compiler.shortlist import MOST_LIKELY, Shortlist, padded
from xformc.errors import UserError
from xformc.imports.origin import REMOVE

MAGIC = 0xF11A48D5013417F5
"""The first number of a file. Then come a checksum, the number of first tokens, which every list has, the most tokens
of a row, and the sizes of the two arrays: where the row of each source token begins, and the tokens of all rows."""

MOST_BYTES = 2**30
_HEADER = struct.Struct("<6Q")


def read_marian_shortlist(path: Path, vocabulary: int) -> Shortlist:
    """The lists of a model in which both sides share the vocabulary, of `vocabulary` tokens.

    A source token itself is in its list. Marian adds tokens until a list has a multiple of 8; these lists lack them.

    Raises: UserError for a file that is damaged, or of another vocabulary.
    """
    if path.stat().st_size > MOST_BYTES:
        raise UserError(f"has more than {MOST_BYTES:,} bytes", place=str(path), hint=REMOVE)
    content = path.read_bytes()
    size = _HEADER.size
    magic, _, first, best, offsets, tokens = _HEADER.unpack_from(content) if len(content) >= size else (0,) * 6
    if magic != MAGIC or len(content) != size + 8 * offsets + 4 * tokens:
        raise UserError("not a whole binary shortlist of Marian", place=str(path), hint=REMOVE)
    stored = np.frombuffer(content, "<u8", offsets, size)
    begins = np.minimum(stored, tokens + 1).astype(np.int64)
    written = np.frombuffer(content, "<u4", tokens, size + 8 * offsets).astype(np.int64)
    in_order = offsets > 0 and begins[0] == 0 and begins[-1] == tokens and bool((np.diff(begins) >= 0).all())
    in_order = in_order and first <= vocabulary and best < MOST_LIKELY and int(np.diff(begins).max(initial=0)) <= best
    if not in_order or written.max(initial=0) >= vocabulary or offsets - 1 > vocabulary:
        message = f"its rows are out of order or too long, or not those of a vocabulary of {vocabulary:,} tokens"
        raise UserError(message, place=str(path), hint=REMOVE)
    rows = [
        np.append(token, written[start:end]).astype(np.int32) for token, (start, end) in enumerate(pairwise(begins))
    ]
    rows += [np.zeros(0, np.int32)] * (vocabulary - len(rows))
    return Shortlist(np.arange(max(1, first), dtype=np.int32), padded(rows, int(best) + 1))
