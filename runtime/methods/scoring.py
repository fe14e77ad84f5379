"""Scores of given texts, and the order that they give to the hypotheses of another engine."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from xformc.errors import UserError
from xformc.format.abilities import SCORES_TEXTS
from xformc.format.tasks import TASKS
from xformc.runtime.job import Job, as_it_is, paired
from xformc.runtime.methods.translating import Translating
from xformc.runtime.options import SearchArguments
from xformc.runtime.predict import Example
from xformc.runtime.rows import Row
from xformc.runtime.score import Given, encode_given, score_rows, tokens_read
from xformc.runtime.searching.choose import WEIGHT, Pool, reranking, with_hypotheses
from xformc.runtime.searching.prefix import Prefix, check_scores, prefix_encoder, scores_of
from xformc.runtime.searching.translate import Hypothesis
from xformc.runtime.stream import MAX_BATCH_TOKENS, Batching
from xformc.runtime.text.texts import scored_limit

Item = TypeVar("Item")
Result = TypeVar("Result")


class Scoring(Translating):
    """Methods of engines that write text, which score it, too."""

    def score(
        self,
        texts: Sequence[Example | Sequence[int]] | Mapping[str, Any],
        targets: Iterable[Prefix] | None = None,
        *,
        workers: int | None = None,
        max_batch_tokens: int = MAX_BATCH_TOKENS,
        truncate: bool = False,
        beam_size: int | None = None,
        length_penalty: float | None = None,
        token_scores: bool = False,
    ) -> list[Hypothesis]:
        """Score given texts, the end token included, as the search or sampling scores those that it writes.

        No coverage penalty counts.

        Returns: for each target, in order, the hypothesis that it is. From a search, its score with a length penalty of
        0 is the log probability, and an empty source has the empty text with certainty, and no other. Of engines that
        sample, it is the log probability, and `token_scores` has that of each token.

        texts: what `translate` or `transcribe` takes; of a language model, the texts themselves or, with targets, what
            precedes each target, both as text or as token ids.
        targets: the text of each, or its token ids, which end with the end token unless the text was cut. After a
            prompt, a text is tokenized together with it, and has the tokens that the prompt alone has not.
        beam_size: the beam size of the search whose scores these are to the last bit, with target native; no other
            effect.

        The other arguments are those of `translate`.

        Raises: UserError for a target that is too long, and as `translate` and `transcribe`.
        """
        batching = Batching(workers, max_batch_tokens)
        if self.manifest.task == "language_model":
            reading = self._reading(batching, truncate, beam_size, length_penalty)
            return reading.all(self.session, "score", list(_texts_to_score(texts, targets)), batching)
        items, arrays = self._examples(texts)
        job = self._scoring(batching, truncate, beam_size, length_penalty, arrays=arrays, token_scores=token_scores)
        return self._all(job, "score", items, _required(targets), batching, whole=True)

    def score_stream(  # noqa: PLR0913 (each is an option)
        self,
        texts: Iterable[Example | Sequence[int]],
        targets: Iterable[Prefix] | None = None,
        *,
        window: int | None = None,
        workers: int | None = None,
        max_batch_tokens: int = MAX_BATCH_TOKENS,
        truncate: bool = False,
        beam_size: int | None = None,
        length_penalty: float | None = None,
        token_scores: bool = False,
    ) -> Generator[Hypothesis]:
        """Score any number of given texts in constant memory, and yield the results in order.

        The arguments are those of `score` and the `window` of `translate_stream`.
        """
        batching = Batching(workers, max_batch_tokens, window)
        if self.manifest.task == "language_model":
            reading = self._reading(batching, truncate, beam_size, length_penalty)
            return reading.stream(self.session, _texts_to_score(texts, targets), batching)
        job = self._scoring(batching, truncate, beam_size, length_penalty, arrays=False, token_scores=token_scores)
        return self._stream(job, texts, _required(targets), batching, whole=True)

    def score_rows(self, rows: Iterable[Row]) -> Generator[Hypothesis]:
        """Score the texts of any number of rows, whose tokens are PREFIX, in constant memory (`runtime.score`)."""
        self.manifest.require(SCORES_TEXTS)
        return self._scores_of(as_it_is).stream(self.session, rows, Batching(None, MAX_BATCH_TOKENS))

    def rerank(
        self,
        texts: Sequence[Example] | Mapping[str, Any],
        hypotheses: Iterable[Sequence[Hypothesis]],
        *,
        weight: float = WEIGHT,
        workers: int | None = None,
        max_batch_tokens: int = MAX_BATCH_TOKENS,
        truncate: bool = False,
    ) -> list[list[Hypothesis]]:
        """Rerank the hypotheses of another engine by this engine's scores of their texts.

        Returns: for each text, in order, its hypotheses, best first by the new score, which is (1 - weight) * their
        score + weight * this engine's. Equal ones keep their order. `features` has both scores.

        texts: what `translate` or `transcribe` takes.
        hypotheses: what the other engine's `translate` or `transcribe` returned for them.
        weight: from 0 to 1. Each score has the length penalty of its engine.

        The other arguments are those of `translate`.

        Raises: UserError as `score`.
        """
        batching, (items, arrays) = Batching(workers, max_batch_tokens), self._examples(texts)
        job = self._reranking(batching, truncate, weight, arrays=arrays)
        return job.all(self.session, "rerank", list(with_hypotheses(items, hypotheses)), batching)

    def rerank_stream(
        self,
        texts: Iterable[Example],
        hypotheses: Iterable[Sequence[Hypothesis]],
        *,
        weight: float = WEIGHT,
        window: int | None = None,
        workers: int | None = None,
        max_batch_tokens: int = MAX_BATCH_TOKENS,
        truncate: bool = False,
    ) -> Generator[list[Hypothesis]]:
        """Rerank the hypotheses of any number of texts in constant memory, and yield the results in order.

        The arguments are those of `rerank` and the `window` of `translate_stream`. `hypotheses` may be a stream of the
        other engine, and `texts` the other half of `itertools.tee`.
        """
        batching = Batching(workers, max_batch_tokens, window)
        job = self._reranking(batching, truncate, weight, arrays=False)
        return job.stream(self.session, with_hypotheses(texts, hypotheses), batching)

    def _scoring(
        self,
        batching: Batching,
        truncate: bool,
        beam_size: int | None,
        length_penalty: float | None,
        *,
        arrays: bool,
        token_scores: bool = False,
    ) -> Job[Any, Row, Hypothesis]:
        """Score the prefixes of rows, which are whole texts."""
        check_scores(self.manifest)
        if self.manifest.decoding == "sample":
            self._refuse_penalty(beam_size, length_penalty)
            return self._scores_of(as_it_is if arrays else self._reader(batching, truncate))
        options: SearchArguments = {"beam_size": beam_size, "n_best": 1, "length_penalty": length_penalty}
        options |= {"max_length_factor": 0.0, "max_length_offset": 0, "prefix_bias": 0.0}  # only the given texts
        options |= {"coverage_penalty": 0.0}
        if TASKS[self.manifest.task].method == "translate":
            job: Job[Any, Row, list[Hypothesis]] = self._translation(
                batching, truncate, {**options}, token_scores=token_scores
            )
        else:
            reader = as_it_is if arrays else self._reader(batching, truncate)
            job = self._search_of(reader, options, token_scores=token_scores)
        return Job(job.encode, job.size, partial(scores_of, job.run))

    def _reading(
        self, batching: Batching, truncate: bool, beam_size: int | None, length_penalty: float | None
    ) -> Job[Given, Row, Hypothesis]:
        """Score the texts of a language model."""
        check_scores(self.manifest)
        self._refuse_penalty(beam_size, length_penalty)
        name = self.manifest.written
        text = self.manifest.inputs[name]
        limit = scored_limit(text.longest, batching.max_batch_tokens)
        return self._scores_of(
            partial(encode_given, name=name, text=text, tokenizer=self.tokenizer, limit=limit, truncate=truncate)
        )

    def _scores_of(self, encode: Callable[[int, Item], Row]) -> Job[Item, Row, Hypothesis]:
        manifest = self.manifest
        run = partial(score_rows, manifest=manifest, tokenizer=self.tokenizer)
        return Job(encode, partial(tokens_read, manifest=manifest), run)

    def _refuse_penalty(self, beam_size: int | None, length_penalty: float | None) -> None:
        given = {"beam_size": beam_size, "length_penalty": length_penalty}
        idle = [name for name, value in given.items() if value is not None]
        if idle:
            message = f"{', '.join(idle)}: no effect on {self.manifest.name}, which samples"
            raise UserError(message, hint="its scores are log probabilities")

    def _reranking(
        self, batching: Batching, truncate: bool, weight: float, *, arrays: bool
    ) -> Job[tuple[Any, Sequence[Hypothesis]], Pool, list[Hypothesis]]:
        scoring = self._scoring(batching, truncate, 1, None, arrays=arrays)
        return reranking(scoring, prefix_encoder(self.manifest, self.tokenizer, whole=True), weight)


def _texts_to_score(texts: Iterable[Any] | Mapping[str, Any], targets: Iterable[Prefix] | None) -> Iterator[Given]:
    """Return the texts of a language model, or each with the text that follows it."""
    if isinstance(texts, str | Mapping):
        raise UserError("a list of texts is needed, not one text", hint="put the text in a list: [text]")
    if targets is None:
        return (((), text) for text in texts)
    return paired(texts, targets, none="is no target", several="targets", one="one")


def _required(targets: Iterable[Prefix] | None) -> Iterable[Prefix]:
    if targets is None:
        raise UserError("there are no texts to score", hint="give the target of each source")
    return targets
