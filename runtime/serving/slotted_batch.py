"""What batches that refill have in common: the slots of their texts, and who joins, stays and leaves."""

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, cast

import numpy as np

from xformc.format.interfaces import CAPACITY, SLOTS
from xformc.format.names import CACHES
from xformc.runtime.session import Session

_READ_WITH = 2
"""Texts join together while what is read of them and its padding are at most this many times their tokens."""


CALL_SECONDS, MOST_STEPS = 0.02, 32
"""How long a call takes, and its most steps, where no number of steps is given: texts wait for the call before they
join, and each call costs as much as a step or two."""


class Slotted(Protocol):
    """A text of a batch: its slot, and whether it has ended."""

    slot: int
    done: bool

    @property
    def needs(self) -> int:
        """The most tokens that the model writes of it, and reads again."""
        ...

    @property
    def reads(self) -> int:
        """The tokens that the model reads when it joins."""
        ...


AnyText = TypeVar("AnyText", bound=Slotted)


@dataclass
class Pace:
    """The most steps of the next call: `given`, or for None as many as take CALL_SECONDS by the call before."""

    given: int | None
    chosen: int = 1

    @property
    def steps(self) -> int:
        """The number of steps."""
        return self.chosen if self.given is None else self.given

    def took(self, seconds: float, steps: int) -> None:
        """Note that a call took this long for this number of steps."""
        self.chosen = max(1, min(MOST_STEPS, int(CALL_SECONDS * steps / max(seconds, 1e-9))))


class SlottedBatch(ABC, Generic[AnyText]):
    """The texts that are being written, at most `slots`, each of at most `capacity` tokens.

    The models' values stay in ONNX Runtime between calls. One thread at a time may use it.
    """

    ragged = True
    """Whether texts of different lengths may join together."""

    def __init__(self, session: Session, *, slots: int, at_once: int | None) -> None:
        """`at_once`: the most tokens of each text that a call writes; None for as many as take CALL_SECONDS."""
        self.texts: list[AnyText] = []
        self.slots, self.capacity, self._pace = slots, 0, Pace(at_once)
        self._rows: list[AnyText] = []
        self._free = [*reversed(range(slots))]
        self._states: dict[str, Any] = {}
        self._caches: dict[str, Any] = {}
        self._open_caches = session.beside(CACHES)

    @abstractmethod
    def _call(self, kept: Sequence[int], joining: Sequence[AnyText]) -> int:
        """Write some tokens of the `texts`: those of the rows `kept` of the call before, then those that join; return
        the number of steps."""

    def _begin(self, joining: Sequence[AnyText]) -> Sequence[AnyText]:
        """Return those of the texts that entered, now or before, that join now."""
        return joining

    def _cache_sizes(self) -> dict[str, int]:
        """What the model of the caches takes."""
        return {SLOTS: self.slots, CAPACITY: self.capacity}

    def reserve(self, capacity: int) -> None:
        """Let texts have this many tokens; there must be none. Their memory is used as far as they are written."""
        assert not self.texts, "the caches of these texts would be lost"
        self.capacity = capacity
        self._states.clear()
        self._rows = []
        if self._open_caches is not None:
            self._caches.clear()
            sizes = {name: np.array(size, np.int64) for name, size in self._cache_sizes().items()}
            self._caches = run_stateful(self._open_caches, sizes)

    def fitting(self, waiting: Sequence[AnyText]) -> int:
        """Return how many of the waiting texts, from the first on, can join in the next call."""
        total = most = 0
        for count, text in enumerate(waiting):
            total, most = total + text.reads, max(most, text.reads)
            same = self.ragged or text.reads == waiting[0].reads
            fits = count < len(self._free) and text.needs <= self.capacity
            if not fits or not same or most * (count + 1) > _READ_WITH * total:
                return count
        return len(waiting)

    def advance(self, joining: Sequence[AnyText]) -> None:
        """Add texts, for which there must be slots, and write some tokens of each; those that have ended leave.

        Raises: UserError if the model fails, or returns what is no text.
        """
        for text in joining:
            text.slot = self._free.pop()
        joining = self._begin(joining)
        kept = [row for row, text in enumerate(self._rows) if not text.done]
        self.texts = self._rows = [*self.texts, *joining]
        if self._rows:
            began = time.thread_time()  # on a busy machine the time of the clock would tell of others
            steps = self._call(kept, joining)
            self._pace.took(time.thread_time() - began, steps)
        for text in [text for text in self._rows if text.done]:
            self.leave(text)

    def leave(self, text: AnyText) -> None:
        """Remove a text, whether it has ended or not."""
        text.done = True
        self.texts = [one for one in self.texts if one is not text]
        self._free.append(text.slot)


def run_stateful(model: Session, values: dict[str, Any]) -> dict[str, Any]:
    """Run a model whose values stay in ONNX Runtime (`StatefulModel`); return them by name."""
    (found,) = cast(Any, model.run(values))
    return found
