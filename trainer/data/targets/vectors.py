"""Vectors: trained on pairs of inputs that belong together, against the other rows of the batch."""

from xformc.trainer.data.columns import Column, Counts, Groups
from xformc.trainer.data.targets.target import Cells, Names, Target, TargetKind, register


class Vectors(TargetKind):
    """The two rows of a pair are a group."""

    name = "vectors"
    paired = True

    def column(self, target: Target, cells: Cells, labels: Names, lengths: Counts) -> Column:
        """See `TargetKind`."""
        return Groups(len(cells.content))


register(Vectors())
