"""Token ids in batches of like length: the same seed and epoch give the same batches in the same order.

Lengths are padded up to multiples, and a length gets the same number of rows while there are sentences
enough, so that few shapes occur: every new shape costs a CPU's matrix kernels a set-up.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from xformc.trainer.tokenizer import BEGIN, END, PAD

Ids = npt.NDArray[np.int32]
LENGTH_MULTIPLE = 2
ROW_MULTIPLE = 8


@dataclass(frozen=True)
class Ragged:
    """Sentences of token ids end to end: sentence `i` is `ids[starts[i]:starts[i + 1]]`."""

    ids: Ids
    starts: npt.NDArray[np.int64]

    def __len__(self) -> int:
        """How many sentences."""
        return len(self.starts) - 1

    def lengths(self) -> npt.NDArray[np.int64]:
        """Tokens per sentence."""
        return np.diff(self.starts)

    def padded(self, rows: npt.NDArray[np.int64], before: int | None, after: int | None, width: int) -> torch.Tensor:
        """int64 [len(rows), width]: the token `before`, the sentence, the token `after`, then padding."""
        batch = np.full((len(rows), width), PAD, np.int64)
        first = 0 if before is None else 1
        if before is not None:
            batch[:, 0] = before
        for index, row in enumerate(rows):
            start, end = self.starts[row], self.starts[row + 1]
            batch[index, first : first + end - start] = self.ids[start:end]
            if after is not None:
                batch[index, first + end - start] = after
        return torch.from_numpy(batch)  # pyright: ignore[reportUnknownMemberType]


@dataclass(frozen=True)
class Examples:
    """Pairs as token ids, without begin and end; `too_long` counts the pairs left out."""

    source: Ragged
    target: Ragged
    too_long: int

    def __len__(self) -> int:
        """How many pairs."""
        return len(self.source)


@dataclass(frozen=True)
class Batch:
    """Padded int64 tensors: source [batch, source], target and labels [batch, target].

    `tokens` is the number of labels that are not padding.
    """

    source: torch.Tensor
    target: torch.Tensor
    labels: torch.Tensor
    tokens: int

    def to(self, device: torch.device) -> "Batch":
        """The same batch on `device`."""
        return Batch(self.source.to(device), self.target.to(device), self.labels.to(device), self.tokens)


def make_examples(sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], longest: int) -> Examples:
    """Pack pairs whose sides, with the end token, have at most `longest` tokens."""
    kept = [
        (source, target)
        for source, target in zip(sources, targets, strict=True)
        if max(len(source), len(target)) < longest
    ]
    return Examples(
        _pack([source for source, _ in kept]), _pack([target for _, target in kept]), len(sources) - len(kept)
    )


def plan_batches(examples: Examples, batch_tokens: int, seed: int, epoch: int) -> list[npt.NDArray[np.int64]]:
    """The sentences of each batch of one epoch, as row numbers.

    A batch has at most `batch_tokens` source tokens and as many target tokens, padding included. Sentences of
    one padded length are dealt at random among its batches, and the batches come in random order.
    """
    random = np.random.default_rng([seed, epoch])
    source = padded_length(examples.source.lengths() + 1)
    target = padded_length(examples.target.lengths() + 1)
    order = random.permutation(len(examples))
    order = order[np.lexsort((source[order], target[order]))]
    source, target = source[order], target[order]
    batches: list[npt.NDArray[np.int64]] = []
    start = 0
    while start < len(order):
        count = _rows_that_fit(source[start:], target[start:], batch_tokens)
        batches.append(order[start : start + count])
        start += count
    return [batches[index] for index in random.permutation(len(batches))]


def make_batch(examples: Examples, rows: npt.NDArray[np.int64]) -> Batch:
    """Pad the sentences `rows` into tensors."""
    source_lengths = examples.source.lengths()[rows] + 1
    target_lengths = examples.target.lengths()[rows] + 1
    source = int(padded_length(source_lengths).max())
    target = int(padded_length(target_lengths).max())
    return Batch(
        source=examples.source.padded(rows, None, END, source),
        target=examples.target.padded(rows, BEGIN, None, target),
        labels=examples.target.padded(rows, None, END, target),
        tokens=int(target_lengths.sum()),
    )


def padded_length(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """`lengths` rounded up to a multiple."""
    return -(-lengths // LENGTH_MULTIPLE) * LENGTH_MULTIPLE


def _rows_that_fit(source: npt.NDArray[np.int64], target: npt.NDArray[np.int64], batch_tokens: int) -> int:
    most = min(len(source), batch_tokens)
    rows = np.arange(1, most + 1)
    widest = np.maximum(np.maximum.accumulate(source[:most]), np.maximum.accumulate(target[:most]))
    fitting = int(np.searchsorted(rows * widest, batch_tokens, side="right"))
    if fitting < most and fitting > ROW_MULTIPLE:
        fitting -= fitting % ROW_MULTIPLE
    return max(fitting, 1)


def _pack(sentences: Sequence[Sequence[int]]) -> Ragged:
    starts = np.zeros(len(sentences) + 1, np.int64)
    np.cumsum([len(sentence) for sentence in sentences], out=starts[1:])
    ids = np.fromiter((token for sentence in sentences for token in sentence), np.int32, int(starts[-1]))
    return Ragged(ids, starts)
