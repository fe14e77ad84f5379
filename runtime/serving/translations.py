"""A server of translations: texts of any callers share one batch of beam searches, which each joins and leaves."""

from collections.abc import Callable
from typing import Unpack

from xformc.format.abilities import REFILLS
from xformc.format.manifest import Manifest, SearchOptions
from xformc.runtime.options import SearchArguments
from xformc.runtime.rows import Row, row_lengths
from xformc.runtime.searching.prefix import Prefix
from xformc.runtime.searching.translate import Hypothesis, hypotheses_of
from xformc.runtime.serving.batch_server import Awaited, BatchServer, Seats
from xformc.runtime.serving.searched_batch import RefillingSearch, Search, search_of
from xformc.runtime.session import Session
from xformc.runtime.text.tokenizer import Tokenizer

LEAST_CAPACITY = 256
"""The tokens of a translation for which there is room from the start."""


class TranslationReply(Awaited[list[Hypothesis], Search]):
    """The hypotheses of a text, best first, as a `concurrent.futures.Future`; `result` waits for them.

    `cancel` takes the text out of the batch, also while it is being translated. `await asyncio.wrap_future(reply)`
    waits for it in an event loop.
    """

    def __init__(self, text: Search, hypotheses: Callable[[Search], list[Hypothesis]]) -> None:
        super().__init__(text)
        self._hypotheses = hypotheses

    @property
    def outcome(self) -> list[Hypothesis]:
        """The hypotheses of a text that has ended."""
        return self._hypotheses(self.text)


class TranslationServer(BatchServer[TranslationReply]):
    """Translates the texts of any number of callers, as many together as there are slots.

    A text joins when there is a slot, and leaves when it has ended. Its hypotheses do not depend on the others: they
    are those of `Engine.translate`, with their scores to the bit. Any thread may call its methods.

    As a context manager it waits for all texts at the end, and cancels them if there is an exception.
    """

    def __init__(
        self,
        session: Session,
        manifest: Manifest,
        options: SearchOptions,
        encode: Callable[[str, Prefix | None, SearchArguments], Row],
        tokenizer: Tokenizer | None,
        seats: Seats,
    ) -> None:
        """See `Engine.serve`. `encode` makes a row of a text, its prefix and its own options."""
        manifest.require(REFILLS)
        target = manifest.inputs[manifest.written]
        self._manifest, self._options, self._encode, self._tokenizer = manifest, options, encode, tokenizer

        def batch(session: Session, slots: int) -> RefillingSearch:
            return RefillingSearch(session, options, slots=slots, vocabulary=target.pieces, at_once=seats.at_once)

        super().__init__(session, batch, seats, longest=target.longest, least=LEAST_CAPACITY)

    def submit(
        self, text: str, *, prefix: Prefix | None = None, **options: Unpack[SearchArguments]
    ) -> TranslationReply:
        """Let a text be translated; return its `TranslationReply` at once.

        prefix: what the translation begins with, as text or as token ids.
        options: those of this text, which win over those of the server; all but beam_size, n_best and beam_groups.

        Raises: UserError for a text that does not fit, an option out of range, and a closed server.
        """
        return self.submit_row(self._encode(text, prefix, options))

    def submit_row(self, row: Row) -> TranslationReply:
        """As `submit`, of a row with the ids of the source, and any prefix and options."""
        reply = TranslationReply(search_of(row, self._options, self._longest), self._hypotheses)
        given = self._manifest.given
        if row_lengths(given, row)["source"] < given["source"].least:
            reply.set_running_or_notify_cancel()
            reply.set_result([Hypothesis("", 0.0, ())])
            return reply
        return self._enter(reply)

    def _hypotheses(self, text: Search) -> list[Hypothesis]:
        assert text.found is not None, "the text has not ended"
        return hypotheses_of(self._tokenizer, self._manifest.written, text.found, 0, {})
