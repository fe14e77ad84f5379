"""A curriculum: training data that changes at given steps. The stage follows from the step, so that it has no state."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from xformc.trainer.data.batches import Batch, Data, Examples


@dataclass(frozen=True)
class Part:
    """The data of a stage, and the number of its steps; None: all steps that are left."""

    data: Data
    steps: int | None


@dataclass(frozen=True)
class Curriculum:
    """Training data in parts, one after another; the last one has no end."""

    parts: Sequence[Part]

    def __len__(self) -> int:
        """The number of examples of the last part."""
        return len(self.parts[-1].data)

    def sample(self) -> Batch:
        """A batch of one example."""
        return self.parts[-1].data.sample()

    def windows(self, seed: int, epoch: int, first: int = 0) -> Iterator[tuple[int, Examples]]:
        """Yield the windows of an epoch of the last part."""
        return self.parts[-1].data.windows(seed, epoch, first)


def parts_after(data: Data, step: int) -> Iterator[Part]:
    """Yield the parts from the one that made step number `step` on, each with the number of steps that it has left.

    That number is 0 if the part ended with this step, and None for the last part.
    """
    for part in data.parts if isinstance(data, Curriculum) else (Part(data, None),):
        if part.steps is None or step <= part.steps:
            yield Part(part.data, None if part.steps is None else part.steps - step)
        step = max(0, step - (part.steps or 0))
