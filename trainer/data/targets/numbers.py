"""Numbers: a text has them separated by commas, and by spaces between positions."""

from xformc.trainer.data.columns import Column, Counts
from xformc.trainer.data.targets.target import Cells, Names, Target, TargetKind, numbers_column, register


class Numbers(TargetKind):
    """See `numbers_column`."""

    name = "numbers"

    def column(self, target: Target, cells: Cells, labels: Names, lengths: Counts) -> Column:
        """See `TargetKind`."""
        return numbers_column(target, cells, lengths)


register(Numbers())
