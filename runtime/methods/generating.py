"""Continuations of prompts: whole, in streams, or with the texts of others in one batch."""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, Unpack

from xformc.errors import UserError, refuse_together
from xformc.format.abilities import REFILLS, STREAMS
from xformc.format.manifest import SampleOptions
from xformc.runtime.constraints.given import spelled_text
from xformc.runtime.each import asked, values_of
from xformc.runtime.generation.constrain import Allowed, Constraint, constrain_by, constrain_by_grammar
from xformc.runtime.generation.draft import Speculation, speculation
from xformc.runtime.generation.generate import (
    Continuation,
    Prompt,
    check_seed,
    continuation_needs,
    continue_prompts,
    encode_prompt,
    prompts_with_own,
)
from xformc.runtime.generation.sampling import (
    GenerationArguments,
    PromptArguments,
    SampleArguments,
    resolve_sample_options,
)
from xformc.runtime.generation.steer import PLAIN, Steering, continue_each
from xformc.runtime.generation.stops import NO_STOPS, Stops, checked_stops
from xformc.runtime.generation.token_calls import TokenCalls
from xformc.runtime.generation.token_stream import TokenStream, open_stream
from xformc.runtime.job import Job
from xformc.runtime.methods.loaded import Loaded, refuse_idle, with_own
from xformc.runtime.score import with_added_scores
from xformc.runtime.searching.beams import refuse_beside_search, sampling_alone, searched_prompts, searches
from xformc.runtime.serving.batch_server import Seats
from xformc.runtime.serving.continuations import Server
from xformc.runtime.stream import MAX_BATCH_TOKENS, Batching
from xformc.runtime.text.texts import prompt_limit

Item = TypeVar("Item")
Result = TypeVar("Result")


