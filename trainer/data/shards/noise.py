"""Noise in prepared sources: the ids of a row become text, which gets its noise, and ids again."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from xformc.compiler.spec.sections import Noise
from xformc.trainer.data.shards.blocks import Rows
from xformc.trainer.data.shards.manifest import Stored
from xformc.trainer.data.text_noise import TextNoise
from xformc.trainer.data.vocabulary import Vocabulary

Numbers = npt.NDArray[np.int64]
RowNoise = Callable[[Rows, Numbers, int, int], Rows]
"""Rows of blocks, their numbers in the corpus, the seed and the epoch; the rows with noise."""


@dataclass(frozen=True)
class IdNoise:
    """Noise in the column number `place`, whose ids are those of the vocabulary.

    A row with an unknown token keeps its ids: its text would not come back.
    """

    noise: Noise
    place: int
    column: Stored
    vocabulary: Vocabulary

    def __call__(self, rows: Rows, numbers: Numbers, seed: int, epoch: int) -> Rows:
        """The rows with the noise of their epoch; see RowNoise."""
        ends = np.cumsum(rows.lengths).reshape(rows.lengths.shape)[:, self.place]
        starts = ends - rows.lengths[:, self.place]
        before, after = len(self.column.before), len(self.column.after)
        kept = [rows.ids[start + before : end - after].tolist() for start, end in zip(starts, ends, strict=True)]
        changed = self._changed(kept, numbers, seed, epoch)
        pieces, lengths, last = list[Numbers](), rows.lengths.copy(), 0
        for row, ids in changed.items():
            pieces += [rows.ids[last : starts[row] + before], np.array(ids, rows.ids.dtype)]
            lengths[row, self.place] = before + len(ids) + after
            last = ends[row] - after
        return Rows(np.concatenate([*pieces, rows.ids[last:]]), lengths)

    def _changed(self, rows: list[list[int]], numbers: Numbers, seed: int, epoch: int) -> dict[int, list[int]]:
        """The new ids of the rows that have noise, in ascending order."""
        unknown = self.vocabulary.special.unknown
        known = [row for row, ids in enumerate(rows) if unknown not in ids]
        texts = self.vocabulary.decode([rows[row] for row in known])
        noise = TextNoise(self.noise, seed, epoch, 0)
        noisy = [noise.line(int(numbers[row]), text) for row, text in zip(known, texts, strict=True)]
        other = [index for index, text in enumerate(noisy) if text != texts[index]]
        encoded = self.vocabulary.encode([noisy[index] for index in other])
        return {known[index]: ids for index, ids in zip(other, encoded, strict=True) if ids}
