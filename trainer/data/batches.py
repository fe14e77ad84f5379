"""Batches examples of similar length; the same seed and epoch give the same batches in the same order.

Batches of one length have the same number of rows as far as possible, so that few shapes occur.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

from xformc.trainer.data.columns import Column, Counts, Sequences

ROW_MULTIPLE = 8


@dataclass(frozen=True)
class Examples:
    """Columns with the same number of rows: the model's inputs and what its losses compare with, by name, in order.

    ignore: the whole number that does not count as a target; of other numbers NaN does not count. longest: maximum
    positions of a sequence. too_long, empty: the examples dropped because they are longer, or an input has no position.
    kept: which rows of the data these are, bool [rows of the data]; None for all.
    """

    inputs: Mapping[str, Column]
    targets: Mapping[str, Column]
    ignore: Mapping[str, int]
    longest: int
    too_long: int = 0
    empty: int = 0
    kept: npt.NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        """The number of examples."""
        return len(self.labels)

    @property
    def labels(self) -> Column:
        """The targets of the first result."""
        return next(iter(self.targets.values()))

    def sample(self) -> "Batch":
        """A batch of one example."""
        return make_batch(self, np.arange(1))

    def windows(self, seed: int, epoch: int, first: int = 0) -> "Iterator[tuple[int, Examples]]":
        """Yield the only window of an epoch: all examples."""
        if first == 0:
            yield 0, self


class Data(Protocol):
    """The training data, in windows: examples that are in memory together, and form batches."""

    def __len__(self) -> int:
        """The number of examples."""
        ...

    def sample(self) -> "Batch":
        """A batch of one example."""
        ...

    def windows(self, seed: int, epoch: int, first: int = 0) -> Iterator[tuple[int, Examples]]:
        """Yield the windows of an epoch from number `first` on, each with its number; the same for the same numbers."""
        ...


@dataclass(frozen=True)
class Batch:
    """The tensors of the graph's inputs and targets, by name, in order; `counts` of the targets are not ignored.

    ignore: as that of Examples.
    """

    inputs: Mapping[str, torch.Tensor]
    targets: Mapping[str, torch.Tensor]
    counts: tuple[int, ...]
    ignore: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def labels(self) -> torch.Tensor:
        """The targets of the first result."""
        return next(iter(self.targets.values()))

    @property
    def count(self) -> int:
        """The number of targets of the first result that are not ignored."""
        return self.counts[0]

    def to(self, device: torch.device) -> "Batch":
        """Return the batch on `device`; a copy to a GPU from pinned memory goes on while the caller works."""
        return self._mapped(lambda tensor: tensor.to(device, non_blocking=True))

    def pinned(self) -> "Batch":
        """Return the batch in memory that a GPU reads by itself."""
        return self._mapped(torch.Tensor.pin_memory)

    def _mapped(self, change: Callable[[torch.Tensor], torch.Tensor]) -> "Batch":
        inputs, targets = (
            {name: change(tensor) for name, tensor in group.items()} for group in (self.inputs, self.targets)
        )
        return replace(self, inputs=inputs, targets=targets)

    def repeated(self, copies: int) -> "Batch":
        """The batch with all rows so many times, one after the other; the counts are those of one."""
        if copies == 1:
            return self
        inputs, targets = (
            {name: torch.cat([tensor] * copies) for name, tensor in group.items()}
            for group in (self.inputs, self.targets)
        )
        return replace(self, inputs=inputs, targets=targets)

    def part(self, index: int, count: int) -> "Batch":
        """Part `index` of the rows in `count` parts, padded like the batch; a part without rows has one row that does
        not count."""
        rows = len(next(iter(self.inputs.values())))
        start, end = rows * index // count, rows * (index + 1) // count
        inputs, targets = (
            {name: tensor[start : max(end, start + 1)] for name, tensor in group.items()}
            for group in (self.inputs, self.targets)
        )
        if start == end:
            targets = {name: _nothing(tensor, self.ignore.get(name, 0)) for name, tensor in targets.items()}
        counts = tuple(_count(tensor, self.ignore.get(name, 0)) for name, tensor in targets.items())
        return replace(self, inputs=inputs, targets=targets, counts=counts)


def without_long(examples: Examples) -> Examples:
    """Drop and count the examples with a sequence longer than `longest`, and those with an empty one."""
    fits, empty = np.ones(len(examples), np.bool_), np.zeros(len(examples), np.bool_)
    for column in examples.inputs.values():
        fits &= column.lengths() <= examples.longest
        empty |= isinstance(column, Sequences) & (column.lengths() == 0)
    kept = fits & ~empty
    inputs = {name: column.at(kept) for name, column in examples.inputs.items()}
    targets = {name: column.at(kept) for name, column in examples.targets.items()}
    too_long, none = int((~fits).sum()), int((fits & empty).sum())
    return replace(examples, inputs=inputs, targets=targets, too_long=too_long, empty=none, kept=kept)


def plan_batches(examples: Examples, batch_tokens: int, seed: int, epoch: int, window: int = 0) -> list[Counts]:
    """Return the row numbers of each batch of one window of an epoch.

    Each input of a batch has at most `batch_tokens` positions, padding included; a longer row has its own batch.
    Examples of one padded length are assigned at random to its batches, and the batches are in random order.
    """
    random = np.random.default_rng([seed, epoch, window])
    widths = [column.widths(examples.longest) for column in examples.inputs.values()]
    order = random.permutation(len(examples))
    order = order[np.lexsort([width[order] for width in widths])]
    widest = np.maximum.reduce(widths)[order]
    batches: list[Counts] = []
    start = 0
    while start < len(order):
        count = _rows_that_fit(widest[start:], batch_tokens)
        batches.append(order[start : start + count])
        start += count
    return [batches[index] for index in random.permutation(len(batches))]


def make_batch(examples: Examples, rows: Counts) -> Batch:
    """Return the examples `rows` as padded tensors."""
    inputs: dict[str, torch.Tensor] = {}
    for name, column in examples.inputs.items():
        inputs |= column.tensors(name, rows, examples.longest)
    targets: dict[str, torch.Tensor] = {}
    for name, column in examples.targets.items():
        targets |= column.tensors(name, rows, examples.longest)
    counts = tuple(_count(tensor, examples.ignore[name]) for name, tensor in targets.items())
    return Batch(inputs, targets, counts, examples.ignore)


def _nothing(targets: torch.Tensor, ignore: int) -> torch.Tensor:
    return torch.full_like(targets, float("nan") if targets.is_floating_point() else ignore)


def _count(targets: torch.Tensor, ignore: int) -> int:
    counted = ~targets.isnan() if targets.is_floating_point() else targets != ignore
    return int(counted.sum())


def _rows_that_fit(widths: Counts, batch_tokens: int) -> int:
    most = min(len(widths), batch_tokens)
    rows = np.arange(1, most + 1)
    widest = np.maximum.accumulate(widths[:most])
    fitting = int(np.searchsorted(rows * widest, batch_tokens, side="right"))
    if fitting < most and fitting > ROW_MULTIPLE:
        fitting -= fitting % ROW_MULTIPLE
    return max(fitting, 1)
