"""Prepared texts that are drawn anew in each epoch: with noise, for which ids become text, and other segmentations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from xformc.trainer.data.redrawn_texts import Redraw
from xformc.trainer.data.shards.blocks import Rows
from xformc.trainer.data.shards.manifest import Stored
from xformc.trainer.data.subword_sampling import Subwords
from xformc.trainer.data.text_noise import TextNoise
from xformc.trainer.data.vocabulary import Vocabulary

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class RedrawnRows:
    """The columns with the noise and the segmentations of an epoch; `vocabularies` are those of the columns.

    A text with an unknown token has no noise: it would not come back.
    """

    redraw: Redraw
    columns: Mapping[str, Stored]
    vocabularies: Mapping[str, Vocabulary]

    def __call__(self, rows: Rows, numbers: Numbers, seed: int, epoch: int, window: int = 0) -> Rows:
        """The rows of a window as the epoch has them; `numbers` are theirs in the corpus."""
        noise, rate = self.redraw.noise, self.redraw.sampling
        for place, (name, column) in enumerate(self.columns.items()):
            known = self.vocabularies[name]
            if noise is not None and name in self.redraw.columns:
                lines = TextNoise(noise, seed, epoch, self.redraw.columns.index(name))
                changed = _with_noise(_texts(rows, place, column), known, lines, numbers)
                rows = _replaced(rows, place, column, changed)
            if rate is not None:
                drawn = Subwords(known.model, rate).redraw(_texts(rows, place, column), (seed, epoch, place, window))
                rows = _replaced(rows, place, column, dict(enumerate(drawn)))
        return rows


def _bounds(rows: Rows, place: int, column: Stored) -> tuple[Numbers, Numbers]:
    """Where the texts of the column number `place` begin and end, without the tokens around them."""
    ends = np.cumsum(rows.lengths).reshape(rows.lengths.shape)[:, place]
    return ends - rows.lengths[:, place] + len(column.before), ends - len(column.after)


def _texts(rows: Rows, place: int, column: Stored) -> list[list[int]]:
    return [rows.ids[start:end].tolist() for start, end in zip(*_bounds(rows, place, column), strict=True)]


def _with_noise(
    rows: Sequence[Sequence[int]], vocabulary: Vocabulary, noise: TextNoise, numbers: Numbers
) -> dict[int, list[int]]:
    """The new ids by row, in ascending order, of the texts that noise has changed."""
    unknown = vocabulary.special.unknown
    known = [row for row, ids in enumerate(rows) if unknown not in ids]
    texts = vocabulary.decode([rows[row] for row in known])
    noisy = [noise.line(int(numbers[row]), text) for row, text in zip(known, texts, strict=True)]
    other = [index for index, text in enumerate(noisy) if text != texts[index]]
    encoded = vocabulary.encode([noisy[index] for index in other])
    return {known[index]: ids for index, ids in zip(other, encoded, strict=True) if ids}


def _replaced(rows: Rows, place: int, column: Stored, changed: Mapping[int, Sequence[int]]) -> Rows:
    """The rows with other texts in the column number `place`, by row in ascending order."""
    pieces, lengths, last = list[npt.NDArray[np.generic]](), rows.lengths.copy(), 0
    starts, ends = _bounds(rows, place, column)
    for row, ids in changed.items():
        pieces += [rows.ids[last : starts[row]], np.array(ids, rows.ids.dtype)]
        lengths[row, place] += len(ids) - (ends[row] - starts[row])
        last = ends[row]
    return Rows(np.concatenate([*pieces, rows.ids[last:]]), lengths)
