"""The engine: text in; translations with scores, or labels with probabilities, out. All else is in its ONNX model."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from xformc.errors import UserError
from xformc.runtime.arrays import read_rows
from xformc.runtime.formats import read_manifest
from xformc.runtime.generate import Continuation, check_seed, continue_prompts, encode_prompt
from xformc.runtime.interfaces import interface
from xformc.runtime.manifest import Manifest, check_files
from xformc.runtime.options import SearchArguments, resolve_options
from xformc.runtime.predict import Prediction, encode_example, predict_rows
from xformc.runtime.sampling import SampleArguments, resolve_sample_options
from xformc.runtime.search import SearchResult, check_source, search
from xformc.runtime.session import Session
from xformc.runtime.texts import encode_line
from xformc.runtime.tokenizer import Tokenizer, load_tokenizer
from xformc.runtime.translate import Hypothesis, translate_ids
from xformc.runtime.windows import BATCH_TOKENS, WINDOW, in_windows, positive, whole_window


@dataclass(frozen=True)
class Engine:
    """A loaded engine, made by `load`. It holds no state of a call and may be shared between threads.

    What it can do depends on its task: `translate` for translation, `generate` for language_model, `predict` for
    tagging and classification.
    """

    manifest: Manifest
    tokenizer: Tokenizer | None
    session: Session

    def translate(
        self,
        texts: Sequence[str],
        *,
        batch_tokens: int = BATCH_TOKENS,
        truncate: bool = False,
        **options: Unpack[SearchArguments],
    ) -> list[list[Hypothesis]]:
        """Translate `texts`; for each, in order, up to `n_best` hypotheses, best first.

        A text without words has the one hypothesis "". Texts are decoded together by length, up to
        `batch_tokens` source tokens with padding at a time; that changes the speed, not the result. A text with
        more tokens than the engine takes is an error, or with `truncate` it is cut, and a warning logged.
        The `options` are described in `SearchArguments`.

        Raises: UserError for an option out of range, a text that is too long, an engine without a tokenizer.
        """
        window = whole_window("translate", texts)
        return list(
            self.translate_stream(texts, window=window, batch_tokens=batch_tokens, truncate=truncate, **options)
        )

    def translate_stream(
        self,
        texts: Iterable[str],
        *,
        window: int = WINDOW,
        batch_tokens: int = BATCH_TOKENS,
        truncate: bool = False,
        **options: Unpack[SearchArguments],
    ) -> Iterator[list[Hypothesis]]:
        """Translate any number of texts in constant memory, as `translate` does, yielding results in order.

        It reads `window` texts ahead, to decode those of like length together; 1 answers each text at once.
        """
        self._check_task("translate", "translation")
        resolved, tokenizer = resolve_options(self.manifest, options), self._tokenizer()
        longest, reads = self.manifest.inputs["source"].longest, partial(tokenizer.encode, "source")
        encode = partial(encode_line, encode=reads, longest=longest, truncate=truncate)
        run = partial(translate_ids, self.session, tokenizer, resolved, batch_tokens)
        return in_windows(texts, encode, run, window, batch_tokens)

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
        batch_tokens: int = BATCH_TOKENS,
        truncate: bool = False,
        **options: Unpack[SampleArguments],
    ) -> list[Continuation]:
        """Continue each of the prompts, in order; one without text is continued from the beginning of a text.

        The random numbers of the first prompt are those of `seed`, those of the second of `seed + 1`, and so on: a
        continuation depends on its prompt, its seed and the `options`, which `SampleArguments` describes, not on the
        other prompts. Prompts are run together by length, up to `batch_tokens` tokens, those to be generated counted.
        A prompt with more tokens than the engine takes is an error, or with `truncate` only its end is read.

        Raises: UserError for an option out of range, a prompt that is too long, an engine without a tokenizer.
        """
        window = whole_window("generate", prompts)
        return list(
            self.generate_stream(
                prompts, seed=seed, window=window, batch_tokens=batch_tokens, truncate=truncate, **options
            )
        )

    def generate_stream(
        self,
        prompts: Iterable[str],
        *,
        seed: int = 0,
        window: int = WINDOW,
        batch_tokens: int = BATCH_TOKENS,
        truncate: bool = False,
        **options: Unpack[SampleArguments],
    ) -> Iterator[Continuation]:
        """Continue any number of prompts in constant memory, as `generate` does, yielded in order."""
        self._check_task("generate", "language_model")
        resolved, tokenizer = resolve_sample_options(self.manifest.sampling, options), self._tokenizer()
        longest = self.manifest.inputs["text"].longest
        encode = partial(encode_prompt, tokenizer=tokenizer, seed=check_seed(seed), longest=longest, truncate=truncate)
        run = partial(continue_prompts, self.session, tokenizer, resolved, batch_tokens)
        return in_windows(prompts, encode, run, window, batch_tokens)

    def predict(
        self,
        examples: Sequence[str | Sequence[str]] | Mapping[str, Any],
        *,
        batch_tokens: int = BATCH_TOKENS,
        truncate: bool = False,
    ) -> list[Prediction]:
        """The labels of examples, in order: of texts, or of arrays by the name of their input (docs/runtime.md).

        With several inputs of text an example is a sequence of texts, in the order of the inputs. Examples are run
        together by length, up to `batch_tokens` positions with padding at a time; that changes the speed, not the
        result. `truncate` is that of `translate`.

        Raises: UserError for an example that does not fit the engine's inputs.
        """
        if isinstance(examples, Mapping):
            self._check_task("predict", "tagging", "classification")
            rows = read_rows(self.manifest.inputs, examples)
            return predict_rows(self.session, self.manifest, positive("batch_tokens", batch_tokens), rows)
        window = whole_window("predict", examples)
        return list(self.predict_stream(examples, window=window, batch_tokens=batch_tokens, truncate=truncate))

    def predict_stream(
        self,
        texts: Iterable[str | Sequence[str]],
        *,
        window: int = WINDOW,
        batch_tokens: int = BATCH_TOKENS,
        truncate: bool = False,
    ) -> Iterator[Prediction]:
        """The labels of any number of texts in constant memory, as `predict` gives them, yielded in order."""
        self._check_task("predict", "tagging", "classification")
        tokenizer = self._tokenizer()
        encode = partial(encode_example, manifest=self.manifest, tokenizer=tokenizer, truncate=truncate)
        run = partial(predict_rows, self.session, self.manifest, batch_tokens)
        return in_windows(texts, encode, run, window, batch_tokens)

    def _check_task(self, method: str, *tasks: str) -> None:
        if self.manifest.task not in tasks:
            right = METHODS[self.manifest.task]
            raise UserError(
                f"the engine {self.manifest.name} is of {self.manifest.task}, and {method} is of {' and '.join(tasks)}",
                hint=f"engine.{right}(...) in Python, xformc {right} on the command line",
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


METHODS = {"translation": "translate", "language_model": "generate", "tagging": "predict", "classification": "predict"}
"""What an engine of each task is called with, in Python and on the command line."""


def load(directory: Path | str, *, threads: int | None = None, verify_hashes: bool = True) -> Engine:
    """Load the engine in the folder `directory`, ready to work on `threads` cores (None: all of them).

    `verify_hashes` reads every file once more to compare its sha256; without it only the sizes are compared.

    Raises: UserError saying what is wrong with the folder or a file in it.
    """
    folder = Path(directory)
    manifest = read_manifest(folder)
    check_files(folder, manifest, verify_hashes=verify_hashes)
    session = Session(folder, threads, interface(manifest.task, manifest.inputs), target=manifest.target)
    return Engine(manifest, load_tokenizer(folder, manifest), session)
