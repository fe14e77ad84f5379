"""A thread that runs a batch of texts, which join and leave; texts of any callers share it."""

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future
from itertools import islice
from typing import Any, Generic, Protocol, Self, TypeVar

from xformc.errors import UserError
from xformc.format.manifest import Manifest
from xformc.runtime.options import checked_integer
from xformc.runtime.session import Session

SLOTS, AT_ONCE = 8, 2
"""Default number of texts that share the batch, and of tokens that a call writes of each."""

MOST_SLOTS = 1024
WAITING = 64
"""The number of texts that wait for each slot, when many are given in order."""

Result = TypeVar("Result")
AnyText = TypeVar("AnyText", bound="Seated")


class Seated(Protocol):
    """A text of a batch: the most tokens that the model reads of it, and whether it has ended."""

    done: bool

    @property
    def needs(self) -> int:
        """The most tokens."""
        ...


class Batch(Protocol):
    """Texts that the model writes together, in at most `slots` slots, each of at most `capacity` tokens."""

    slots: int
    capacity: int

    def reserve(self, capacity: int) -> None:
        """Let texts have this many tokens; there must be none."""
        ...

    def fitting(self, waiting: Sequence[Any]) -> int:
        """Return how many of the waiting texts, from the first on, can join in the next call."""
        ...

    def advance(self, joining: Sequence[Any]) -> None:
        """Add texts, and write some tokens of each; those that have ended leave."""
        ...

    def leave(self, text: Any) -> None:
        """Remove a text."""
        ...


class Awaited(Future[Result], Generic[Result, AnyText]):
    """What is written for a text, as a `concurrent.futures.Future`; `result` waits for it.

    `cancel` takes the text out of the batch, also while it is being written. `await asyncio.wrap_future(reply)` waits
    for it in an event loop.
    """

    def __init__(self, text: AnyText) -> None:
        super().__init__()
        self.text = text

    @property
    def outcome(self) -> Result:
        """The result so far, which is whole when the text has ended."""
        raise NotImplementedError

    def notify(self) -> None:
        """Wake those that wait for a part of the text."""


AnyReply = TypeVar("AnyReply", bound=Awaited[Any, Any])


def require_refills(manifest: Manifest, slots: int = SLOTS) -> None:
    """Raises: UserError for an engine without batches that refill, and for a wrong number of slots."""
    checked_integer("slots", slots, SLOTS, 1, MOST_SLOTS)
    if not manifest.refills:
        hint = "language models not for a GPU have them, and translation models of target native; rebuild older engines"
        raise UserError(f"{manifest.name} has no batches that refill", hint=hint)


class BatchServer(Generic[AnyReply]):
    """Writes the texts of any number of callers in one batch.

    A text joins when there is a slot, and leaves when it has ended. Any thread may call its methods.

    As a context manager it waits for all texts at the end, and cancels them if there is an exception.
    """

    def __init__(
        self, session: Session, make: Callable[[Session], Batch], *, longest: int | None, capacity: int
    ) -> None:
        """`capacity`: the tokens of a text for which there is room from the start; longer texts wait until the batch is
        empty. `longest`: the most tokens of any text, if there is a limit."""
        self._session, self._longest, self._least = session.stoppable(), longest, capacity
        self._batch = make(self._session)
        self._waiting, self._live = deque[AnyReply](), list[AnyReply]()
        self._changed, self._closed, self._failed = threading.Condition(), False, None
        self._thread = threading.Thread(target=self._run, name="xformc-server", daemon=True)
        self._thread.start()

    def _enter(self, reply: AnyReply) -> AnyReply:
        """Let a text wait for a slot. Raises: UserError if the server is closed."""
        with self._changed:
            if self._closed:
                raise self._failed or UserError("the server is closed", hint="open another one with engine.serve()")
            self._waiting.append(reply)
            self._changed.notify_all()
        return reply

    def in_order(self, entered: Iterable[AnyReply], window: int | None = None) -> Generator[Any]:
        """Yield the results of any number of texts, which enter as they are read, in order; at most `window` are read
        ahead of them."""
        replies, most = deque[AnyReply](), window or WAITING * self._batch.slots
        try:
            for reply in entered:
                replies.append(reply)
                while len(replies) >= most or (replies and replies[0].done()):
                    yield replies.popleft().result()
        except UserError:
            while replies:
                yield replies.popleft().result()
            raise
        while replies:
            yield replies.popleft().result()

    def close(self) -> None:
        """Cancel all texts that have not ended, and free the batch."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._session.stop()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or not (self._waiting or self._live))
        self.close()

    def _run(self) -> None:
        """The thread of the server."""
        try:
            while self._has_work():
                self._batch.advance([reply.text for reply in self._joining()])
                self._hand_out()
        except Exception as error:
            with self._changed:
                if not self._closed:
                    self._failed = error
                self._closed = True
        self._end()

    def _has_work(self) -> bool:
        """Wait for texts; return whether there are any, and the server is not closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._waiting or self._live)
            return not self._closed

    def _joining(self) -> list[AnyReply]:
        """Let cancelled texts leave, and return those that join."""
        with self._changed:
            for reply in [reply for reply in self._live if reply.cancelled()]:
                self._batch.leave(reply.text)
                self._drop(reply)
            for reply in [reply for reply in self._waiting if reply.cancelled()]:
                self._waiting.remove(reply)
                reply.set_running_or_notify_cancel()
            if self._waiting and not self._live:
                self._make_room(self._waiting[0].text.needs)
            waiting = [reply.text for reply in islice(self._waiting, self._batch.slots)]
            joining = [self._waiting.popleft() for _ in range(self._batch.fitting(waiting))]
            self._live += joining
            self._changed.notify_all()
            return joining

    def _make_room(self, needed: int) -> None:
        """Make the caches larger, if a text needs it: a power of two, or the model's own limit."""
        if needed > self._batch.capacity:
            capacity = max(self._least, 1 << (needed - 1).bit_length())
            self._batch.reserve(capacity if self._longest is None else min(capacity, max(self._longest, needed)))

    def _hand_out(self) -> None:
        """Give results, and wake those that wait for pieces."""
        for reply in list(self._live):
            if reply.text.done and reply.set_running_or_notify_cancel():
                reply.set_result(reply.outcome)
            reply.notify()
        with self._changed:
            self._live = [reply for reply in self._live if not reply.text.done]
            self._changed.notify_all()

    def _drop(self, reply: AnyReply) -> None:
        self._live.remove(reply)
        reply.set_running_or_notify_cancel()

    def _end(self) -> None:
        """End all texts: with the error of the model, or as cancelled."""
        with self._changed:
            replies = [*self._live, *self._waiting]
            self._live.clear()
            self._waiting.clear()
            self._changed.notify_all()
        for reply in replies:
            if self._failed is None:
                reply.cancel()
            if reply.set_running_or_notify_cancel():
                reply.set_exception(self._failed)
            reply.notify()
