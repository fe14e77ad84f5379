"""Streams of tokens: the text that a language model adds to a prompt, piece by piece as it is sampled."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from xformc.errors import UserError
from xformc.format.interfaces import AT, COUNT, DONE, POSITIONS, SCORES_SO_FAR, STREAMED
from xformc.format.manifest import Manifest, SampleOptions
from xformc.format.names import CONTINUE, NEXT, PROMPT
from xformc.runtime.generate import Continuation, Prompt, added_text
from xformc.runtime.options import arrays
from xformc.runtime.results import Expected, check_results, up_to
from xformc.runtime.session import Session

MOST_AT_ONCE = 1024
_UNFINISHED = "\N{REPLACEMENT CHARACTER} "
"""What the end of a text has while the rest of a character is still to come, and a space that a token may remove."""


def require_streams(manifest: Manifest) -> None:
    """Raises: UserError for an engine without streams of tokens."""
    if not manifest.streams:
        hint = "rebuild it with `xformc build`; engines for a GPU have none yet"
        raise UserError(f"{manifest.name} has no streams of tokens", hint=hint)


class TokenStream:
    """An iterator and async iterator of pieces of text: together they are the text of `Engine.generate` for the prompt.

    A piece is there as soon as the text has grown: not every token ends a character. `close`, from any thread, ends the
    stream and the running call, as the end of a `with` does, and the cancelling of a task that waits for a piece.

    tokens: the ids of the tokens so far. score: their log probability.
    """

    def __init__(
        self,
        session: Session,
        prompt: Prompt,
        options: SampleOptions,
        *,
        decode: Callable[[Sequence[int]], str],
        vocabulary: int,
        at_once: int = 1,
    ) -> None:
        """See `Engine.stream_tokens`. `decode` makes text of the ids of the prompt and its continuation."""
        self.tokens: list[int] = []
        self.score = 0.0
        self._session, self._prompt, self._options = session.stoppable(), prompt, options
        self._decode, self._vocabulary, self._at_once = decode, vocabulary, at_once
        self._shown, self._closed, self._running = 0, False, threading.Lock()
        self._pieces = self._read()

    @property
    def continuation(self) -> Continuation:
        """The text, score and tokens so far."""
        text = added_text(self._decode, self._prompt.ids, self.tokens)
        return Continuation(text, self.score, tuple(self.tokens))

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
        for _ in self._calls():
            if piece := self._grown(last=False):
                yield piece
        if piece := self._grown(last=True):
            yield piece

    def _grown(self, *, last: bool) -> str:
        """Return the text that no piece has had; unless it is the `last`, without what may still change."""
        text = added_text(self._decode, self._prompt.ids, self.tokens)
        known = text if last else text.rstrip(_UNFINISHED)
        piece, self._shown = known[self._shown :], max(self._shown, len(known))
        return piece

    def _calls(self) -> Iterator[None]:
        """Read the prompt, and then the tokens of one call after the other."""
        first, following = (self._session.beside(name) for name in (PROMPT, CONTINUE))
        assert first is not None and following is not None, "the engine has no streams of tokens"
        most = np.array(self._options.max_new_tokens, np.int64)
        prompt = np.array(self._prompt.ids, np.int64)[None]
        values = _call(first, {"prompt": prompt, "max_new_tokens": most})
        options: dict[str, Any] = {
            "seed": np.array([self._prompt.seed], np.int64),
            **arrays(self._options),
            COUNT: np.array(self._at_once, np.int64),
        }
        while not _ended(values):
            found = _call(following, {**values, **options})
            self._take(found)
            values = {**values, **{name.removesuffix(NEXT): one for name, one in found.items() if name.endswith(NEXT)}}
            yield

    def _take(self, found: Mapping[str, Any]) -> None:
        """Take the tokens and the score of a call. Raises: UserError for what is none."""
        arrays = {STREAMED: found[STREAMED].numpy(), SCORES_SO_FAR: found[f"{SCORES_SO_FAR}{NEXT}"].numpy()}
        left = min(self._at_once, self._options.max_new_tokens - len(self.tokens))
        tokens = Expected(np.int64, (up_to(left), 1), self._vocabulary)
        check_results(arrays, (tokens, Expected(np.float32, (1,))), CONTINUE)
        new = [int(token) for token in arrays[STREAMED][:, 0]]
        if not new:
            raise UserError("the output tokens is empty, and the text has not ended", place=CONTINUE)
        self.tokens += new
        self.score = float(arrays[SCORES_SO_FAR][0])


def _call(model: Session, values: Mapping[str, Any]) -> dict[str, Any]:
    """Run one of the models (`StatefulModel`)."""
    found: list[Any] = [*model.run(values)]
    return found[0]


def _ended(values: Mapping[str, Any]) -> bool:
    """Return whether the text has ended, by itself or by its limit."""
    arrays: dict[str, NDArray[Any]] = {name: values[name].numpy() for name in (AT, POSITIONS, DONE)}
    number = Expected(np.int64, ())
    check_results(arrays, (number, number, Expected(np.bool_, (1,))), CONTINUE)
    return bool(arrays[DONE][0]) or int(arrays[AT]) >= int(arrays[POSITIONS])


def open_stream(
    session: Session,
    manifest: Manifest,
    prompt: Prompt,
    options: SampleOptions,
    decode: Callable[[str, Sequence[int]], str],
    at_once: int,
) -> TokenStream:
    """Return the stream of a prompt. Raises: UserError for an engine without streams, and a wrong number at once."""
    require_streams(manifest)
    if type(at_once) is not int or not 1 <= at_once <= MOST_AT_ONCE:
        raise UserError(f"tokens_at_once must be an integer from 1 to {MOST_AT_ONCE}, not {at_once!r}")
    name = manifest.written
    vocabulary = manifest.inputs[name].pieces
    return TokenStream(session, prompt, options, decode=partial(decode, name), vocabulary=vocabulary, at_once=at_once)
