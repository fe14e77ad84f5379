"""The columns of a data set: one for each input of the model, and one for the labels.

Lengths are padded to multiples of LENGTH_MULTIPLE, because each new shape costs a CPU's matrix kernels some setup.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt
import torch

from xformc.format.tokens import PAD

Array = npt.NDArray[Any]
Counts = npt.NDArray[np.int64]
LENGTH_MULTIPLE = 2


class Column(Protocol):
    """One value for each example: row `i` belongs to example `i`."""

    def __len__(self) -> int:
        """The number of rows."""
        ...

    def lengths(self) -> Counts:
        """Return the positions of each row, int64 [rows]; 0 for values without positions."""
        ...

    def widths(self, longest: int) -> Counts:
        """Return the positions that each row takes in a batch, int64 [rows]; sequences take at most `longest`."""
        ...

    def at(self, rows: Array) -> Self:
        """Return the column with only these rows, given by number or as a mask."""
        ...

    def tensors(self, name: str, rows: Counts, longest: int) -> dict[str, torch.Tensor]:
        """Return the rows as one batch: the tensors of the model's input `name`."""
        ...


@dataclass(frozen=True)
class Sequences:
    """Concatenated sequences: row `i` is `items[starts[i]:ends[i]]`; rows may overlap.

    items: integers [total] for tokens and labels, which become int64 [batch, width] padded with `fill`; float32
    [total, size] for vectors, which become float32 [batch, width, size] and, as `masked`, bool [batch, width].
    """

    items: Array
    starts: Counts
    ends: Counts
    fill: float = PAD
    masked: bool = False

    def __len__(self) -> int:
        """The number of sequences."""
        return len(self.starts)

    def lengths(self) -> Counts:
        """Return the number of items in each sequence."""
        return self.ends - self.starts

    def widths(self, longest: int) -> Counts:
        """Return the lengths, rounded up."""
        return _padded(self.lengths(), longest)

    def at(self, rows: Array) -> "Sequences":
        """Return these sequences; the items are shared."""
        return replace(self, starts=self.starts[rows], ends=self.ends[rows])

    def tensors(self, name: str, rows: Counts, longest: int) -> dict[str, torch.Tensor]:
        """Return the sequences, and their mask as `name`_mask."""
        starts, lengths = self.starts[rows, None], self.lengths()[rows, None]
        positions = np.arange(int(_padded(lengths, longest).max()))
        inside = positions < lengths
        whole = np.issubdtype(self.items.dtype, np.integer)
        shape = (*inside.shape, *self.items.shape[1:])
        batch = np.full(shape, self.fill, np.int64 if whole else np.float32)
        batch[inside] = self.items[(starts + positions)[inside]]
        tensors = {name: torch.from_numpy(batch)}  # pyright: ignore[reportUnknownMemberType]
        if self.masked:
            tensors[f"{name}_mask"] = torch.from_numpy(inside)  # pyright: ignore[reportUnknownMemberType]
        return tensors


@dataclass(frozen=True)
class Values:
    """Rows of one shape: array [rows, ..], which becomes float32, or int64 if the values are `whole` numbers."""

    array: Array
    whole: bool = False

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.array)

    def lengths(self) -> Counts:
        """Return 0 for each row: a value has no positions."""
        return np.zeros(len(self), np.int64)

    def widths(self, longest: int) -> Counts:
        """Return the product of all axes but the last: an image of 32 x 32 x 3 takes 1,024 positions."""
        return np.full(len(self), int(np.prod(self.array.shape[1:-1])), np.int64)

    def at(self, rows: Array) -> "Values":
        """Return these rows."""
        return Values(self.array[rows], self.whole)

    def tensors(self, name: str, rows: Counts, longest: int) -> dict[str, torch.Tensor]:
        """Return the values."""
        chosen = self.array[rows].astype(np.int64 if self.whole else np.float32)
        return {name: torch.from_numpy(chosen)}  # pyright: ignore[reportUnknownMemberType]


