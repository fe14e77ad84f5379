"""Streams of tokens: the text that a language model adds to a prompt, piece by piece as it is sampled."""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Self

from xformc.errors import UserError
from xformc.format.abilities import STREAMS
from xformc.format.manifest import Manifest
from xformc.runtime.generation.generate import Continuation
from xformc.runtime.generation.stops import NO_STOPS, REPLACEMENT, Stops
from xformc.runtime.generation.token_calls import TokenCalls

MOST_AT_ONCE = 1024
_UNFINISHED = f"{REPLACEMENT} "
"""What the end of a text has while the rest of a character is still to come, and a space that a token may remove."""


class GrowingText:
    """The text of the tokens of a continuation, in pieces as there are more of them."""

    def __init__(self, text: Callable[[Sequence[int]], str], stops: Stops = NO_STOPS) -> None:
        self._text, self._stops, self._shown = text, stops, 0

    def grown(self, tokens: Sequence[int], *, last: bool) -> str:
        """Return the text that no piece has had; unless these are the `last` tokens, without what may still change."""
        text = self._stops.cut(self._text(tokens))
        known = text if last else self._stops.settled(text.rstrip(_UNFINISHED))
        piece, self._shown = known[self._shown :], max(self._shown, len(known))
        return piece


class TokenStream:
    """An iterator and async iterator of pieces of text: together they are the text of `Engine.generate` for the prompt.

    A piece is there as soon as the text has grown: not every token ends a character. `close`, from any thread, ends the
    stream and the running call, as the end of a `with` does, and the cancelling of a task that waits for a piece.

    tokens: the ids of the tokens so far. score: their log probability. drafted: the number of tokens that were drafted.
    accepted: the number of those that were right.
    """

    def __init__(self, calls: TokenCalls) -> None:
        """See `Engine.stream_tokens`."""
        self.tokens: list[int] = []
        self.score, self.drafted, self.accepted = 0.0, 0, 0
        self._session = calls.session.stoppable()
        self._calls = replace(calls, session=self._session)
        self._growing = GrowingText(calls.text, calls.stops)
        self._closed, self._running = False, threading.Lock()
        self._pieces = self._read()

    @property
    def continuation(self) -> Continuation:
        """The text, score and tokens so far."""
        return self._calls.continuation(self.tokens, self.score)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> str:
        with self._running:
            if self._closed:
                raise StopIteration
            try:
                return next(self._pieces)
            except UserError:
                if self._closed:
                    raise StopIteration from None
                raise

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        import asyncio  # noqa: PLC0415 (who awaits has it)

        try:
            piece = await asyncio.to_thread(next, self, None)
        except asyncio.CancelledError:
            self.close()
            raise
        if piece is None:
            raise StopAsyncIteration
        return piece

    def close(self) -> None:
        """End the stream, and the running call if there is one. The tokens so far stay."""
        self._closed = True
        self._session.stop()

    async def aclose(self) -> None:
        """As `close`."""
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def _read(self) -> Iterator[str]:
        for called in self._calls:
            self.tokens += called.tokens
            self.score = called.score
            self.drafted += called.drafted
            self.accepted += called.accepted
            if piece := self._growing.grown(self.tokens, last=False):
                yield piece
        if piece := self._growing.grown(self.tokens, last=True):
            yield piece


def open_stream(manifest: Manifest, calls: TokenCalls) -> TokenStream:
    """Return the stream of these calls. Raises: UserError for an engine without streams, and a wrong number at once."""
    manifest.require(STREAMS)
    if type(calls.at_once) is not int or not 1 <= calls.at_once <= MOST_AT_ONCE:
        raise UserError(f"tokens_at_once must be an integer from 1 to {MOST_AT_ONCE}, not {calls.at_once!r}")
    return TokenStream(calls)
