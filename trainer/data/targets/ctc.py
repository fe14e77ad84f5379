"""CTC: texts, or arrays of token ids that are padded with 0."""

import numpy as np

from xformc.format.tokens import PAD
from xformc.trainer.data.columns import Column, Counts, pack
from xformc.trainer.data.targets.target import Cells, Names, Target, TargetKind, register


class Ctc(TargetKind):
    """The tokenizer turns texts into ids; `column` reads arrays of ids [rows, longest]."""

    name = "ctc"
    ignore = PAD

    def column(self, target: Target, cells: Cells, labels: Names, lengths: Counts) -> Column:
        """See `TargetKind`."""
        array, size = cells.array, target.sizes[-1]
        wanted = f"'{target.name}' must be texts, or token ids from 1 to {size - 1}, padded with {PAD} at the end"
        if array.dtype.kind not in "iu" or array.ndim != 2:
            raise cells.refuse(0, f"{wanted}, found {array.dtype} {list(array.shape)}")
        written = array != PAD
        wrong = (array < 0) | (array >= size)
        wrong[:, 1:] |= written[:, 1:] & ~written[:, :-1]
        if wrong.any():
            raise cells.refuse(int(np.argmax(wrong.any(1))), wanted)
        return pack([row[real].tolist() for row, real in zip(array, written, strict=True)])


register(Ctc())
