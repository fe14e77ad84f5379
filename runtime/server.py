"""A server of continuations: texts of any callers share one batch, which each joins and leaves at any token."""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import islice
from typing import Self

from xformc.errors import UserError
from xformc.format.manifest import Manifest, SampleOptions
from xformc.runtime.generate import Continuation, Prompt, added_text
from xformc.runtime.options import checked_integer
from xformc.runtime.refill import RefillingBatch, Text
from xformc.runtime.sampling import MAX_NEW_TOKENS
from xformc.runtime.session import Session
from xformc.runtime.token_stream import MOST_AT_ONCE, GrowingText

SLOTS, AT_ONCE = 8, 2
"""Default number of texts that share the batch, and of tokens that a call samples of each."""

MOST_SLOTS = 1024
LEAST_CAPACITY = 1024
"""The tokens of a text for which there is room from the start; longer texts wait until the batch is empty."""

WAITING = 64
"""The number of texts that wait for each slot, when many are continued in order."""


def require_refills(manifest: Manifest, slots: int = SLOTS) -> None:
    """Raises: UserError for an engine without batches that refill, and for a wrong number of slots."""
    checked_integer("slots", slots, SLOTS, 1, MOST_SLOTS)
    if not manifest.refills:
        hint = "only language models have them, not for a GPU; engines built before them need `xformc build` again"
        raise UserError(f"{manifest.name} has no batches that refill", hint=hint)


class Reply(Future[Continuation]):
    """The continuation of a prompt, as a `concurrent.futures.Future`; `result` waits for it.

    `cancel` takes the text out of the batch, also while it is being sampled. As an iterator or async iterator it gives
    the pieces of the text as they come: together they are the text. `await asyncio.wrap_future(reply)` waits for it in
    an event loop.
    """

    def __init__(self, prompt: Prompt, text: Text, decode: Callable[[Sequence[int]], str]) -> None:
        super().__init__()
        self.text, self._prompt, self._decode = text, prompt, decode
        self._grown = threading.Condition()

    @property
    def continuation(self) -> Continuation:
        """The text, score and tokens so far."""
        tokens = tuple(self.text.tokens)
        return Continuation(added_text(self._decode, self._prompt.ids, tokens), self.text.score, tokens)

    def cancel(self) -> bool:
        """Take the text out of the batch, unless it has ended; return whether it was."""
        cancelled = super().cancel()
        self.notify()
        return cancelled

    def notify(self) -> None:
        """Wake those that wait for a piece."""
        with self._grown:
            self._grown.notify_all()

    def __iter__(self) -> Iterator[str]:
        """Raises: UserError if the model fails. A cancelled text has no further pieces."""
        growing, seen = GrowingText(partial(added_text, self._decode, self._prompt.ids)), 0
        while True:
            with self._grown:
                self._grown.wait_for(lambda seen=seen: self.done() or len(self.text.tokens) > seen)
            last, seen = self.done(), len(self.text.tokens)
            if last and self.cancelled():
                return
            if last and (error := self.exception()) is not None:
                raise error
            if piece := growing.grown(self.text.tokens[:seen], last=last):
                yield piece
            if last:
                return

    async def __aiter__(self) -> AsyncGenerator[str]:
        """As `__iter__`. Cancelling the task that waits for a piece cancels the text."""
        pieces = iter(self)
        try:
            while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
                yield piece
        except asyncio.CancelledError:
            self.cancel()
            raise


class Server:
    """Samples the texts of any number of callers in one batch of at most `slots` texts.

    A text joins when there is a slot, and leaves when it has ended. Its tokens do not depend on the others: they are
    those of `Engine.generate`, and so is its score, with target native to the bit. Any thread may call its methods.

    As a context manager it waits for all texts at the end, and cancels them if there is an exception.
    """

    def __init__(
        self,
        session: Session,
        manifest: Manifest,
        options: SampleOptions,
        encode: Callable[[str, int], Prompt],
        decode: Callable[[Sequence[int]], str],
        *,
        slots: int = SLOTS,
        at_once: int = AT_ONCE,
    ) -> None:
        """See `Engine.serve`. `encode` makes a prompt of a text and a seed, `decode` a text of ids."""
        require_refills(manifest, slots)
        at_once = checked_integer("tokens_at_once", at_once, AT_ONCE, 1, MOST_AT_ONCE)
        text = manifest.inputs[manifest.written]
        self._session, self._longest, self._begun = session.stoppable(), text.longest, text.special.begun
        self._options, self._encode, self._decode = options, encode, decode
        sizes = {"slots": slots, "vocabulary": text.pieces, "at_once": at_once}
        self._batch = RefillingBatch(self._session, options, **sizes)
        self._waiting, self._live = deque[Reply](), list[Reply]()
        self._changed, self._closed, self._failed = threading.Condition(), False, None
        self._thread = threading.Thread(target=self._run, name="xformc-server", daemon=True)
        self._thread.start()

    def submit(self, prompt: str, *, seed: int = 0, max_new_tokens: int | None = None) -> Reply:
        """Let a prompt be continued; return its `Reply` at once.

        max_new_tokens: the most tokens of this continuation. None: the number that the server has.

        Raises: UserError for a prompt that does not fit, a number out of range, and a closed server.
        """
        return self.submit_prompt(self._encode(prompt, seed), max_new_tokens)

    def submit_prompt(self, prompt: Prompt, max_new_tokens: int | None = None) -> Reply:
        """As `submit`, of token ids."""
        if prompt.options:
            hint = "give generate all texts with the same options, or leave out slots"
            raise UserError("a batch that refills has the same options for all texts", hint=hint)
        most = checked_integer("max_new_tokens", max_new_tokens, self._options.max_new_tokens, 1, MAX_NEW_TOKENS)
        ids = [*self._begun, *prompt.ids]
        if self._longest is not None:
            most = min(most, self._longest - len(ids) + 1)
        reply = Reply(prompt, Text(ids, prompt.seed, most), self._decode)
        with self._changed:
            if self._closed:
                raise self._failed or UserError("the server is closed", hint="open another one with engine.serve()")
            self._waiting.append(reply)
            self._changed.notify_all()
        return reply

    def in_order(self, prompts: Iterable[Prompt], window: int | None = None) -> Generator[Continuation]:
        """Yield the continuations of any number of prompts, in order; at most `window` are read ahead of them."""
        replies, most = deque[Reply](), window or WAITING * self._batch.slots
        try:
            for prompt in prompts:
                replies.append(self.submit_prompt(prompt))
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

    def _joining(self) -> list[Reply]:
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
            capacity = max(LEAST_CAPACITY, 1 << (needed - 1).bit_length())
            self._batch.reserve(capacity if self._longest is None else min(capacity, max(self._longest, needed)))

    def _hand_out(self) -> None:
        """Give results, and wake those that wait for pieces."""
        for reply in list(self._live):
            if reply.text.done and reply.set_running_or_notify_cancel():
                reply.set_result(reply.continuation)
            reply.notify()
        with self._changed:
            self._live = [reply for reply in self._live if not reply.text.done]
            self._changed.notify_all()

    def _drop(self, reply: Reply) -> None:
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
