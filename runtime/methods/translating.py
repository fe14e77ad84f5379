"""Translations: texts in one language, searched in another."""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, Unpack, cast

import numpy as np
from numpy.typing import NDArray

from xformc.errors import UserError
from xformc.format.abilities import REFILLS
from xformc.runtime.constraints.automaton import Automaton, Matching, with_starts
from xformc.runtime.constraints.given import ForTexts, Schema, resolve_constraint
from xformc.runtime.each import asked
from xformc.runtime.generation.constrain import Allowed
from xformc.runtime.interrupts import run_once
from xformc.runtime.job import Job
from xformc.runtime.methods.loaded import Loaded, refuse_idle, with_own
from xformc.runtime.options import SearchArguments, TranslationArguments, resolve_options
from xformc.runtime.rows import Row
from xformc.runtime.score import with_token_scores
from xformc.runtime.searching.align import aligning, alignments, pairs_to_align
from xformc.runtime.searching.alignment import Alignment
from xformc.runtime.searching.alternatives import checked_alternatives, with_alternatives
from xformc.runtime.searching.phrases import Phrase
from xformc.runtime.searching.prefix import Prefix, begin_with
from xformc.runtime.searching.samples import checked_samples, samples_of, search_alone
from xformc.runtime.searching.search import SearchResult, check_source, search
from xformc.runtime.searching.translate import Hypothesis
from xformc.runtime.serving.batch_server import Seats
from xformc.runtime.serving.translations import TranslationServer
from xformc.runtime.stream import MAX_BATCH_TOKENS, Batching
from xformc.runtime.text.texts import encode_line, whole_limit

Item = TypeVar("Item")
Result = TypeVar("Result")