class Generating(Loaded):
    """Methods of language models."""

    def generate(  # noqa: PLR0913 (each is an option)
        self,
        prompts: Sequence[str],
        *,
        seed: int | Sequence[int] = 0,
        workers: int | None = None,
        max_batch_tokens: int = MAX_BATCH_TOKENS,
        truncate: bool = False,
        token_scores: bool = False,
        draft: "Generating | str | None" = None,
        draft_tokens: int | None = None,
        regex: str | None = None,
        json_schema: Mapping[str, Any] | str | None = None,
        allowed: Allowed | None = None,
        stop: Sequence[str] | None = None,
        each: Iterable[PromptArguments] | None = None,
        slots: int | None = None,
        **options: Unpack[GenerationArguments],
    ) -> list[Continuation]:
        """Continue prompts with a language model. An empty prompt starts a text from nothing.

        With `beam_size`, continuations are searched for instead of sampled. The best one of each prompt is returned;
        with `n_best` above 1 it has the next best ones as `others`.

        Returns: the continuation of each prompt, in order.

        seed: the random seed of the first prompt; the second has seed + 1, and so on; or a list with the seed of each.
            A continuation depends on its prompt, its seed and its options, not on the other prompts.
        workers: batches run at the same time, which share the `slots`. None: the number that the engine was loaded for.
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
        stop: stop strings. A text ends before the first of them, and its last token is the one that completes it.
            Without `slots`, each prompt is continued by itself.
        each: options of each prompt, and its `seed`, which win over the other ones.
        slots: sample this many texts together, each of which makes room for the next one when it has ended (`serve`).
            None: batches whose texts begin and end together.
        options: see `SampleArguments`; of a search `BeamArguments`, `max_new_tokens` and what edits scores.

        Raises: UserError for an option out of range, a prompt that is too long, an engine without a tokenizer, or a
        draft that does not fit.
        """
        batching = Batching(workers, max_batch_tokens)
        items, shared, first = _seeded(prompts, options, seed, each)
        steered = (draft, draft_tokens, regex, json_schema, allowed, stop)
        if searches(options, seed):
            job = self._searched(batching, truncate, shared, (*steered, slots), token_scores=token_scores)
            return job.all(self.session, "generate", items, batching)
        steering, drawn = self._steering(*steered), sampling_alone(shared)
        job = self._generation(batching, first, truncate, drawn, token_scores=token_scores, steering=steering)
        if slots is None:
            return job.all(self.session, "generate", items, batching)
        idle = {**steering.given, "stop": None, "token_scores": token_scores or None}
        job.require_several("generate", prompts)
        return list(self._refilled(list(job.encoded(items)), batching, slots, drawn, steering.stops, idle))

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
        draft: "Generating | str | None" = None,
        draft_tokens: int | None = None,
        regex: str | None = None,
        json_schema: Mapping[str, Any] | str | None = None,
        allowed: Allowed | None = None,
        stop: Sequence[str] | None = None,
        each: Iterable[PromptArguments] | None = None,
        slots: int | None = None,
        **options: Unpack[GenerationArguments],
    ) -> Generator[Continuation]:
        """Continue any number of prompts in constant memory, and yield the results in order.

        The arguments are those of `generate` and the `window` of `translate_stream`.
        """
        batching = Batching(workers, max_batch_tokens, window)
        items, shared, first = _seeded(prompts, options, seed, each)
        steered = (draft, draft_tokens, regex, json_schema, allowed, stop)
        if searches(options, seed):
            job = self._searched(batching, truncate, shared, (*steered, slots), token_scores=token_scores)
            return job.stream(self.session, items, batching)
        steering, drawn = self._steering(*steered), sampling_alone(shared)
        job = self._generation(batching, first, truncate, drawn, token_scores=token_scores, steering=steering)
        if slots is None:
            return job.stream(self.session, items, batching)
        idle = {**steering.given, "stop": None, "token_scores": token_scores or None}
        return self._refilled(job.encoded(items), batching, slots, drawn, steering.stops, idle)

    def stream_tokens(  # noqa: PLR0913 (each is an option)
        self,
        prompt: str,
        *,
        seed: int = 0,
        tokens_at_once: int = 1,
        max_batch_tokens: int = MAX_BATCH_TOKENS,
        truncate: bool = False,
        draft: "Generating | str | None" = None,
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

    def _continuations(
        self, seats: Seats, batching: Batching, truncate: bool, options: SampleArguments, stops: Stops = NO_STOPS
    ) -> Server:
        """Open a server of continuations: see `serve`."""
        job = self._generation(batching, 0, truncate, options, token_scores=False)
        resolved = resolve_sample_options(self.manifest, options, self._pieces())
        decode = partial(self.tokenizer_of(self.manifest.written).decode, self.manifest.written)

        def encode(prompt: str, seed: int, own: SampleArguments) -> Prompt:
            (item,) = asked([prompt], {}, [own]) if own else [prompt]
            (encoded,) = job.encoded([item])
            return replace(encoded, seed=check_seed(seed))

        return Server(self.session, self.manifest, resolved, encode, decode, seats, stops=stops)

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

        def resolve_own(given: Mapping[str, Any]) -> SampleOptions:
            searches(given, 0)
            return resolve(sampling_alone({**options, **given}))

        own = values_of(manifest, resolve_own)
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

    def _searched(
        self,
        batching: Batching,
        truncate: bool,
        options: GenerationArguments,
        beside: tuple[object, ...],
        *,
        token_scores: bool,
    ) -> Job[Any, Prompt, Continuation]:
        """Search for continuations. A batch has room for a full beam of each. `beside` are those of _SAMPLED."""
        refuse_beside_search(dict(zip(_SAMPLED, beside, strict=True)))
        self._check_method("generate", "generate")
        tokenizer, name = self._tokenizer(self.manifest.inputs), self.manifest.written
        limit = prompt_limit(self.manifest.inputs[name].longest, batching.max_batch_tokens)
        encode = partial(encode_prompt, name=name, tokenizer=tokenizer, seed=0, limit=limit, truncate=truncate)
        job = searched_prompts(encode, options, manifest=self.manifest, tokenizer=tokenizer, pieces=self._pieces())
        return replace(job, run=with_added_scores(job.run, self._with_scores())) if token_scores else job

    def _speculation(self, draft: "Generating | str | None", tokens: int | None) -> Speculation | None:
        if draft is None:
            if tokens is not None:
                raise UserError("draft_tokens has no effect without a draft", hint="give a draft, or leave it out")
            return None
        self._check_method("generate", "generate")
        drafting = (draft.manifest, draft.session) if isinstance(draft, Generating) else draft
        return speculation(self.manifest, drafting, tokens)

    def _token_calls(self, steering: Steering, options: SampleOptions) -> Callable[..., TokenCalls]:
        """Return the function from a session, a prompt and a number of tokens at once to the prompt's calls."""
        name = self.manifest.written
        decode = partial(self.tokenizer_of(name).decode, name)
        return partial(steering.calls, options=options, written=self.manifest.inputs[name], decode=decode)

    def _steering(
        self,
        draft: "Generating | str | None",
        draft_tokens: int | None,
        regex: str | None,
        json_schema: Mapping[str, Any] | str | None,
        allowed: Allowed | None,
        stop: Sequence[str] | None,
    ) -> Steering:
        """Return what steers the texts. Raises: UserError for what excludes each other, or what the engine has not."""
        drafting, stops = self._speculation(draft, draft_tokens), checked_stops(stop)
        given = {"regex": regex, "json_schema": json_schema, "allowed": allowed, "draft": draft}
        refuse_together({**given, "stop": bool(stops.texts) and (regex, json_schema) != (None, None)})
        constrained = (regex, json_schema, allowed) != (None, None, None)
        constraint = self._constraint(regex, json_schema, allowed) if constrained else None
        if stops.texts:
            self._check_method("generate", "generate")
            self.manifest.require(STREAMS)
        return Steering(drafting, constraint, stops)

    def _constraint(
        self, regex: str | None, json_schema: Mapping[str, Any] | str | None, allowed: Allowed | None
    ) -> Constraint:
        """Return what the texts match. Raises: UserError for an engine that has no constraints."""
        self._check_method("generate", "generate")
        self.manifest.require(STREAMS)
        text = self.manifest.inputs[self.manifest.written]
        if allowed is not None:
            return constrain_by(allowed, text.pieces)
        spelled = spelled_text(self.manifest, self.tokenizer_of(self.manifest.written))
        return constrain_by_grammar(spelled, regex=regex, json_schema=json_schema)

    def _refilled(
        self,
        prompts: Iterable[Prompt],
        batching: Batching,
        slots: int,
        options: SampleArguments,
        stops: Stops,
        idle: Mapping[str, object],
    ) -> Generator[Continuation]:
        """Yield the continuations by a server. Raises: UserError at once for arguments that it has not, `idle`."""
        refuse_idle(idle)
        self.manifest.require(REFILLS)
        seats, plain = Seats(slots, None, batching.workers), Batching(None, batching.max_batch_tokens)

        def run() -> Generator[Continuation]:
            with self._continuations(seats, plain, False, options, stops) as server:
                yield from server.in_order(map(server.submit_prompt, prompts), batching.window)

        return run()


_SAMPLED = ("draft", "draft_tokens", "regex", "json_schema", "allowed", "stop", "slots")
"""The arguments of a call that only sampling has, besides its options."""


def _seeded(
    prompts: Iterable[str],
    options: Mapping[str, Any],
    seed: int | Sequence[int],
    each: Iterable[Mapping[str, Any]] | None,
) -> tuple[Any, Any, int]:
    """Return the prompts and options as `with_own`, and the seed of the first; a list of seeds is an option."""
    if isinstance(seed, Sequence):
        return *with_own(prompts, {**options, "seed": seed}, each), 0
    return *with_own(prompts, options, each), seed
