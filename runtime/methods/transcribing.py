"""Texts that are written for arrays, sounds, images or other texts."""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, Unpack, cast

import numpy as np

from xformc.errors import UserError
from xformc.runtime.arrays import as_rows
from xformc.runtime.constraints.automaton import timed_matching
from xformc.runtime.each import rows_with_own, values_of
from xformc.runtime.generation.generate import check_seed
from xformc.runtime.generation.sampling import MAX_SAMPLES, WritingArguments, resolve_sample_options, split_options
from xformc.runtime.job import Job, as_it_is
from xformc.runtime.methods.loaded import Loaded, with_own
from xformc.runtime.options import checked_integer
from xformc.runtime.predict import Example
from xformc.runtime.rows import Row
from xformc.runtime.score import with_token_scores
from xformc.runtime.searching.choose import sampling
from xformc.runtime.searching.prefix import Prefix
from xformc.runtime.searching.spoken import Spoken, spoken
from xformc.runtime.searching.translate import SEED, Hypothesis, drawn_tokens_needed, write_rows
from xformc.runtime.stream import MAX_BATCH_TOKENS, Batching

Item = TypeVar("Item")
Result = TypeVar("Result")


class Transcribing(Loaded):
    """Methods of engines that write text for declared inputs."""

    def transcribe(  # noqa: PLR0913 (each is an option)
        self,
        examples: Sequence[Example] | Mapping[str, Any],
        *,
        prefixes: str | Iterable[Prefix] | None = None,
        workers: int | None = None,
        max_batch_tokens: int = MAX_BATCH_TOKENS,
        truncate: bool = False,
        seed: int = 0,
        samples: int = 1,
        token_scores: bool = False,
        language: str | None = None,
        task: str | None = None,
        part: float | None = None,
        timestamps: bool = False,
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

        language, task: those of the texts of a model that knows several, such as "de" and "translate". Without a
            language, or with "auto", the model finds it in the first part of each sound; without a task, it
            transcribes.
        part: the seconds of the parts into which longer sounds are cut; by default the most that the model reads. The
            texts of the parts are joined; a hypothesis has them as `parts`.
        timestamps: write the times of the text, of a model that knows them: the parts of a hypothesis are its segments,
            and the next part of a longer sound begins where the text of one ends.

        The other arguments are those of `translate` or, with `seed`, those of `generate`: an engine either searches or
        samples, as its spec says.

        Raises: UserError for an example that does not fit the engine's inputs, or an option out of range.
        """
        self._check_method("transcribe", "transcribe")
        batching, (given, arrays) = Batching(workers, max_batch_tokens), self._examples(examples)
        items, shared = with_own(given, options, each)
        reader = as_it_is if arrays else self._reader(batching, truncate)
        writing = self._writing(reader, shared, seed, samples, token_scores=token_scores, timestamps=timestamps)
        cut = self._spoken((language, task, part), prefixes, options, timestamps=timestamps)
        if cut is None:
            return self._all(writing, "transcribe", items, prefixes, batching)
        writing.require_several("transcribe", items)
        begun, pairs = self._begun(writing, items, prefixes, None, whole=False, samples=None)
        return list(cut.stream(begun, self.session, list(begun.encoded(pairs)), batching))

    def transcribe_stream(  # noqa: PLR0913 (each is an option)
        self,
        texts: Iterable[Example],
        *,
        prefixes: str | Iterable[Prefix] | None = None,
        window: int | None = None,
        workers: int | None = None,
        max_batch_tokens: int = MAX_BATCH_TOKENS,
        truncate: bool = False,
        seed: int = 0,
        samples: int = 1,
        token_scores: bool = False,
        language: str | None = None,
        task: str | None = None,
        part: float | None = None,
        timestamps: bool = False,
        each: Iterable[WritingArguments] | None = None,
        **options: Unpack[WritingArguments],
    ) -> Generator[list[Hypothesis]]:
        """Write text for any number of texts in constant memory, and yield the results in order.

        The arguments are those of `transcribe` and the `window` of `translate_stream`.
        """
        self._check_method("transcribe", "transcribe")
        batching, (items, shared) = Batching(workers, max_batch_tokens, window), with_own(texts, options, each)
        scores: dict[str, bool] = {"token_scores": token_scores, "timestamps": timestamps}
        writing = self._writing(self._reader(batching, truncate), shared, seed, samples, **scores)
        cut = self._spoken((language, task, part), prefixes, options, timestamps=timestamps)
        if cut is None:
            return self._stream(writing, items, prefixes, batching)
        begun, pairs = self._begun(writing, items, prefixes, None, whole=False, samples=None)
        return cut.stream(begun, self.session, begun.encoded(pairs), batching)

    def _spoken(
        self,
        asked: tuple[str | None, str | None, float | None],
        prefixes: object,
        options: WritingArguments,
        *,
        timestamps: bool,
    ) -> Spoken | None:
        """How sounds are cut and begun; None for an engine without speech."""
        begun, n_best = prefixes is not None, options.get("n_best")
        decode = self._text_of if timestamps else None
        return spoken(self.manifest, self.session, asked, decode=decode, begun=begun, n_best=n_best)

    def _text_of(self, tokens: Sequence[int]) -> str:
        """The text of tokens; "" without a tokenizer."""
        name = self.manifest.written
        known = self.tokenizer is not None and name in self.tokenizer.vocabularies
        return self.tokenizer.decode(name, tokens) if self.tokenizer is not None and known else ""

    def transcribe_rows(
        self, rows: Sequence[Row], *, seed: int = 0, **options: Unpack[WritingArguments]
    ) -> list[list[Hypothesis]]:
        """Write text for rows of the engine's inputs. The options are those of `transcribe`. Raises: UserError as
        `as_rows`, and for options out of range."""
        job, batching = self._writing(as_it_is, options, seed), Batching(None, MAX_BATCH_TOKENS)
        return job.all(self.session, "transcribe", as_rows(self.manifest.given, rows), batching)

    def _writing(
        self,
        encode: Callable[[int, Item], Row],
        options: WritingArguments,
        seed: int,
        samples: int = 1,
        *,
        token_scores: bool = False,
        timestamps: bool = False,
    ) -> Job[Item, Any, list[Hypothesis]]:
        self._check_method("transcribe", "transcribe")
        if timestamps and token_scores:
            raise UserError("timestamps exclude token_scores", hint="leave out one")
        several = checked_integer("samples", samples, 1, 1, MAX_SAMPLES)
        searching, sampled = split_options(self.manifest, options, seed, several)
        if self.manifest.decoding == "search":
            timed = timed_matching(self.manifest.inputs[self.manifest.written]) if timestamps else None
            return self._search_of(encode, searching, token_scores=token_scores, constraint=timed)
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
