"""Examples in batches of like length: the same seed and epoch give the same batches in the same order.

A length gets the same number of rows while there are examples enough, so that few shapes occur.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch

from xformc.trainer.data.columns import Column, Counts

ROW_MULTIPLE = 8


@dataclass(frozen=True)
class Examples:
    """Columns of one number of rows: the model's inputs by name, in their order, and the labels.

    A label `ignore` does not count. Sequences have at most `longest` positions; `too_long` counts the examples that
    were left out for that.
    """

    inputs: Mapping[str, Column]
    labels: Column
    ignore: int
    longest: int
    too_long: int = 0

    def __len__(self) -> int:
        """How many examples."""
        return len(self.labels)


@dataclass(frozen=True)
class Batch:
    """The tensors of the graph's inputs by name, in their order, and the labels; `count` of them are to be learnt."""

    inputs: Mapping[str, torch.Tensor]
    labels: torch.Tensor
    count: int

    def to(self, device: torch.device) -> "Batch":
        """The same batch on `device`."""
        inputs = {name: tensor.to(device) for name, tensor in self.inputs.items()}
        return Batch(inputs, self.labels.to(device), self.count)


def without_long(examples: Examples) -> Examples:
    """The examples none of whose sequences is longer than `longest`; the others are counted."""
    fits = np.ones(len(examples), np.bool_)
    for column in examples.inputs.values():
        fits &= column.lengths() <= examples.longest
    inputs = {name: column.at(fits) for name, column in examples.inputs.items()}
    return replace(examples, inputs=inputs, labels=examples.labels.at(fits), too_long=int((~fits).sum()))


def plan_batches(examples: Examples, batch_tokens: int, seed: int, epoch: int) -> list[Counts]:
    """The examples of each batch of one epoch, as row numbers.

    In a batch no input has more than `batch_tokens` positions, padding included, but a longer row has a batch of its
    own. Examples of one padded length are dealt at random among its batches, and the batches come in random order.
    """
    random = np.random.default_rng([seed, epoch])
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
    """Pad the examples `rows` into tensors."""
    inputs: dict[str, torch.Tensor] = {}
    for name, column in examples.inputs.items():
        inputs |= column.tensors(name, rows, examples.longest)
    (labels,) = examples.labels.tensors("labels", rows, examples.longest).values()
    return Batch(inputs, labels, int((labels != examples.ignore).sum()))


def _rows_that_fit(widths: Counts, batch_tokens: int) -> int:
    most = min(len(widths), batch_tokens)
    rows = np.arange(1, most + 1)
    widest = np.maximum.accumulate(widths[:most])
    fitting = int(np.searchsorted(rows * widest, batch_tokens, side="right"))
    if fitting < most and fitting > ROW_MULTIPLE:
        fitting -= fitting % ROW_MULTIPLE
    return max(fitting, 1)
