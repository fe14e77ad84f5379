"""A server of continuations: texts of any callers share one batch, which each joins and leaves at any token."""

import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from functools import partial
from typing import Unpack

from xformc.format.abilities import REFILLS
from xformc.format.manifest import Manifest, SampleOptions
from xformc.runtime.generation.generate import Continuation, Prompt, added_text
from xformc.runtime.generation.sampling import MAX_NEW_TOKENS, SampleArguments
from xformc.runtime.generation.stops import NO_STOPS, Stops, checked_stops
from xformc.runtime.generation.token_stream import GrowingText
from xformc.runtime.options import checked_integer
from xformc.runtime.serving.batch_server import Awaited, BatchServer, Seats
from xformc.runtime.serving.sampled_batch import RefillingBatch, Text
from xformc.runtime.session import Session

LEAST_CAPACITY = 1024
"""The tokens of a text for which there is room from the start."""


class Reply(Awaited[Continuation, Text]):
    """The continuation of a prompt, as a `concurrent.futures.Future`; `result` waits for it.

    `cancel` takes the text out of the batch, also while it is being sampled. As an iterator or async iterator it gives
    the pieces of the text as they come: together they are the text. `await asyncio.wrap_future(reply)` waits for it in
    an event loop.
    """

    def __init__(self, text: Text, decode: Callable[[Sequence[int]], str], stops: Stops) -> None:
        """`decode` returns the text of tokens, which ends before the first of the `stops`."""
        super().__init__(text)
        self._decode, self._stops = decode, stops
        self._grown = threading.Condition()

    @property
    def outcome(self) -> Continuation:
        """The text, score and tokens so far."""
        tokens = tuple(self.text.tokens)
        return Continuation(self._stops.cut(self._decode(tokens)), self.text.score, tokens)

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
        growing, seen = GrowingText(self._decode, self._stops), 0
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
        import asyncio  # noqa: PLC0415 (who awaits has it)

        pieces = iter(self)
        try:
            while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
                yield piece
        except asyncio.CancelledError:
            self.cancel()
            raise


class Server(BatchServer[Reply]):
    """Samples the texts of any number of callers, as many together as there are slots.

    A text joins when there is a slot, and leaves when it has ended. Its tokens do not depend on the others: they are
    those of `Engine.generate`, and so is its score, with target native to the bit. Any thread may call its methods.

    As a context manager it waits for all texts at the end, and cancels them if there is an exception.
    """

    def __init__(
        self,
        session: Session,
        manifest: Manifest,
        options: SampleOptions,
        encode: Callable[[str, int, SampleArguments], Prompt],
        decode: Callable[[Sequence[int]], str],
        seats: Seats,
        *,
        stops: Stops = NO_STOPS,
    ) -> None:
        """See `Engine.serve`. `encode` makes a prompt of a text, its seed and own options, `decode` a text of ids."""
        manifest.require(REFILLS)
        text = manifest.inputs[manifest.written]
        self._begun, self._stops = text.special.begun, stops
        self._options, self._encode, self._decode = options, encode, decode

        def batch(session: Session, slots: int) -> RefillingBatch:
            return RefillingBatch(session, options, slots=slots, vocabulary=text.pieces, at_once=seats.at_once)

        super().__init__(session, batch, seats, longest=text.longest, least=LEAST_CAPACITY)

    def submit(
        self, prompt: str, *, seed: int = 0, stop: Sequence[str] | None = None, **options: Unpack[SampleArguments]
    ) -> Reply:
        """Let a prompt be continued; return its `Reply` at once.

        stop: stop strings. options: those of this text, which win over those of the server.

        Raises: UserError for a prompt that does not fit, an option out of range, and a closed server.
        """
        return self.submit_prompt(
            self._encode(prompt, seed, options), stops=None if stop is None else checked_stops(stop)
        )

    def submit_prompt(self, prompt: Prompt, max_new_tokens: int | None = None, stops: Stops | None = None) -> Reply:
        """As `submit`, of token ids, which may have options, and of at most `max_new_tokens`."""
        own = dict(prompt.options)
        usual = int(own.pop("max_new_tokens", self._options.max_new_tokens))
        most = checked_integer("max_new_tokens", max_new_tokens, usual, 1, MAX_NEW_TOKENS)
        ids = [*self._begun, *prompt.ids]
        if self._longest is not None:
            most = min(most, self._longest - len(ids) + 1)
        stops, decode = self._stops if stops is None else stops, partial(added_text, self._decode, prompt.ids)
        text = Text(ids, prompt.seed, most, own, partial(stops.size, text=decode))
        return self._enter(Reply(text, decode, stops))