class Translating(Loaded):
    """Methods of engines that translate."""

    def translate(  # noqa: PLR0913 (each is an option)
        self,
        texts: Sequence[str],
        *,
        prefixes: str | Iterable[Prefix] | None = None,
        phrases: Iterable[Sequence[Phrase]] | None = None,
        regex: ForTexts[str] = None,
        json_schema: ForTexts[Schema] = None,
        constraint: ForTexts[Automaton] = None,
        allowed: Allowed | None = None,
        workers: int | None = None,
        max_batch_tokens: int = MAX_BATCH_TOKENS,
        truncate: bool = False,
        token_scores: bool = False,
        alignment: bool = False,
        alternatives: int | None = None,
        samples: int | None = None,
        seed: int = 0,
        each: Iterable[TranslationArguments] | None = None,
        slots: int | None = None,
        **options: Unpack[TranslationArguments],
    ) -> list[list[Hypothesis]]:
        """Translate texts.

        Returns: for each text, in order, up to `n_best` hypotheses, best first. An empty text has one hypothesis, "".

        prefixes: what each translation begins with, as text or as token ids: one for each text, or one text for all of
            them, such as a language tag. The prefix is part of the hypothesis, and of its score.
        phrases: for each text a list of phrases that its translations must have, as text or as token ids.
        regex, json_schema: what the translations match as a whole, after their prefix: a regular expression, or a JSON
            schema; or a list with one for each text, None for any text.
        constraint: the same as an automaton of tokens.
        allowed: returns the tokens that may follow those of a hypothesis after its prefix: ids, or a mask of booleans.
            The search is run once for each token of the texts. `workers` call it from several threads.
        alternatives: instead of the n best hypotheses, return for each of this many most likely tokens after the prefix
            the best translation that goes on with it, the most likely token first.
        token_scores: also compute the log probability of each token, as `token_scores` of each hypothesis; their sum is
            the score with a length penalty of 0.
        alignment: also link words and tokens to those of the source, as `alignment` of each hypothesis.
        workers: batches run at the same time, which share the `slots`. None: the number that the engine was loaded for.
        max_batch_tokens: capacity of a batch. Each sentence takes the tokens of the batch's longest source, plus those
            of each hypothesis at its length limit. Neither this nor `workers` changes the results.
        truncate: cut texts that are too long, with a warning; otherwise they are errors. The limit is the model's own.
            Without one it is a quarter of `max_batch_tokens`, or 4,096 if that is more.
        samples: draw this many translations of each text instead of searching, in the order of their seeds. Their
            scores are log probabilities of what follows the prefix.
        seed: the random seed of the first sample of the first text; each further sample has the next one.
        each: options of each text, which win over the other ones; all but beam_size, n_best and
            beam_groups.
        slots: search for this many texts together, each of which makes room for the next one when it has ended
            (`serve`). None: batches whose texts begin together.
        options: see `SearchArguments`; of samples temperature, top_k and top_p, as in `SampleArguments`, the limits of
            lengths, and what edits scores.

        Raises: UserError for an option out of range, a text that is too long, or an engine without a tokenizer.
        """
        batching, (items, shared) = Batching(workers, max_batch_tokens), with_own(texts, options, each)
        count = checked_samples(samples, shared, seed)
        first = None if count is None else seed
        constraints = {"regex": regex, "json_schema": json_schema, "constraint": constraint, "allowed": allowed}
        matched = self._matched(constraints, phrases, count, slots)
        beside: Any = {"token_scores": token_scores, "alignment": alignment, "constraint": matched, "allowed": allowed}
        job, items = with_starts(self._translation(batching, truncate, shared, first, **beside), items, matched)
        excluded = {**constraints, "phrases": phrases, "samples": samples, "slots": slots}
        job = self._alternatives(job, alternatives, shared, excluded)
        if slots is not None:
            job.require_several("translate", texts)
            rows, idle = (list(self._encoded(job, items, prefixes)), _idle(samples, phrases, token_scores, alignment))
            return list(self._refilled_rows(rows, batching, slots, shared, idle))
        return self._all(job, "translate", items, prefixes, batching, samples=count, phrases=phrases)

    def translate_stream(  # noqa: PLR0913 (each is an option)
        self,
        texts: Iterable[str],
        *,
        prefixes: str | Iterable[Prefix] | None = None,
        phrases: Iterable[Sequence[Phrase]] | None = None,
        regex: ForTexts[str] = None,
        json_schema: ForTexts[Schema] = None,
        constraint: ForTexts[Automaton] = None,
        allowed: Allowed | None = None,
        window: int | None = None,
        workers: int | None = None,
        max_batch_tokens: int = MAX_BATCH_TOKENS,
        truncate: bool = False,
        token_scores: bool = False,
        alignment: bool = False,
        alternatives: int | None = None,
        samples: int | None = None,
        seed: int = 0,
        each: Iterable[TranslationArguments] | None = None,
        slots: int | None = None,
        **options: Unpack[TranslationArguments],
    ) -> Generator[list[Hypothesis]]:
        """Translate any number of texts in constant memory, and yield the results in order.

        window: texts read ahead, so that texts of similar length share a batch. None: 1,024 per worker; 1 answers each
            text before it reads the next.

        A text that does not fit raises its error after the results of the texts before it. The other arguments are
        those of `translate`.
        """
        batching, (items, shared) = Batching(workers, max_batch_tokens, window), with_own(texts, options, each)
        count = checked_samples(samples, shared, seed)
        first = None if count is None else seed
        constraints = {"regex": regex, "json_schema": json_schema, "constraint": constraint, "allowed": allowed}
        matched = self._matched(constraints, phrases, count, slots)
        beside: Any = {"token_scores": token_scores, "alignment": alignment, "constraint": matched, "allowed": allowed}
        job, items = with_starts(self._translation(batching, truncate, shared, first, **beside), items, matched)
        excluded = {**constraints, "phrases": phrases, "samples": samples, "slots": slots}
        job = self._alternatives(job, alternatives, shared, excluded)
        if slots is not None:
            rows, idle = self._encoded(job, items, prefixes), _idle(samples, phrases, token_scores, alignment)
            return self._refilled_rows(rows, batching, slots, shared, idle)
        return self._stream(job, items, prefixes, batching, samples=count, phrases=phrases)

    def search(
        self, source: NDArray[np.int64] | Sequence[Sequence[int]], **options: Unpack[SearchArguments]
    ) -> SearchResult:
        """Search on token ids.

        source: int64 [batch, source]; each row ends with the end token and is then padded with the padding token, 0
            unless engine.json says otherwise.

        Raises: UserError for an option out of range, or for ids of another form.
        """
        self._check_method("search", "translate")
        resolved, declared = resolve_options(self.manifest, options, self._pieces()), self.manifest.inputs["source"]
        array = check_source(source, declared.pieces, declared.special.fill)
        if declared.longest is not None and array.shape[1] > declared.longest:
            raise UserError(f"the source has {array.shape[1]} tokens, and this engine takes at most {declared.longest}")
        pieces = self.manifest.inputs["target"].pieces
        return run_once(self.session, lambda session: search(session, {"source": array}, resolved, vocabulary=pieces))

    def align(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        workers: int | None = None,
        max_batch_tokens: int = MAX_BATCH_TOKENS,
        truncate: bool = False,
    ) -> list[Alignment]:
        """Link the words and tokens of given translations to those of their sources, in order, without a search.

        The arguments are those of `translate`; `truncate` cuts both texts.

        Raises: UserError for a text that is too long, and an engine without alignments.
        """
        batching = Batching(workers, max_batch_tokens)
        pairs = list(pairs_to_align(sources, targets))
        return self._aligning(batching, truncate).all(self.session, "align", pairs, batching)

    def align_stream(
        self,
        sources: Iterable[str],
        targets: Iterable[str],
        *,
        window: int | None = None,
        workers: int | None = None,
        max_batch_tokens: int = MAX_BATCH_TOKENS,
        truncate: bool = False,
    ) -> Generator[Alignment]:
        """Align any number of pairs in constant memory, and yield the results in order.

        The arguments are those of `align` and the `window` of `translate_stream`.
        """
        batching = Batching(workers, max_batch_tokens, window)
        return self._aligning(batching, truncate).stream(self.session, pairs_to_align(sources, targets), batching)

    def _translation(
        self,
        batching: Batching,
        truncate: bool,
        options: TranslationArguments,
        seed: int | None = None,
        *,
        token_scores: bool = False,
        alignment: bool = False,
        constraint: Matching | None = None,
        allowed: Allowed | None = None,
    ) -> Job[str, Row, list[Hypothesis]]:
        """Search for translations, or with a seed sample one of each."""
        self._check_method("translate", "translate")
        tokenizer = self._tokenizer(self.manifest.inputs)
        source = self.manifest.inputs["source"]
        reads, limit = partial(tokenizer.encode, "source"), whole_limit(source.longest, batching.max_batch_tokens)

        def encode(line: int, text: str) -> Row:
            tail = len(source.special.after)
            ids = encode_line(line, text, encode=reads, limit=limit, truncate=truncate, tail=tail)
            return {"source": np.array(ids, np.int64)}

        if seed is None:
            beside: Any = {"token_scores": token_scores, "constraint": constraint, "allowed": allowed}
            job = self._search_of(encode, search_alone(options), **beside)
        else:
            job = samples_of(
                encode, options, manifest=self.manifest, tokenizer=tokenizer, pieces=self._pieces(), seed=seed
            )
            job = replace(job, run=with_token_scores(job.run, self._with_scores())) if token_scores else job
        return aligning(job, self.manifest, tokenizer) if alignment else job

    def _alternatives(
        self,
        job: Job[Any, Row, list[Hypothesis]],
        given: int | None,
        options: TranslationArguments,
        beside: Mapping[str, object],
    ) -> Job[Any, Row, list[Hypothesis]]:
        """The job for the best text of each alternative, if there are any."""
        excluded = {**beside, "n_best": options.get("n_best"), "prefix_bias": options.get("prefix_bias")}
        count = checked_alternatives(self.manifest, given, excluded)
        if count is None:
            return job
        resolved = resolve_options(self.manifest, search_alone(options), self._pieces())
        return with_alternatives(job, count, manifest=self.manifest, tokenizer=self.tokenizer, options=resolved)

    def _matched(
        self, given: Mapping[str, object], phrases: object, samples: int | None, slots: int | None
    ) -> Matching | None:
        """Return what the translations match, if anything."""
        if all(value is None for value in given.values()):
            return None
        self._check_method("translate", "translate")
        idle = {"phrases": phrases, "samples": samples, "slots": slots}
        return resolve_constraint(self.manifest, self.tokenizer, given, idle)

    def _translations(
        self, seats: Seats, batching: Batching, truncate: bool, options: SearchArguments
    ) -> TranslationServer:
        """Open a server of translations: see `serve`."""
        resolved = resolve_options(self.manifest, options, self._pieces())
        if (resolved.beam_groups or 1) > 1:
            raise UserError("beam_groups has no effect with slots", hint="set beam_groups to 1, or leave out slots")
        job = self._translation(batching, truncate, cast(TranslationArguments, options))

        def encode(text: str, prefix: Prefix | None, own: SearchArguments) -> Row:
            (item,) = asked([text], {}, [own]) if own else [text]
            (row,) = self._encoded(job, [item], None if prefix is None else [prefix])
            return row

        return TranslationServer(self.session, self.manifest, resolved, encode, self.tokenizer, seats)

    def _encoded(
        self, job: Job[Any, Row, Result], items: Iterable[Any], prefixes: str | Iterable[Prefix] | None
    ) -> Iterator[Row]:
        """Yield the rows of items, whose texts begin with these prefixes."""
        if prefixes is None:
            return job.encoded(items)
        begun, pairs = begin_with(job, items, prefixes, manifest=self.manifest, tokenizer=self.tokenizer)
        return begun.encoded(pairs)

    def _refilled_rows(
        self,
        rows: Iterable[Row],
        batching: Batching,
        slots: int,
        options: TranslationArguments,
        idle: Mapping[str, object],
    ) -> Generator[list[Hypothesis]]:
        """Yield the hypotheses by a server. Raises: UserError at once for arguments that it has not, `idle`."""
        refuse_idle(idle)
        self.manifest.require(REFILLS)
        seats, plain = Seats(slots, None, batching.workers), Batching(None, batching.max_batch_tokens)

        def run() -> Generator[list[Hypothesis]]:
            with self._translations(seats, plain, False, search_alone(options)) as server:
                yield from server.in_order(map(server.submit_row, rows), batching.window)

        return run()

    def _aligning(self, batching: Batching, truncate: bool) -> Job[tuple[str, str], Row, Alignment]:
        self._check_method("align", "translate")
        tokenizer = self._tokenizer(self.manifest.inputs)
        return alignments(self.manifest, tokenizer, batching.max_batch_tokens, truncate=truncate)


def _idle(samples: int | None, phrases: object, token_scores: bool, alignment: bool) -> dict[str, object]:
    """The arguments that batches which refill do not have, None where they are not given."""
    given = {"token_scores": token_scores or None, "alignment": alignment or None}
    return {"samples": samples, "phrases": phrases, **given}
