"""The engine: text in; translations with scores, or labels with probabilities, out. All else is in its ONNX model."""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar, Unpack

import numpy as np
from numpy.typing import NDArray

from xformc.errors import UserError
from xformc.format.manifest import Manifest, check_files
from xformc.format.reader import read_manifest
from xformc.format.task_names import METHODS
from xformc.runtime.arrays import read_rows
from xformc.runtime.devices.device import DeviceName
from xformc.runtime.generate import (
    Continuation,
    Prompt,
    check_seed,
    continuation_needs,
    continue_prompts,
    encode_prompt,
)
from xformc.runtime.job import Job, as_it_is
from xformc.runtime.library import check_operators
from xformc.runtime.options import SearchArguments, resolve_options
from xformc.runtime.predict import MAX_BATCH_POSITIONS, Prediction, encode_example, positions_needed, predict_rows
from xformc.runtime.rows import Row
from xformc.runtime.sampling import SampleArguments, resolve_sample_options
from xformc.runtime.search import SearchResult, check_source, search
from xformc.runtime.session import Session
from xformc.runtime.sessions import open_session
from xformc.runtime.stream import MAX_BATCH_TOKENS, Batching
from xformc.runtime.texts import encode_line, prompt_limit, whole_limit
from xformc.runtime.tokenizer import Tokenizer, load_tokenizer
from xformc.runtime.translate import Hypothesis, tokens_needed, translate_ids

Item = TypeVar("Item")


