"""A block: a few hundred rows of token ids as bytes, with a checksum.

A block has the lengths of its rows, uint32 [rows, columns], then their ids, row by row and column by column.
"""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

Ids = Sequence[int]
Array = npt.NDArray[Any]

MOST_ROWS, MOST_TOKENS = 512, 1 << 16
"""The rows and tokens of a block; a row of more tokens is a block of its own."""

ENTRY = np.dtype([("shard", "<u4"), ("offset", "<u8"), ("size", "<u4"), ("rows", "<u4"), ("crc32", "<u4")])
"""Where a block is: the number of its file, and its bytes in it; its rows; and its checksum."""

LENGTH = np.dtype("<u4")


@dataclass(frozen=True)
class Block:
    """The bytes of a block, the number of its rows, and its checksum."""

    content: bytes
    rows: int
    crc32: int


@dataclass(frozen=True)
class Rows:
    """Rows of token ids: `lengths` is int64 [rows, columns]; `ids` holds them row by row and column by column."""

    ids: Array
    lengths: npt.NDArray[np.int64]


def id_type(size: int) -> np.dtype[Any]:
    """The type of the ids of vocabularies of at most `size` tokens."""
    return np.dtype("<u2" if size <= 1 << 16 else "<u4")


def make_blocks(rows: Sequence[Sequence[Ids]], kind: np.dtype[Any]) -> Iterator[Block]:
    """Yield the rows in blocks; each row has the ids of each column."""
    if not rows:
        return
    lengths = np.array([[len(ids) for ids in row] for row in rows], np.int64)
    ends = np.cumsum(lengths.sum(1))
    ids = np.fromiter(chain.from_iterable(chain.from_iterable(rows)), kind, int(ends[-1]))
    first, start = 0, 0
    while first < len(rows):
        fitting = int(np.searchsorted(ends, start + MOST_TOKENS, side="right"))
        last = max(first + 1, min(fitting, first + MOST_ROWS))
        end = int(ends[last - 1])
        content = lengths[first:last].astype(LENGTH).tobytes() + ids[start:end].tobytes()
        yield Block(content, last - first, zlib.crc32(content))
        first, start = last, end


def read_block(content: bytes, entry: Any, columns: int, kind: np.dtype[Any]) -> Rows | None:
    """The rows of a block; None if its bytes are not those that were written."""
    if len(content) != entry["size"] or zlib.crc32(content) != entry["crc32"]:
        return None
    count = int(entry["rows"]) * columns
    if len(content) < count * LENGTH.itemsize:
        return None
    lengths = np.frombuffer(content, LENGTH, count).astype(np.int64)
    if int(lengths.sum()) * kind.itemsize != len(content) - count * LENGTH.itemsize:
        return None
    return Rows(np.frombuffer(content, kind, offset=count * LENGTH.itemsize), lengths.reshape(-1, columns))


def joined(blocks: Sequence[Rows]) -> Rows:
    """The rows of several blocks, in order."""
    return Rows(np.concatenate([one.ids for one in blocks]), np.concatenate([one.lengths for one in blocks]))
