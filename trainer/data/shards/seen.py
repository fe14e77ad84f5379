"""Which rows were there before: a table of their hashes in a file, so that memory does not grow with the rows.

Two different rows with one hash of 64 bits count as the same: among a billion rows there is such a pair with a
probability of 3%.
"""

import hashlib
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from xformc.trainer.data.text_files import Row, row_bytes

Hashes = npt.NDArray[np.uint64]
SLOTS = 1 << 20
FULL = 0.5
"""The table is made larger when this share of its slots is taken."""


class Seen:
    """The rows that were there before."""

    def __init__(self, folder: Path, slots: int = SLOTS) -> None:
        """The table is a file without a name in `folder`; `slots` is a power of 2."""
        self._folder, self._count = folder, 0
        self._table = self._made(slots)

    def unseen(self, rows: Sequence[Row]) -> list[Row]:
        """The rows that were not there before, which are seen from now on."""
        hashes = np.frombuffer(b"".join(map(_hash, rows)), np.uint64)
        unique, first = np.unique(np.maximum(hashes, 1), return_index=True)  # 0 marks an empty slot
        if self._count + len(unique) > FULL * len(self._table):
            self._grow(2 * (self._count + len(unique)))
        new = self._insert(unique)
        self._count += int(new.sum())
        return [rows[index] for index in np.sort(first[new])]

    def _insert(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """Insert different hashes by linear probing; which of them were new."""
        table, mask = self._table, np.uint64(len(self._table) - 1)
        slots, new, open_ = hashes & mask, np.zeros(len(hashes), np.bool_), np.arange(len(hashes))
        while len(open_):
            found = table[slots[open_]]
            free = open_[found == 0]
            table[slots[free]] = hashes[free]  # of several hashes with one slot, the last one stays
            new[free] = table[slots[free]] == hashes[free]
            open_ = open_[(found != hashes[open_]) & ~new[open_]]
            slots[open_] = (slots[open_] + np.uint64(1)) & mask
        return new

    def _grow(self, rows: int) -> None:
        old = self._table
        self._table = self._made(1 << int(rows / FULL).bit_length())
        for start in range(0, len(old), SLOTS):
            part = np.array(old[start : start + SLOTS])
            self._insert(part[part > 0])

    def _made(self, slots: int) -> Hashes:
        with tempfile.TemporaryFile(dir=self._folder) as file:
            file.truncate(slots * 8)
            return np.memmap(file, np.uint64, "r+")


def _hash(row: Row) -> bytes:
    return hashlib.blake2b(row_bytes(row), digest_size=8).digest()
