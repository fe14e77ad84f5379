"""Servers: the texts of any number of callers share one batch."""

from collections.abc import Sequence
from typing import Unpack, cast, overload

from xformc.errors import UserError
from xformc.runtime.generation.sampling import SampleArguments, WritingArguments
from xformc.runtime.generation.stops import checked_stops
from xformc.runtime.methods.generating import Generating
from xformc.runtime.methods.translating import Translating
from xformc.runtime.options import SearchArguments
from xformc.runtime.serving.batch_server import SLOTS, Seats
from xformc.runtime.serving.continuations import Server
from xformc.runtime.serving.translations import TranslationServer
from xformc.runtime.stream import MAX_BATCH_TOKENS, Batching


class Serving(Generating, Translating):
    """Methods of engines whose batches refill."""

    @overload
    def serve(  # pyright: ignore[reportOverlappingOverload]  # a call without options is that of a language model
        self,
        *,
        slots: int = SLOTS,
        tokens_at_once: int | None = None,
        workers: int | None = None,
        max_batch_tokens: int = MAX_BATCH_TOKENS,
        truncate: bool = False,
        stop: Sequence[str] | None = None,
        **options: Unpack[SampleArguments],
    ) -> Server: ...

    @overload
    def serve(
        self,
        *,
        slots: int = SLOTS,
        tokens_at_once: int | None = None,
        workers: int | None = None,
        max_batch_tokens: int = MAX_BATCH_TOKENS,
        truncate: bool = False,
        **options: Unpack[SearchArguments],
    ) -> TranslationServer: ...

    def serve(
        self,
        *,
        slots: int = SLOTS,
        tokens_at_once: int | None = None,
        workers: int | None = None,
        max_batch_tokens: int = MAX_BATCH_TOKENS,
        truncate: bool = False,
        stop: Sequence[str] | None = None,
        **options: Unpack[WritingArguments],
    ) -> Server | TranslationServer:
        """Open a server of continuations or translations: texts of any number of callers share one batch, which each
        joins when there is room and leaves when it has ended.

        with engine.serve(slots=8, temperature=0.7) as server:
            replies = [server.submit(prompt, seed=seed) for seed, prompt in enumerate(prompts)]
            print(replies[0].result().text)

        A continuation is that of `generate` with this prompt and seed, and a translation that of `translate`, whatever
        else is in the batch.

        slots: texts that are written at the same time. More are faster together, and each of them slower.
        tokens_at_once: the most tokens that one call of the model writes of each text; texts join and leave between
            calls. None: as many as take about 20 ms.
        workers: batches side by side, which share the slots and the cores. One for each core answers the most texts,
            and 1 the first text soonest. None: the number that the engine was loaded for.

        stop: stop strings of a language model, as for `generate`.

        The other arguments are those of `generate` or `translate`; `submit` takes options of a text. Type checkers take
        a call without options of a search as one of a language model.

        Raises: UserError as these, and for an engine without batches that refill.
        """
        stops = checked_stops(stop)
        batching, seats = Batching(None, max_batch_tokens), Seats(slots, tokens_at_once, workers)
        if self.manifest.task == "translation":
            if stops.texts:
                raise UserError("stop has no effect on translations", hint="leave it out, or cut the texts")
            return self._translations(seats, batching, truncate, cast(SearchArguments, options))
        return self._continuations(seats, batching, truncate, cast(SampleArguments, options), stops)
