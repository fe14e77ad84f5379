"""Predicts labels with probabilities, for a whole example or for each of its positions."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from xformc.errors import UserError
from xformc.format.manifest import Manifest
from xformc.runtime.results import Expected
from xformc.runtime.rows import Row, row_lengths, stack
from xformc.runtime.session import Session
from xformc.runtime.stream import MAX_BATCH_TOKENS
from xformc.runtime.texts import encode_line, whole_limit
from xformc.runtime.tokenizer import Tokenizer

MAX_BATCH_POSITIONS = 2048
"""Default maximum positions of a batch."""

FEWEST_POSITIONS = 16
"""Shorter examples count as this many positions, which bounds the rows of a batch and their memory."""


@dataclass(frozen=True)
class Prediction:
    """The prediction for one example.

    labels: the most likely label of each position (tagging), or of the whole example (classification).
    probabilities: float32 [len(labels), labels of the engine], in the order of the engine's labels.
    """

    labels: tuple[str, ...]
    probabilities: NDArray[np.float32]

    @property
    def label(self) -> str:
        """The label of the whole example, or of the first position."""
        return self.labels[0]

    @property
    def probability(self) -> float:
        """The probability of `label`."""
        return float(self.probabilities[0].max())


def encode_example(
    line: int,
    example: str | Sequence[str],
    *,
    manifest: Manifest,
    tokenizer: Tokenizer,
    truncate: bool,
    max_batch_tokens: int = MAX_BATCH_TOKENS,
) -> Row:
    """Return the ids of an example: one text, or a text for each input. Tagging has one id per word.

    Raises: UserError if the number of texts is not the number of inputs, and as `encode_line`.
    """
    texts, names = [example] if isinstance(example, str) else list(example), list(manifest.inputs)
    if len(texts) != len(names):
        raise UserError(
            f"needs a text for each of {', '.join(names)}, found {len(texts)}",
            place=f"line {line}",
            hint="put one text for each input on a line, separated by tabs",
        )
    encode, tail = (tokenizer.encode_words, 0) if manifest.task == "tagging" else (tokenizer.encode, 1)
    row: dict[str, NDArray[np.int64]] = {}
    for name, text in zip(names, texts, strict=True):
        limit = whole_limit(manifest.inputs[name].longest, max_batch_tokens)
        function = partial(encode, name)
        ids = encode_line(line, text, encode=function, limit=limit, truncate=truncate, tail=tail)
        row[name] = np.array(ids, np.int64)
    return row


def positions_needed(row: Row, *, manifest: Manifest) -> int:
    """Return the positions of the row's longest input, at least FEWEST_POSITIONS."""
    return max((FEWEST_POSITIONS, *row_lengths(manifest.inputs, row).values()))


def predict_rows(session: Session, rows: Sequence[Row], *, manifest: Manifest) -> list[Prediction]:
    """Predict the rows as one batch, and return the predictions in order; a row without positions has no labels."""
    assert manifest.labels is not None
    lengths = [row_lengths(manifest.inputs, row) for row in rows]
    results = [Prediction((), np.zeros((0, len(manifest.labels)), np.float32))] * len(rows)
    filled = [index for index, found in enumerate(lengths) if all(found.values())]
    if not filled:
        return results
    feeds = stack(manifest.inputs, [rows[index] for index in filled])
    positions = () if manifest.positions is None else (feeds[manifest.positions].shape[1],)
    shape = (len(filled), *positions, len(manifest.labels))
    (probabilities,) = session.run(feeds, (Expected(np.float32, shape),))
    for index, found in zip(filled, probabilities, strict=True):
        each = found[None] if manifest.positions is None else found[: lengths[index][manifest.positions]]
        best = [int(label) for label in each.argmax(-1)]
        results[index] = Prediction(tuple(manifest.labels[label] for label in best), each)
    return results