@dataclass(frozen=True)
class Edges:
    """Which position may attend to which: bool [rows, longest, longest]; row `i` has `counts[i]` positions."""

    array: npt.NDArray[np.bool_]
    counts: Counts

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.array)

    def lengths(self) -> Counts:
        """Return the number of positions that the edges of each row join."""
        return self.counts

    def widths(self, longest: int) -> Counts:
        """Return the widths of the sequence whose positions the edges join."""
        return _padded(self.counts, longest)

    def at(self, rows: Array) -> "Edges":
        """Return these rows."""
        return Edges(self.array[rows], self.counts[rows])

    def tensors(self, name: str, rows: Counts, longest: int) -> dict[str, torch.Tensor]:
        """Return bool [batch, width, width]; padding has no edges."""
        width = int(_padded(self.counts[rows], longest).max())
        inside = np.arange(width) < self.counts[rows, None]
        batch = np.zeros((len(rows), width, width), np.bool_)
        held = min(width, self.array.shape[1])
        batch[:, :held, :held] = self.array[rows, :held, :held]
        batch &= inside[:, :, None] & inside[:, None, :]
        return {name: torch.from_numpy(batch)}  # pyright: ignore[reportUnknownMemberType]


@dataclass(frozen=True)
class Pairs:
    """Two rows for each example: `column` has the first ones, then the second ones, and so has a batch."""

    column: Sequences | Values

    def __len__(self) -> int:
        """The number of pairs."""
        return len(self.column) // 2

    def lengths(self) -> Counts:
        """Return the length of the longer row of each pair."""
        return self.column.lengths().reshape(2, -1).max(0)

    def widths(self, longest: int) -> Counts:
        """Return the positions of both rows."""
        return 2 * self.column.widths(longest).reshape(2, -1).max(0)

    def at(self, rows: Array) -> "Pairs":
        """Return these pairs."""
        index = np.arange(len(self))[rows]
        return Pairs(self.column.at(np.concatenate([index, index + len(self)])))

    def tensors(self, name: str, rows: Counts, longest: int) -> dict[str, torch.Tensor]:
        """Return the first rows, then the second ones."""
        return self.column.tensors(name, np.concatenate([rows, rows + len(self)]), longest)


@dataclass(frozen=True)
class Groups:
    """Which rows of a batch of pairs belong together: int64 [2 * batch]."""

    count: int

    def __len__(self) -> int:
        """The number of pairs."""
        return self.count

    def lengths(self) -> Counts:
        """Return 0 for each pair."""
        return np.zeros(self.count, np.int64)

    def widths(self, longest: int) -> Counts:
        """Return 0 for each pair."""
        return np.zeros(self.count, np.int64)

    def at(self, rows: Array) -> "Groups":
        """Return these pairs."""
        return Groups(len(np.arange(self.count)[rows]))

    def tensors(self, name: str, rows: Counts, longest: int) -> dict[str, torch.Tensor]:
        """Return the number of each row's pair in the batch."""
        numbers = np.arange(len(rows), dtype=np.int64)
        return {name: torch.from_numpy(np.concatenate([numbers, numbers]))}  # pyright: ignore[reportUnknownMemberType]


def inside(lengths: Counts, width: int) -> Array:
    """Return bool [n, width]: true for the positions inside each row's length."""
    return np.arange(width) < lengths[:, None]


def pack(rows: Sequence[Sequence[int]], *, before: Sequence[int] = (), after: Sequence[int] = ()) -> Sequences:
    """Return sequences of integers below 2^31, each with `before` prepended and `after` appended."""
    extra = len(before) + len(after)
    lengths = np.fromiter((len(row) + extra for row in rows), np.int64, len(rows))
    ends = np.cumsum(lengths)
    items = chain.from_iterable(chain(before, row, after) for row in rows)
    return Sequences(np.fromiter(items, np.int32, int(lengths.sum())), ends - lengths, ends)


def _padded(lengths: Counts, longest: int) -> Counts:
    """Round `lengths` up to a multiple, but not above `longest`."""
    return np.minimum(-(-lengths // LENGTH_MULTIPLE) * LENGTH_MULTIPLE, longest)
