"""Threads that each run a batch of texts, which join and leave; texts of any callers share them."""

import atexit
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, Generic, Protocol, Self, TypeVar
from weakref import WeakSet

from xformc.errors import UserError
from xformc.runtime.generation.token_stream import MOST_AT_ONCE
from xformc.runtime.options import checked_integer
from xformc.runtime.session import MAX_THREADS, Session

logger = logging.getLogger(__name__)

SLOTS = 32
"""Default number of texts that are written at the same time."""

MOST_SLOTS = 1024
WAITING = 64
"""The number of texts that wait for each slot, when many are given in order."""

AT_EXIT = 10.0
"""The seconds that a process waits at its end for the threads of a server."""

Result = TypeVar("Result")
AnyText = TypeVar("AnyText", bound="Seated")


@dataclass(frozen=True)
class Seats:
    """How many texts a server writes at the same time.

    slots: those of all batches. at_once: the most tokens that a call of the model writes of each text; None for as many
    as take about 20 ms. workers: batches side by side, among which the slots are shared; None for as many as the
    session has.

    Raises: UserError for a number out of range.
    """

    slots: int = SLOTS
    at_once: int | None = None
    workers: int | None = None

    def __post_init__(self) -> None:
        checked_integer("slots", self.slots, SLOTS, 1, MOST_SLOTS)
        checked_integer("tokens_at_once", self.at_once, 1, 1, MOST_AT_ONCE)
        checked_integer("workers", self.workers, 1, 1, MAX_THREADS)

    def of_each(self, session: Session) -> list[int]:
        """Return the number of slots of each batch."""
        workers = min(self.workers or session.workers, self.slots)
        return [(self.slots + worker) // workers for worker in range(workers)]


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


@dataclass(eq=False)
class _Worker(Generic[AnyReply]):
    """A batch, and the replies of the texts that are in it."""

    batch: Batch
    live: list[AnyReply] = field(default_factory=list[AnyReply])


class BatchServer(Generic[AnyReply]):
    """Writes the texts of any number of callers, in one batch or in several, each with a thread of its own.

    A text joins when there is a slot, and leaves when it has ended. Any thread may call its methods.

    As a context manager it waits for all texts at the end, and cancels them if there is an exception.
    """

    def __init__(
        self, session: Session, make: Callable[[Session, int], Batch], seats: Seats, *, longest: int | None, least: int
    ) -> None:
        """`make` returns a batch of a number of slots. `least`: the tokens of a text for which there is room from the
        start; longer texts wait until a batch is empty. `longest`: the most tokens of any text, if there is a limit."""
        each = seats.of_each(session)
        self._session, self._longest, self._least = session.shared_by(len(each)).stoppable(), longest, least
        self._slots = seats.slots
        self._workers = [_Worker[AnyReply](make(self._session, slots)) for slots in each]
        self._waiting = deque[AnyReply]()
        self._changed, self._closed, self._failed = threading.Condition(), False, None
        self._cancelled = False  # whether a text was, since those that wait were looked through
        self._threads = [
            threading.Thread(target=self._run, args=(worker,), name="xformc-server", daemon=True)
            for worker in self._workers
        ]
        self._process = os.getpid()
        for thread in self._threads:
            thread.start()
        with _OPENING:
            _OPEN.add(self)

    def _enter(self, reply: AnyReply) -> AnyReply:
        """Let a text wait for a slot. Raises: UserError if the server is closed."""
        if not self._is_here():
            hint = "open another one with engine.serve() in each process"
            raise UserError("the threads of the server are those of another process, which has forked", hint=hint)
        with self._changed:
            if self._failed is not None:
                raise UserError(f"the server has ended: {self._failed}") from self._failed
            if self._closed:
                raise UserError("the server is closed", hint="open another one with engine.serve()")
            self._session.require_open()
            self._waiting.append(reply)
            self._changed.notify_all()
        reply.add_done_callback(self._note)
        return reply

    def _note(self, reply: Any) -> None:
        if reply.cancelled():
            self._cancelled = True

    def in_order(self, entered: Iterable[AnyReply], window: int | None = None) -> Generator[Any]:
        """Yield the results of any number of texts, which enter as they are read, in order; at most `window` are read
        ahead of them."""
        replies, most = deque[AnyReply](), window or WAITING * self._slots
        try:
            for reply in entered:
                replies.append(reply)
                while len(replies) >= most or (replies and replies[0].done()):
                    yield replies.popleft().result()
        except Exception:  # of what the texts are read from, too
            while replies:
                yield replies.popleft().result()
            raise
        while replies:
            yield replies.popleft().result()

    def close(self, timeout: float | None = None) -> None:
        """Cancel all texts that have not ended, and free the batches; a callback of a reply may call it, too, and does
        not wait.

        timeout: the most seconds to wait for each of its threads.
        """
        if not self._is_here():
            return
        self._stop()
        if threading.current_thread() not in self._threads:
            for thread in self._threads:
                thread.join(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None and self._is_here():
                with self._changed:
                    self._changed.wait_for(lambda: self._closed or not (self._waiting or self._written()))
        finally:
            self.close()

    def _is_here(self) -> bool:
        """Whether the threads are of this process, and not of one that has forked."""
        return self._process == os.getpid()

    def _written(self) -> int:
        """The number of texts that are being written."""
        return sum(len(worker.live) for worker in self._workers)

    def _stop(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._session.stop()

    def _run(self, worker: _Worker[AnyReply]) -> None:
        """The thread of a batch."""
        try:
            while self._has_work(worker):
                worker.batch.advance([reply.text for reply in self._joining(worker)])
                self._hand_out(worker)
        except Exception as error:
            with self._changed:
                if not self._closed:
                    self._failed = error
            self._stop()
        self._end(worker)

    def _has_work(self, worker: _Worker[AnyReply]) -> bool:
        """Wait for texts; return whether there are any, and the server is not closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._waiting or worker.live)
            return not self._closed

    def _joining(self, worker: _Worker[AnyReply]) -> list[AnyReply]:
        """Let cancelled texts leave, and return those that join: as many as make the batches equally full."""
        with self._changed:
            for reply in [reply for reply in worker.live if reply.cancelled()]:
                worker.batch.leave(reply.text)
                worker.live.remove(reply)
                reply.set_running_or_notify_cancel()
            if self._cancelled:
                self._cancelled = False
                for reply in [reply for reply in self._waiting if reply.cancelled()]:
                    self._waiting.remove(reply)
                    reply.set_running_or_notify_cancel()
            if self._waiting and not worker.live:
                self._make_room(worker.batch, self._waiting[0].text.needs)
            full = -(-(self._written() + len(self._waiting)) // len(self._workers))
            most = min(max(0, full - len(worker.live)), worker.batch.slots)
            waiting = [reply.text for reply in islice(self._waiting, most)]
            joining = [self._waiting.popleft() for _ in range(worker.batch.fitting(waiting))]
            worker.live += joining
            self._changed.notify_all()
            return joining

    def _make_room(self, batch: Batch, needed: int) -> None:
        """Make the caches larger, if a text needs it: a power of two, or the model's own limit."""
        if needed > batch.capacity:
            capacity = max(self._least, 1 << (needed - 1).bit_length())
            batch.reserve(capacity if self._longest is None else min(capacity, max(self._longest, needed)))

    def _hand_out(self, worker: _Worker[AnyReply]) -> None:
        """Give results, and wake those that wait for pieces."""
        for reply in list(worker.live):
            if reply.text.done and reply.set_running_or_notify_cancel():
                _settle(partial(reply.set_result, reply.outcome))
            reply.notify()
        with self._changed:
            worker.live = [reply for reply in worker.live if not reply.text.done]
            self._changed.notify_all()

    def _end(self, worker: _Worker[AnyReply]) -> None:
        """End the texts of a batch and those that wait: with the error of the model, or as cancelled."""
        with self._changed:
            replies = [*worker.live, *self._waiting]
            worker.live.clear()
            self._waiting.clear()
            self._changed.notify_all()
        for reply in replies:
            if self._failed is None:
                _settle(reply.cancel)
            if reply.set_running_or_notify_cancel():
                _settle(partial(reply.set_exception, self._failed))
            reply.notify()


def _settle(end: Callable[[], object]) -> None:
    """End a reply, whose callbacks are called. What one raises ends no thread; after what is no Exception, such as
    SystemExit, the later callbacks of the reply are not called."""
    try:
        end()
    except BaseException:
        logger.exception("a callback of a reply raised an exception")


_OPEN, _OPENING = WeakSet[BatchServer[Any]](), threading.Lock()


@atexit.register
def _close_all() -> None:
    """End the threads of all servers before Python does so, which ends the process by a signal if they compute."""
    with _OPENING:
        servers = list(_OPEN)
    for server in servers:
        server.close(AT_EXIT)
