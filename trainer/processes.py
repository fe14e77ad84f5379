"""The processes that train one model together; torch's launcher gives each its rank in the environment."""

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.distributed as dist

from xformc.errors import UserError
from xformc.trainer.data.batches import Batch

LOST = 3
"""The exit code of a process that ends because another one has gone."""


@dataclass(frozen=True)
class Processes:
    """This process's `rank` among `count` processes; the first one, rank 0, writes all files."""

    rank: int = 0
    count: int = 1

    @property
    def first(self) -> bool:
        """Whether this process writes the files and reports the progress."""
        return self.rank == 0

    def seed(self, *numbers: int) -> tuple[int, ...]:
        """The numbers of a seed for this process; those of the first process are unchanged."""
        return numbers if self.first else (*numbers, self.rank)

    def share(self, group: tuple[Batch, ...]) -> tuple[Batch, ...]:
        """The part of an update's batches that this process computes: whole batches if they can be shared out evenly,
        else a part of the rows of each."""
        if len(group) % self.count == 0:
            return group[self.rank :: self.count]
        return tuple(batch.part(self.rank, self.count) for batch in group)

    def add(self, tensor: torch.Tensor) -> torch.Tensor:
        """Replace a tensor by its sum over all processes, and return it."""
        if self.count > 1:
            cast(Any, dist).all_reduce(tensor)
        return tensor

    def total(self, *numbers: float) -> list[float]:
        """The sum of each number over all processes."""
        added: Any = self.add(torch.tensor(numbers, dtype=torch.float64))
        return added.tolist()

    def agree(self, value: float) -> float:
        """The first process's value."""
        if self.count == 1:
            return value
        agreed = torch.tensor(value, dtype=torch.float64)
        dist.broadcast(agreed, src=0)
        return agreed.item()

    @contextmanager
    def first_ahead(self) -> Generator[None]:
        """Run the block in the first process, then in the others."""
        if not self.first:
            self.agree(0.0)
        yield
        if self.first:
            self.agree(0.0)


ALONE = Processes()


def is_first() -> bool:
    """Whether this process is the first one, or the only one."""
    return os.environ.get("RANK", "0") == "0"


def local_rank() -> int:
    """The number of this process on its machine."""
    return int(os.environ.get("LOCAL_RANK", "0"))


@contextmanager
def joined() -> Generator[Processes]:
    """Join the processes that torch's launcher has started, if it has, for the time of the block.

    An error in one process ends all of them: the first that has a UserError raises it, the others exit.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield ALONE
        return
    backend, store = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo", None
    try:
        store, rank, count = next(cast(Any, dist).rendezvous("env://"))
        dist.init_process_group(backend, store=store, rank=rank, world_size=count)
        yield Processes(rank, count)
    except UserError:
        if _is_first_to_fail(store, alone=False):
            raise
        sys.exit(2)
    except RuntimeError as error:
        if not _is_lost(error):
            raise
        if "TORCHELASTIC_RUN_ID" not in os.environ and _is_first_to_fail(store, alone=True):
            hint = "continue the run with --resume"
            raise UserError("another process has ended, or its connection is lost", hint=hint) from error
        sys.exit(LOST)
    dist.destroy_process_group()


def _is_first_to_fail(store: Any, *, alone: bool) -> bool:
    """Whether no other process has failed before; `alone` if the one that keeps the store has gone."""
    try:
        return alone if store is None else store.add("failed", 1) == 1
    except RuntimeError:
        return alone


def _is_lost(error: RuntimeError) -> bool:
    return isinstance(error, dist.DistError) or "gloo" in str(error).lower() or "Connection" in str(error)
