"""The engine: it translates, continues or labels text and arrays. The search itself is inside its ONNX model."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar, Unpack, cast

import numpy as np
from numpy.typing import NDArray

from xformc.errors import UserError
from xformc.format.inputs import Input
from xformc.format.manifest import Manifest, SampleOptions, check_files
from xformc.format.names import MANIFEST
from xformc.format.reader import read_manifest
from xformc.format.tasks import TASKS, tasks_with
from xformc.runtime.align import aligning, alignments, pairs_to_align
from xformc.runtime.alignment import Alignment
from xformc.runtime.arrays import read_rows
from xformc.runtime.choose import WEIGHT, Pool, reranking, sampling, with_hypotheses
from xformc.runtime.constrain import Allowed, Constraint, Spelled, constrain_by, constrain_by_grammar
from xformc.runtime.devices.device import DeviceName
from xformc.runtime.draft import Speculation, speculation
from xformc.runtime.each import asked, rows_with_own, split_by_text, values_of
from xformc.runtime.generate import (
    Continuation,
    Prompt,
    check_seed,
    continuation_needs,
    continue_prompts,
    encode_prompt,
    prompts_with_own,
)
from xformc.runtime.job import Job, as_it_is, paired
from xformc.runtime.kinds.kind import check_kinds
from xformc.runtime.kinds.labels import Prediction
from xformc.runtime.library import check_operators
from xformc.runtime.media.reader import suffixes_of
from xformc.runtime.options import SearchArguments, checked_integer, resolve_options
from xformc.runtime.predict import MAX_BATCH_POSITIONS, encode_example, positions_needed, predict_rows
from xformc.runtime.prefix import Prefix, begin_with, check_scores, prefix_encoder, scores_of
from xformc.runtime.rows import Row
from xformc.runtime.sampling import (
    MAX_SAMPLES,
    PromptArguments,
    SampleArguments,
    WritingArguments,
    resolve_sample_options,
    split_options,
)
from xformc.runtime.score import (
    Given,
    encode_given,
    require_scores,
    score_rows,
    tokens_read,
    with_added_scores,
    with_token_scores,
)
from xformc.runtime.search import SearchResult, check_source, search
from xformc.runtime.server import AT_ONCE, SLOTS, Server, require_refills
from xformc.runtime.session import Session
from xformc.runtime.sessions import open_session
from xformc.runtime.steer import PLAIN, Steering, continue_each
from xformc.runtime.stops import checked_stops
from xformc.runtime.stream import MAX_BATCH_TOKENS, Batching
from xformc.runtime.suppressed import Pieces, pieces_of
from xformc.runtime.texts import encode_line, prompt_limit, scored_limit, whole_limit
from xformc.runtime.token_calls import TokenCalls
from xformc.runtime.token_stream import TokenStream, open_stream, require_streams
from xformc.runtime.tokenizer import Tokenizer, load_tokenizer
from xformc.runtime.translate import SEED, Hypothesis, drawn_tokens_needed, tokens_needed, write_rows

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Engine:
    """A loaded engine, made by `load`. It keeps no state between calls and may be shared between threads.

    Its task decides what it can do: `translate` for translation, `generate` for language_model, `predict` for tagging
    and classification. An engine of a spec that declares its results has `transcribe` if it writes text, otherwise
    `predict`. Use it as a context manager, or call `close`, to free the model's memory.
    """

    manifest: Manifest
    tokenizer: Tokenizer | None
    session: Session

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the model's memory. Later calls raise UserError; calls that are running end as usual."""
        self.session.close()

    def translate(
        self,
        texts: Sequence[str],
        *,
        prefixes: str | Iterable[Prefix] | None = None,
        workers: int | None = None,
        max_batch_tokens: int = MAX_BATCH_TOKENS,
        truncate: bool = False,
        token_scores: bool = False,
        alignment: bool = False,
        each: Iterable[SearchArguments] | None = None,
        **options: Unpack[SearchArguments],
    ) -> list[list[Hypothesis]]:
        """Translate texts.

        Returns: for each text, in order, up to `n_best` hypotheses, best first. An empty text has one hypothesis, "".

        prefixes: what each translation begins with, as text or as token ids: one for each text, or one text for all of
            them, such as a language tag. The prefix is part of the hypothesis, and of its score.
        token_scores: also compute the log probability of each token, as `token_scores` of each hypothesis; their sum is
            the score with a length penalty of 0.
        alignment: also link words and tokens to those of the source, as `alignment` of each hypothesis.
        workers: batches run at the same time. None: the number that the engine was loaded for.
        max_batch_tokens: capacity of a batch. Each sentence takes the tokens of the batch's longest source, plus those
            of each hypothesis at its length limit. Neither this nor `workers` changes the results.
        truncate: cut texts that are too long, with a warning; otherwise they are errors. The limit is the model's own.
            Without one it is a quarter of `max_batch_tokens`, or 4,096 if that is more.
        each: options of each text, which win over the other ones; all but beam_size and n_best.
        options: see `SearchArguments`.

        Raises: UserError for an option out of range, a text that is too long, or an engine without a tokenizer.
        """
        batching, (items, shared) = Batching(workers, max_batch_tokens), _with_own(texts, options, each)
        job = self._translation(batching, truncate, shared, token_scores=token_scores, alignment=alignment)
        return self._all(job, "translate", items, prefixes, batching)

    def translate_stream(  # noqa: PLR0913 (each is an option)
        self,
        texts: Iterable[str],
        *,
        prefixes: str | Iterable[Prefix] | None = None,
        window: int | None = None,
        workers: int | None = None,
        max_batch_tokens: int = MAX_BATCH_TOKENS,
        truncate: bool = False,
        token_scores: bool = False,
        alignment: bool = False,
        each: Iterable[SearchArguments] | None = None,
        **options: Unpack[SearchArguments],
    ) -> Generator[list[Hypothesis]]:
        """Translate any number of texts in constant memory, and yield the results in order.

        window: texts read ahead, so that texts of similar length share a batch. None: 1,024 per worker; 1 answers each
            text before it reads the next.

        A text that does not fit raises its error after the results of the texts before it. The other arguments are
        those of `translate`.
        """
        batching, (items, shared) = Batching(workers, max_batch_tokens, window), _with_own(texts, options, each)
        job = self._translation(batching, truncate, shared, token_scores=token_scores, alignment=alignment)
        return self._stream(job, items, prefixes, batching)

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

    def score(
        self,
        texts: Sequence[str | Path | Sequence[str] | Sequence[int]] | Mapping[str, Any],
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
        texts: Iterable[str | Path | Sequence[str] | Sequence[int]],
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
        require_scores(self.manifest)
        return self._scores_of(as_it_is).stream(self.session, rows, Batching(None, MAX_BATCH_TOKENS))

    def rerank(
        self,
        texts: Sequence[str | Path | Sequence[str]] | Mapping[str, Any],
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
        texts: Iterable[str | Path | Sequence[str]],
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
        return search(self.session, {"source": array}, resolved, vocabulary=self.manifest.inputs["target"].pieces)

    def transcribe(  # noqa: PLR0913 (each is an option)
        self,
        examples: Sequence[str | Path | Sequence[str]] | Mapping[str, Any],
        *,
        prefixes: str | Iterable[Prefix] | None = None,
        workers: int | None = None,
        max_batch_tokens: int = MAX_BATCH_TOKENS,
        truncate: bool = False,
        seed: int = 0,
        samples: int = 1,
        token_scores: bool = False,
        each: Iterable[WritingArguments] | None = None,
        **options: Unpack[WritingArguments],
    ) -> list[list[Hypothesis]]:
        """Write text for arrays by the name of their input (docs/runtime.md), or for texts.

        Returns: for each example, in order, up to `n_best` hypotheses, best first; from an engine that samples,
        `samples` of them, in the order of their seeds.

        examples: a mapping from each input's name to an array with one row for each example; or texts, if all inputs
            are text; for several inputs, sequences of texts in the order of the inputs. The text of a sound or an
            image is the path of its .wav, .png or .jpg file.

        samples: texts sampled for each example; each has the next seed.

        The other arguments are those of `translate` or, with `seed`, those of `generate`: an engine either searches or
        samples, as its spec says.

        Raises: UserError for an example that does not fit the engine's inputs, or an option out of range.
        """
        self._check_method("transcribe", "transcribe")
        batching, (given, arrays) = Batching(workers, max_batch_tokens), self._examples(examples)
        items, shared = _with_own(given, options, each)
        reader = as_it_is if arrays else self._reader(batching, truncate)
        writing = self._writing(reader, shared, seed, samples, token_scores=token_scores)
        return self._all(writing, "transcribe", items, prefixes, batching)

    def transcribe_stream(  # noqa: PLR0913 (each is an option)
        self,
        texts: Iterable[str | Path | Sequence[str]],
        *,
        prefixes: str | Iterable[Prefix] | None = None,
        window: int | None = None,
        workers: int | None = None,
        max_batch_tokens: int = MAX_BATCH_TOKENS,
        truncate: bool = False,
        seed: int = 0,
        samples: int = 1,
        token_scores: bool = False,
        each: Iterable[WritingArguments] | None = None,
        **options: Unpack[WritingArguments],
    ) -> Generator[list[Hypothesis]]:
        """Write text for any number of texts in constant memory, and yield the results in order.

        The arguments are those of `transcribe` and the `window` of `translate_stream`.
        """
        self._check_method("transcribe", "transcribe")
        batching, (items, shared) = Batching(workers, max_batch_tokens, window), _with_own(texts, options, each)
        writing = self._writing(self._reader(batching, truncate), shared, seed, samples, token_scores=token_scores)
        return self._stream(writing, items, prefixes, batching)

    def generate(  # noqa: PLR0913 (each is an option)
        self,
        prompts: Sequence[str],
        *,
        seed: int | Sequence[int] = 0,
        workers: int | None = None,
        max_batch_tokens: int = MAX_BATCH_TOKENS,
        truncate: bool = False,
        token_scores: bool = False,
        draft: "Engine | str | None" = None,
        draft_tokens: int | None = None,
        regex: str | None = None,
        json_schema: Mapping[str, Any] | str | None = None,
        allowed: Allowed | None = None,
        stop: Sequence[str] | None = None,
        each: Iterable[PromptArguments] | None = None,
        slots: int | None = None,
        **options: Unpack[SampleArguments],
    ) -> list[Continuation]:
        """Continue prompts with a language model. An empty prompt starts a text from nothing.

        Returns: the continuation of each prompt, in order.

        seed: the random seed of the first prompt; the second has seed + 1, and so on; or a list with the seed of each.
            A continuation depends on its prompt, its seed and its options, not on the other prompts.
        workers: batches run at the same time. None: the number that the engine was loaded for.
        max_batch_tokens: capacity of a batch, the new tokens included. Neither this nor `workers` changes the results.
        truncate: keep only the end of prompts that are too long; otherwise they are errors. The limit is the model's
            own, less one. Without one it is `max_batch_tokens`, or 16,384 if that is more.
        draft: what guesses the next tokens, which this engine then checks in one pass: a smaller engine with the same
            vocabulary, or `lookup`, which looks up the last tokens in the text so far. The continuations are the same,
            and come sooner if the guesses are good. Each prompt is continued by itself.
        draft_tokens: the most tokens to guess at a time; 4 by default.
        regex, json_schema: what each whole continuation matches: a regular expression or a JSON schema of llguidance.
        allowed: returns the tokens that may follow those of a continuation, by their ids: ids, or a mask of booleans.
            A constraint takes one call of the model for each token, and each prompt is continued by itself.
        stop: stop strings. A text ends before the first of them, and its last token is the one that completes it. Each
            prompt is continued by itself.
        each: options of each prompt, and its `seed`, which win over the other ones.
        slots: sample this many texts together, each of which makes room for the next one when it has ended (`serve`).
            None: batches whose texts begin and end together.
        options: see `SampleArguments`.

        Raises: UserError for an option out of range, a prompt that is too long, an engine without a tokenizer, or a
        draft that does not fit.
        """
        batching = Batching(workers, max_batch_tokens)
        items, shared, first = _seeded(prompts, options, seed, each)
        steering = self._steering(draft, draft_tokens, regex, json_schema, allowed, stop)
        job = self._generation(batching, first, truncate, shared, token_scores=token_scores, steering=steering)
        if slots is None:
            return job.all(self.session, "generate", items, batching)
        idle = {"workers": workers, "token_scores": token_scores or None, **steering.given}
        job.require_several("generate", prompts)
        return list(self._refilled(list(job.encoded(items)), batching, slots, shared, idle))

    def generate_stream(  # noqa: PLR0913 (each is an option)
        self,
        prompts: Iterable[str],
        *,
        seed: int | Sequence[int] = 0,
        window: int | None = None,
        workers: int | None = None,
        max_batch_tokens: int = MAX_BATCH_TOKENS,
        truncate: bool = False,
        token_scores: bool = False,
        draft: "Engine | str | None" = None,
        draft_tokens: int | None = None,
        regex: str | None = None,
        json_schema: Mapping[str, Any] | str | None = None,
        allowed: Allowed | None = None,
        stop: Sequence[str] | None = None,
        each: Iterable[PromptArguments] | None = None,
        slots: int | None = None,
        **options: Unpack[SampleArguments],
    ) -> Generator[Continuation]:
        """Continue any number of prompts in constant memory, and yield the results in order.

        The arguments are those of `generate` and the `window` of `translate_stream`.
        """
        batching = Batching(workers, max_batch_tokens, window)
        items, shared, first = _seeded(prompts, options, seed, each)
        steering = self._steering(draft, draft_tokens, regex, json_schema, allowed, stop)
        job = self._generation(batching, first, truncate, shared, token_scores=token_scores, steering=steering)
        if slots is None:
            return job.stream(self.session, items, batching)
        idle = {"workers": workers, "token_scores": token_scores or None, **steering.given}
        return self._refilled(job.encoded(items), batching, slots, shared, idle)

    def stream_tokens(  # noqa: PLR0913 (each is an option)
        self,
        prompt: str,
        *,
        seed: int = 0,
        tokens_at_once: int = 1,
        max_batch_tokens: int = MAX_BATCH_TOKENS,
        truncate: bool = False,
        draft: "Engine | str | None" = None,
        draft_tokens: int | None = None,
        regex: str | None = None,
        json_schema: Mapping[str, Any] | str | None = None,
        allowed: Allowed | None = None,
        stop: Sequence[str] | None = None,
        **options: Unpack[SampleArguments],
    ) -> TokenStream:
        """Continue a prompt with a language model, and return its text as an iterator of pieces as they are sampled.

        Together they are the text of `generate` with this seed, and so are the tokens and the score.

        tokens_at_once: tokens that one call of the model samples: more are faster, and come later.

        The other arguments are those of `generate`.

        Raises: UserError as `generate`, and for an engine without streams.
        """
        steering = self._steering(draft, draft_tokens, regex, json_schema, allowed, stop)
        job = self._generation(Batching(None, max_batch_tokens), seed, truncate, options)
        (encoded,) = job.encoded([prompt])
        calls = self._token_calls(steering, resolve_sample_options(self.manifest, options, self._pieces()))
        return open_stream(self.manifest, calls(self.session, encoded, tokens_at_once))

    def serve(
        self,
        *,
        slots: int = SLOTS,
        tokens_at_once: int = AT_ONCE,
        max_batch_tokens: int = MAX_BATCH_TOKENS,
        truncate: bool = False,
        **options: Unpack[SampleArguments],
    ) -> Server:
        """Open a server of continuations: texts of any number of callers share one batch, which each joins when there
        is room and leaves when it has ended.

        with engine.serve(slots=8, temperature=0.7) as server:
            replies = [server.submit(prompt, seed=seed) for seed, prompt in enumerate(prompts)]
            print(replies[0].result().text)

        A continuation is that of `generate` with this prompt and seed, whatever else is in the batch.

        slots: texts that are sampled at the same time. More are faster together, and each of them slower.
        tokens_at_once: tokens that one call of the model samples of each text; texts join and leave between calls.

        The other arguments are those of `generate`, and hold for all texts.

        Raises: UserError as `generate`, and for an engine without batches that refill.
        """
        job = self._generation(Batching(None, max_batch_tokens), 0, truncate, options, token_scores=False)
        resolved = resolve_sample_options(self.manifest, options, self._pieces())
        decode = partial(self.tokenizer_of(self.manifest.written).decode, self.manifest.written)

        def encode(prompt: str, seed: int) -> Prompt:
            (encoded,) = job.encoded([prompt])
            return replace(encoded, seed=check_seed(seed))

        return Server(self.session, self.manifest, resolved, encode, decode, slots=slots, at_once=tokens_at_once)

    def predict(
        self,
        examples: Sequence[str | Path | Sequence[str]] | Mapping[str, Any],
        *,
        workers: int | None = None,
        max_batch_tokens: int = MAX_BATCH_POSITIONS,
        truncate: bool = False,
    ) -> list[Prediction]:
        """Compute the results for texts, or for arrays by the name of their input (docs/runtime.md).

        Returns: the prediction of each example, in order.

        examples: texts; for an engine with several text inputs, sequences of texts in the order of the inputs; or a
            mapping from each input's name to an array with one row for each example. The text of a sound or an image is
            the path of its .wav, .png or .jpg file.
        workers: batches run at the same time. None: the number that the engine was loaded for.
        max_batch_tokens: capacity of a batch in positions, padding included. Neither this nor `workers` changes the
            results.
        truncate: cut texts that are too long, with a warning; otherwise they are errors.

        Raises: UserError for an example that does not fit the engine's inputs.
        """
        self._check_method("predict", "predict")
        batching = Batching(workers, max_batch_tokens)
        if isinstance(examples, Mapping):
            rows = read_rows(self.manifest.inputs, examples, self.manifest.targets)
            return self._labelling(as_it_is).all(self.session, "predict", rows, batching)
        return self._labelling(self._reader(batching, truncate)).all(self.session, "predict", examples, batching)

    def predict_stream(
        self,
        texts: Iterable[str | Path | Sequence[str]],
        *,
        window: int | None = None,
        workers: int | None = None,
        max_batch_tokens: int = MAX_BATCH_POSITIONS,
        truncate: bool = False,
    ) -> Generator[Prediction]:
        """Compute the results for any number of texts in constant memory, and yield them in order.

        The arguments are those of `predict` and the `window` of `translate_stream`.
        """
        self._check_method("predict", "predict")
        batching = Batching(workers, max_batch_tokens, window)
        return self._labelling(self._reader(batching, truncate)).stream(self.session, texts, batching)

    def predict_rows(self, rows: Sequence[Row]) -> list[Prediction]:
        """Compute the results of rows of the engine's inputs."""
        self._check_method("predict", "predict")
        return self._labelling(as_it_is).all(self.session, "predict", rows, Batching(None, MAX_BATCH_POSITIONS))

    def transcribe_rows(
        self, rows: Sequence[Row], *, seed: int = 0, **options: Unpack[WritingArguments]
    ) -> list[list[Hypothesis]]:
        """Write text for rows of the engine's inputs. The options are those of `transcribe`."""
        batching = Batching(None, MAX_BATCH_TOKENS)
        return self._writing(as_it_is, options, seed).all(self.session, "transcribe", rows, batching)

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
        options |= {"max_length_factor": 0.0, "max_length_offset": 0}  # so that texts are as long as given
        if TASKS[self.manifest.task].method == "translate":
            job: Job[Any, Row, list[Hypothesis]] = self._translation(
                batching, truncate, options, token_scores=token_scores
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

    def _with_scores(self) -> Manifest:
        """Return the manifest. Raises: UserError if the engine has no scores of tokens."""
        require_scores(self.manifest)
        return self.manifest

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

    def _examples(self, given: Sequence[Any] | Mapping[str, Any]) -> tuple[Sequence[Any], bool]:
        """Return the examples as items, and whether these are rows."""
        if isinstance(given, Mapping):
            return read_rows(self.manifest.given, given, self.manifest.targets), True
        if isinstance(given, str):
            raise UserError("a list of texts is needed, not one text", hint="put the text in a list: [text]")
        return given, False

    def _all(
        self,
        job: Job[Item, Row, Result],
        method: str,
        items: Sequence[Item],
        prefixes: str | Iterable[Prefix] | None,
        batching: Batching,
        *,
        whole: bool = False,
    ) -> list[Result]:
        """The results of all items, whose texts begin with these prefixes."""
        if prefixes is None:
            return job.all(self.session, method, items, batching)
        begun, pairs = begin_with(job, items, prefixes, manifest=self.manifest, tokenizer=self.tokenizer, whole=whole)
        return begun.all(self.session, method, list(pairs), batching)

    def _stream(
        self,
        job: Job[Item, Row, Result],
        items: Iterable[Item],
        prefixes: str | Iterable[Prefix] | None,
        batching: Batching,
        *,
        whole: bool = False,
    ) -> Generator[Result]:
        if prefixes is None:
            return job.stream(self.session, items, batching)
        begun, pairs = begin_with(job, items, prefixes, manifest=self.manifest, tokenizer=self.tokenizer, whole=whole)
        return begun.stream(self.session, pairs, batching)

    def _aligning(self, batching: Batching, truncate: bool) -> Job[tuple[str, str], Row, Alignment]:
        self._check_method("align", "translate")
        tokenizer = self._tokenizer(self.manifest.inputs)
        return alignments(self.manifest, tokenizer, batching.max_batch_tokens, truncate=truncate)

    def _translation(
        self,
        batching: Batching,
        truncate: bool,
        options: SearchArguments,
        *,
        token_scores: bool = False,
        alignment: bool = False,
    ) -> Job[str, Row, list[Hypothesis]]:
        self._check_method("translate", "translate")
        tokenizer = self._tokenizer(self.manifest.inputs)
        source = self.manifest.inputs["source"]
        reads, limit = partial(tokenizer.encode, "source"), whole_limit(source.longest, batching.max_batch_tokens)

        def encode(line: int, text: str) -> Row:
            ids = encode_line(line, text, encode=reads, limit=limit, truncate=truncate)
            return {"source": np.array(ids, np.int64)}

        job = self._search_of(encode, options, token_scores=token_scores)
        return aligning(job, self.manifest, tokenizer) if alignment else job

    def _writing(
        self,
        encode: Callable[[int, Item], Row],
        options: WritingArguments,
        seed: int,
        samples: int = 1,
        *,
        token_scores: bool = False,
    ) -> Job[Item, Any, list[Hypothesis]]:
        self._check_method("transcribe", "transcribe")
        several = checked_integer("samples", samples, 1, 1, MAX_SAMPLES)
        searching, sampled = split_options(self.manifest, options, seed, several)
        if self.manifest.decoding == "search":
            return self._search_of(encode, searching, token_scores=token_scores)
        manifest, pieces = self.manifest, self._pieces()
        resolved, first = resolve_sample_options(manifest, sampled, pieces), check_seed(seed)
        resolve = partial(resolve_sample_options, manifest, pieces=pieces)
        encode_own = rows_with_own(encode, values_of(manifest, lambda given: resolve(cast(Any, {**sampled, **given}))))

        def seeded(line: int, item: Item) -> Row:
            return {**encode_own(line, item), SEED: np.array(first + line - 1, np.int64)}

        run = partial(write_rows, manifest=manifest, tokenizer=self.tokenizer, options=resolved)
        job = Job(
            seeded,
            partial(drawn_tokens_needed, inputs=manifest.given, options=resolved),
            with_token_scores(run, self._with_scores()) if token_scores else run,
        )
        return sampling(job, several)

    def _pieces(self) -> Pieces | None:
        """The pieces of the text that the engine writes; None if it has no tokenizer for it."""
        name = self.manifest.written
        return pieces_of(self.tokenizer, name, self.manifest.inputs[name].pieces)

    def _search_of(
        self, encode: Callable[[int, Item], Row], options: SearchArguments, *, token_scores: bool = False
    ) -> Job[Item, Row, list[Hypothesis]]:
        manifest, pieces = self.manifest, self._pieces()
        resolved = resolve_options(manifest, options, pieces)
        own = values_of(manifest, lambda given: resolve_options(manifest, cast(Any, {**options, **given}), pieces))
        longest = manifest.inputs[manifest.written].longest
        run = partial(write_rows, manifest=manifest, tokenizer=self.tokenizer, options=resolved)
        size = partial(tokens_needed, inputs=manifest.given, options=resolved, longest=longest)
        return Job(
            rows_with_own(encode, own), size, with_token_scores(run, self._with_scores()) if token_scores else run
        )

    def _generation(
        self,
        batching: Batching,
        seed: int,
        truncate: bool,
        options: SampleArguments,
        *,
        token_scores: bool = False,
        steering: Steering = PLAIN,
    ) -> Job[Any, Prompt, Continuation]:
        self._check_method("generate", "generate")
        manifest, pieces = self.manifest, self._pieces()
        resolved = resolve_sample_options(manifest, options, pieces)
        resolve = partial(resolve_sample_options, manifest, pieces=pieces)
        own = values_of(manifest, lambda given: resolve(cast(Any, {**options, **given})))
        tokenizer, name = self._tokenizer(manifest.inputs), manifest.written
        text = manifest.inputs[name]
        limit, first = prompt_limit(text.longest, batching.max_batch_tokens), check_seed(seed)
        run = partial(continue_prompts, name=name, tokenizer=tokenizer, options=resolved, vocabulary=text.pieces)
        if steering.needed:
            run = partial(continue_each, calls=self._token_calls(steering, resolved))
        encode = partial(encode_prompt, name=name, tokenizer=tokenizer, seed=first, limit=limit, truncate=truncate)
        return Job(
            prompts_with_own(encode, own),
            partial(continuation_needs, options=resolved),
            with_added_scores(run, self._with_scores()) if token_scores else run,
        )

    def _speculation(self, draft: "Engine | str | None", tokens: int | None) -> Speculation | None:
        if draft is None:
            if tokens is not None:
                raise UserError("draft_tokens has no effect without a draft", hint="give draft=, or leave it out")
            return None
        self._check_method("generate", "generate")
        drafting = (draft.manifest, draft.session) if isinstance(draft, Engine) else draft
        return speculation(self.manifest, drafting, tokens)

    def _token_calls(self, steering: Steering, options: SampleOptions) -> Callable[..., TokenCalls]:
        """Return the function from a session, a prompt and a number of tokens at once to the prompt's calls."""
        name = self.manifest.written
        decode = partial(self.tokenizer_of(name).decode, name)
        return partial(steering.calls, options=options, written=self.manifest.inputs[name], decode=decode)

    def _steering(
        self,
        draft: "Engine | str | None",
        draft_tokens: int | None,
        regex: str | None,
        json_schema: Mapping[str, Any] | str | None,
        allowed: Allowed | None,
        stop: Sequence[str] | None,
    ) -> Steering:
        """Return what steers the texts. Raises: UserError for what excludes each other, or what the engine has not."""
        drafting, stops = self._speculation(draft, draft_tokens), checked_stops(stop)
        given = {"regex": regex, "json_schema": json_schema, "allowed": allowed, "draft": draft}
        there = [name for name, value in given.items() if value is not None]
        if stops.texts and (regex, json_schema) != (None, None):
            there.append("stop")
        if len(there) > 1:
            raise UserError(f"{' and '.join(there)} exclude each other", hint="leave all but one of them out")
        constraint = None if there in ([], ["draft"]) else self._constraint(regex, json_schema, allowed)
        if stops.texts:
            self._check_method("generate", "generate")
            require_streams(self.manifest)
        return Steering(drafting, constraint, stops)

    def _constraint(
        self, regex: str | None, json_schema: Mapping[str, Any] | str | None, allowed: Allowed | None
    ) -> Constraint:
        """Return what the texts match. Raises: UserError for an engine that has no constraints."""
        self._check_method("generate", "generate")
        require_streams(self.manifest)
        text = self.manifest.inputs[self.manifest.written]
        if allowed is not None:
            return constrain_by(allowed, text.pieces)
        vocabulary = self.tokenizer_of(self.manifest.written).vocabularies[self.manifest.written]
        pieces = vocabulary.spelling()
        spelled = Spelled([*pieces, *[b""] * (text.pieces - len(pieces))], text.special, vocabulary.strips)
        return constrain_by_grammar(spelled, regex=regex, json_schema=json_schema)

    def _refilled(
        self,
        prompts: Iterable[Prompt],
        batching: Batching,
        slots: int,
        options: SampleArguments,
        idle: Mapping[str, object],
    ) -> Generator[Continuation]:
        """Yield the continuations by a server. Raises: UserError at once for arguments that it has not, `idle`."""
        for name, value in idle.items():
            if value is not None:
                raise UserError(f"{name} has no effect with slots", hint=f"leave out {name}, or slots")
        require_refills(self.manifest, slots)

        def run() -> Generator[Continuation]:
            with self.serve(slots=slots, max_batch_tokens=batching.max_batch_tokens, **options) as server:
                yield from server.in_order(prompts, batching.window)

        return run()

    def _labelling(self, encode: Callable[[int, Item], Row]) -> Job[Item, Row, Prediction]:
        needed = partial(positions_needed, inputs=self.manifest.inputs)
        return Job(encode, needed, partial(predict_rows, manifest=self.manifest, tokenizer=self.tokenizer))

    def _reader(self, batching: Batching, truncate: bool) -> Callable[[int, str | Path | Sequence[str]], Row]:
        inputs = self.manifest.given
        return partial(
            encode_example,
            inputs=inputs,
            words=self.manifest.labels_words,
            tokenizer=self._tokenizer_of(inputs),
            truncate=truncate,
            max_batch_tokens=batching.max_batch_tokens,
        )

    def _check_method(self, called: str, method: str) -> None:
        check_method(self.manifest, called, method)

    def _tokenizer_of(self, inputs: Mapping[str, Input]) -> Tokenizer | None:
        """The tokenizer of the inputs that are text; None if all of them are files."""
        files = [name for name, item in inputs.items() if suffixes_of(item)]
        rest = {name: item for name, item in inputs.items() if name not in files}
        return self._tokenizer(rest) if rest or not files else None

    def tokenizer_of(self, name: str) -> Tokenizer:
        """Return the tokenizer, which has the vocabulary of the input `name`. Raises: UserError if there is none."""
        return self._tokenizer({name: self.manifest.inputs[name]})

    def _tokenizer(self, inputs: Mapping[str, Input]) -> Tokenizer:
        others = [name for name, item in inputs.items() if item.kind != "tokens"]
        if others:
            method = TASKS[self.manifest.task].method
            raise UserError(
                f"the engine {self.manifest.name} takes more than text: it needs {', '.join(others)}",
                hint=f"give it arrays: engine.{method}({{name: array, ...}}), or xformc {method} ENGINE -i FILE.npz",
            )
        if self.tokenizer is None or not self.tokenizer.vocabularies.keys() >= inputs.keys():
            raise UserError(
                f"the engine {self.manifest.name} has no tokenizer",
                hint="build it from a run, or with tokenizers: xformc.build(..., tokenizers={input: file})",
            )
        return self.tokenizer


def _with_own(
    items: Iterable[Any], options: Mapping[str, Any], each: Iterable[Mapping[str, Any]] | None
) -> tuple[Any, Any]:
    """Return the items, with their own options if there are any, and the options that all of them share."""
    shared, lists = split_by_text(options)
    if not lists and each is None:
        return items, shared
    if isinstance(items, str):
        raise UserError("a list of texts is needed, not one text", hint="put the text in a list: [text]")
    return asked(items, lists, each), shared


def _seeded(
    prompts: Iterable[str],
    options: Mapping[str, Any],
    seed: int | Sequence[int],
    each: Iterable[Mapping[str, Any]] | None,
) -> tuple[Any, Any, int]:
    """Return the prompts and options as `_with_own`, and the seed of the first; a list of seeds is an option."""
    if isinstance(seed, Sequence):
        return *_with_own(prompts, {**options, "seed": seed}, each), 0
    return *_with_own(prompts, options, each), seed


def _texts_to_score(texts: Iterable[Any] | Mapping[str, Any], targets: Iterable[Prefix] | None) -> Iterator[Given]:
    """Return the texts of a language model, or each with the text that follows it."""
    if isinstance(texts, str | Mapping):
        raise UserError("a list of texts is needed, not one text", hint="put the text in a list: [text]")
    if targets is None:
        return (((), text) for text in texts)
    return paired(texts, targets, none="is no target", several="targets", one="one")


def _required(targets: Iterable[Prefix] | None) -> Iterable[Prefix]:
    if targets is None:
        raise UserError("there are no texts to score", hint="give them as targets: engine.score(sources, targets)")
    return targets


def check_method(manifest: Manifest, called: str, method: str) -> None:
    """Raises: UserError unless `method` is the one of the engine's task; `called` is what the user called."""
    right = TASKS[manifest.task].method
    if right != method:
        tasks = " or ".join(tasks_with(method))
        raise UserError(
            f"{manifest.name} is a {manifest.task} engine; {called} needs a {tasks} engine",
            hint=f"use engine.{right}(...) in Python, or xformc {right} on the command line",
        )


def load(
    directory: Path | str,
    *,
    threads: int | None = None,
    workers: int = 1,
    verify_hashes: bool = True,
    device: DeviceName | None = None,
) -> Engine:
    """Load the engine in a folder.

    threads: cores to use. None: all.
    workers: batches run at the same time, which share the cores. 1 has the lowest latency, one per core the highest
        throughput. A call may ask for another number; the model is then opened once more for that number.
    verify_hashes: compare the sha256 of every file; without it only their sizes.
    device: "cpu" or "cuda". None: where engines of its target belong. On a GPU one batch runs at a time, `threads` has
        no effect, and more workers only overlap the reading and writing of text.

    Raises: UserError that says what is wrong with the folder or a file in it.
    """
    folder = Path(directory)
    Batching(workers)
    manifest = read_manifest(folder)
    check_operators(folder, manifest)
    check_kinds(manifest.results, str(folder / MANIFEST))
    check_files(folder, manifest, verify_hashes=verify_hashes)
    session = open_session(
        folder,
        manifest.inputs,
        manifest.results,
        target=manifest.target,
        decoding=manifest.decoding,
        threads=threads,
        workers=workers,
        device=device,
        plans=manifest.plans,
        files=manifest.files,
    )
    return Engine(manifest, load_tokenizer(folder, manifest), session)