@dataclass(frozen=True)
class Engine:
    """A loaded engine, made by `load`. It keeps no state between calls and may be shared between threads.

    Its task decides what it can do: `translate` for translation, `generate` for language_model, `predict` for
    tagging and classification. Use it as a context manager, or call `close`, to free the model's memory.
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
        workers: int | None = None,
        max_batch_tokens: int = MAX_BATCH_TOKENS,
        truncate: bool = False,
        **options: Unpack[SearchArguments],
    ) -> list[list[Hypothesis]]:
        """Translate `texts`; for each, in order, up to `n_best` hypotheses, best first.

        A text without words has the one hypothesis "". Texts are decoded together by length, `workers` batches at
        once (None: as many as the engine was loaded for). A batch needs `max_batch_tokens` at most: for each
        sentence, the tokens of the longest source, and those of each hypothesis of the beam at its length limit.
        Both change the speed and the memory, not the result. The most tokens of a text are the model's own bound;
        without one, a quarter of `max_batch_tokens`, or 4,096 if that is more. A longer text is an error, or with
        `truncate` it is cut, and a warning logged. The `options` are described in `SearchArguments`.

        Raises: UserError for an option out of range, a text that is too long, an engine without a tokenizer.
        """
        batching = Batching(workers, max_batch_tokens)
        return self._translation(batching, truncate, options).all(self.session, "translate", texts, batching)

    def translate_stream(
        self,
        texts: Iterable[str],
        *,
        window: int | None = None,
        workers: int | None = None,
        max_batch_tokens: int = MAX_BATCH_TOKENS,
        truncate: bool = False,
        **options: Unpack[SearchArguments],
    ) -> Generator[list[Hypothesis]]:
        """Translate any number of texts in constant memory, as `translate` does, yielding results in order.

        It reads `window` texts ahead of the results (None: 1,024 for each worker), to decode those of like length
        together; 1 answers each text before the next is read. What is wrong with a text is raised in its place,
        after the results of those before it.
        """
        batching = Batching(workers, max_batch_tokens, window)
        return self._translation(batching, truncate, options).stream(self.session, texts, batching)

    def search(
        self, source: NDArray[np.int64] | Sequence[Sequence[int]], **options: Unpack[SearchArguments]
    ) -> SearchResult:
        """Search on token ids: `source` is [batch, source], rows ended by the end token, then padded with 0.

        Raises: UserError for an option out of range or ids that are not as described.
        """
        self._check_task("search", "translation")
        resolved, declared = resolve_options(self.manifest, options), self.manifest.inputs["source"]
        array = check_source(source, declared.pieces)
        if declared.longest is not None and array.shape[1] > declared.longest:
            raise UserError(f"the source has {array.shape[1]} tokens, and this engine takes at most {declared.longest}")
        return search(self.session, array, resolved)

    def generate(
        self,
        prompts: Sequence[str],
        *,
        seed: int = 0,
        workers: int | None = None,
        max_batch_tokens: int = MAX_BATCH_TOKENS,
        truncate: bool = False,
        **options: Unpack[SampleArguments],
    ) -> list[Continuation]:
        """Continue each of the prompts, in order; one without text is continued from the beginning of a text.

        The random numbers of the first prompt are those of `seed`, those of the second of `seed + 1`, and so on: a
        continuation depends on its prompt, its seed and the `options`, which `SampleArguments` describes, not on the
        other prompts. Prompts are run together by length, `workers` batches at once, each of `max_batch_tokens`
        tokens at most, those to be generated counted. The most tokens of a prompt are the model's own bound less one;
        without a bound, `max_batch_tokens`, or 16,384 if that is more. A longer prompt is an error, or with `truncate`
        only its end is read.

        Raises: UserError for an option out of range, a prompt that is too long, an engine without a tokenizer.
        """
        batching = Batching(workers, max_batch_tokens)
        return self._generation(batching, seed, truncate, options).all(self.session, "generate", prompts, batching)

    def generate_stream(
        self,
        prompts: Iterable[str],
        *,
        seed: int = 0,
        window: int | None = None,
        workers: int | None = None,
        max_batch_tokens: int = MAX_BATCH_TOKENS,
        truncate: bool = False,
        **options: Unpack[SampleArguments],
    ) -> Generator[Continuation]:
        """Continue any number of prompts in constant memory, as `generate` does, yielded in order."""
        batching = Batching(workers, max_batch_tokens, window)
        return self._generation(batching, seed, truncate, options).stream(self.session, prompts, batching)

    def predict(
        self,
        examples: Sequence[str | Sequence[str]] | Mapping[str, Any],
        *,
        workers: int | None = None,
        max_batch_tokens: int = MAX_BATCH_POSITIONS,
        truncate: bool = False,
    ) -> list[Prediction]:
        """The labels of examples, in order: of texts, or of arrays by the name of their input (docs/runtime.md).

        With several inputs of text an example is a sequence of texts, in the order of the inputs. Examples are run
        together by length, `workers` batches at once, each of `max_batch_tokens` positions at most, padding
        included; that changes the speed, not the result. `truncate` is that of `translate`.

        Raises: UserError for an example that does not fit the engine's inputs.
        """
        self._check_task("predict", "tagging", "classification")
        batching = Batching(workers, max_batch_tokens)
        if isinstance(examples, Mapping):
            rows = read_rows(self.manifest.inputs, examples)
            return self._labelling(as_it_is).all(self.session, "predict", rows, batching)
        return self._labelling(self._reader(batching, truncate)).all(self.session, "predict", examples, batching)

    def predict_stream(
        self,
        texts: Iterable[str | Sequence[str]],
        *,
        window: int | None = None,
        workers: int | None = None,
        max_batch_tokens: int = MAX_BATCH_POSITIONS,
        truncate: bool = False,
    ) -> Generator[Prediction]:
        """The labels of any number of texts in constant memory, as `predict` gives them, yielded in order."""
        self._check_task("predict", "tagging", "classification")
        batching = Batching(workers, max_batch_tokens, window)
        return self._labelling(self._reader(batching, truncate)).stream(self.session, texts, batching)

    def _translation(
        self, batching: Batching, truncate: bool, options: SearchArguments
    ) -> Job[str, list[int], list[Hypothesis]]:
        self._check_task("translate", "translation")
        resolved, tokenizer = resolve_options(self.manifest, options), self._tokenizer()
        source, target = self.manifest.inputs["source"], self.manifest.inputs["target"]
        reads, limit = partial(tokenizer.encode, "source"), whole_limit(source.longest, batching.max_batch_tokens)
        return Job(
            partial(encode_line, encode=reads, limit=limit, truncate=truncate),
            partial(tokens_needed, options=resolved, longest=target.longest),
            partial(translate_ids, tokenizer=tokenizer, options=resolved),
        )

    def _generation(
        self, batching: Batching, seed: int, truncate: bool, options: SampleArguments
    ) -> Job[str, Prompt, Continuation]:
        self._check_task("generate", "language_model")
        resolved, tokenizer = resolve_sample_options(self.manifest.sampling, options), self._tokenizer()
        limit = prompt_limit(self.manifest.inputs["text"].longest, batching.max_batch_tokens)
        return Job(
            partial(encode_prompt, tokenizer=tokenizer, seed=check_seed(seed), limit=limit, truncate=truncate),
            partial(continuation_needs, options=resolved),
            partial(continue_prompts, tokenizer=tokenizer, options=resolved),
        )

    def _labelling(self, encode: Callable[[int, Item], Row]) -> Job[Item, Row, Prediction]:
        return Job(
            encode, partial(positions_needed, manifest=self.manifest), partial(predict_rows, manifest=self.manifest)
        )

    def _reader(self, batching: Batching, truncate: bool) -> Callable[[int, str | Sequence[str]], Row]:
        return partial(
            encode_example,
            manifest=self.manifest,
            tokenizer=self._tokenizer(),
            truncate=truncate,
            max_batch_tokens=batching.max_batch_tokens,
        )

    def _check_task(self, method: str, *tasks: str) -> None:
        if self.manifest.task not in tasks:
            right = METHODS[self.manifest.task]
            raise UserError(
                f"{self.manifest.name} is a {self.manifest.task} engine; {method} needs a {' or '.join(tasks)} engine",
                hint=f"use engine.{right}(...) in Python, or xformc {right} on the command line",
            )

    def _tokenizer(self) -> Tokenizer:
        others = [name for name, item in self.manifest.inputs.items() if item.kind != "tokens"]
        if others:
            raise UserError(
                f"the engine {self.manifest.name} takes more than text: it needs {', '.join(others)}",
                hint="give it arrays: engine.predict({name: array, ...}), or xformc predict ENGINE --input FILE.npz",
            )
        if self.tokenizer is None:
            raise UserError(
                f"the engine {self.manifest.name} has no tokenizer: it was built with fresh weights",
                hint="build it from a trained run: xformc build SPEC --weights RUN",
            )
        return self.tokenizer


def load(
    directory: Path | str,
    *,
    threads: int | None = None,
    workers: int = 1,
    verify_hashes: bool = True,
    device: DeviceName | None = None,
) -> Engine:
    """Load the engine in the folder `directory`, ready to work on `threads` cores (None: all of them).

    It is made for `workers` batches at once, which share the cores: 1 answers soonest, and one for each core gives
    the most results in all. A call may ask for another number; the model is then opened once more, for that number.
    Engines of targets cuda and tensorrt run on a GPU, one batch at a time; there `threads` mean nothing, and more than
    one of the `workers` is for those who read and write text meanwhile. `device` "cpu" runs them on the processor.
    `verify_hashes` reads every file once more to compare its sha256; without it only the sizes are compared.

    Raises: UserError saying what is wrong with the folder or a file in it.
    """
    folder = Path(directory)
    Batching(workers)
    manifest = read_manifest(folder)
    check_operators(folder, manifest)
    check_files(folder, manifest, verify_hashes=verify_hashes)
    session = open_session(
        folder,
        manifest.task,
        manifest.inputs,
        target=manifest.target,
        threads=threads,
        workers=workers,
        device=device,
        plans=manifest.plans,
    )
    return Engine(manifest, load_tokenizer(folder, manifest), session)
