"""Labels with their probabilities: for a whole example, or for each of its positions."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from xformc.errors import UserError
from xformc.format.manifest import Manifest
from xformc.runtime.rows import Row, row_lengths, stack
from xformc.runtime.session import Session
from xformc.runtime.stream import MAX_BATCH_TOKENS
from xformc.runtime.texts import encode_line, whole_limit
from xformc.runtime.tokenizer import Tokenizer

MAX_BATCH_POSITIONS = 2048
"""The positions that a batch may have, if a call does not say."""

FEWEST_POSITIONS = 16
"""A shorter example counts as this many, so that the rows of a batch, which cost memory too, are bounded."""


@dataclass(frozen=True)
class Prediction:
    """What an engine says of one example.

    labels: the likeliest label of each position (tagging), or one for the whole (classification).
    probabilities: float32 [labels given, labels known], in the order of the engine's labels.
    """

    labels: tuple[str, ...]
    probabilities: NDArray[np.float32]

    @property
    def label(self) -> str:
        """The label of the whole, or of the first position."""
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
    """The ids of an example, which is a text for each input (one may stand alone): one id a word for tagging.

    Raises: UserError for a number of texts that is not that of the inputs, and as `encode_line`.
    """
    texts, names = [example] if isinstance(example, str) else list(example), list(manifest.inputs)
    if len(texts) != len(names):
        raise UserError(
            f"needs a text for each of {', '.join(names)}, found {len(texts)}",
            place=f"line {line}",
            hint="in a line they are separated by tabs",
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
    """The positions of the row's longest input, and FEWEST_POSITIONS at least."""
    return max((FEWEST_POSITIONS, *row_lengths(manifest.inputs, row).values()))


def predict_rows(session: Session, rows: Sequence[Row], *, manifest: Manifest) -> list[Prediction]:
    """The prediction of each row, in order, run together; a row without positions has no labels."""
    assert manifest.labels is not None
    lengths = [row_lengths(manifest.inputs, row) for row in rows]
    results = [Prediction((), np.zeros((0, len(manifest.labels)), np.float32))] * len(rows)
    filled = [index for index, found in enumerate(lengths) if all(found.values())]
    if not filled:
        return results
    (probabilities,) = session.run(stack(manifest.inputs, [rows[index] for index in filled]))
    for index, found in zip(filled, probabilities, strict=True):
        positions = found[None] if manifest.positions is None else found[: lengths[index][manifest.positions]]
        best = [int(label) for label in positions.argmax(-1)]
        results[index] = Prediction(tuple(manifest.labels[label] for label in best), positions)
    return results
