"""The engine: text in, translations with scores out; the search itself runs inside its ONNX model."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from xformc.errors import UserError
from xformc.runtime.batches import batches_by_length
from xformc.runtime.manifest import Manifest, check_files, read_manifest
from xformc.runtime.options import SearchArguments, SearchOptions, resolve_options
from xformc.runtime.session import SearchResult, Session, check_source
from xformc.runtime.tokenizer import Tokenizer, load_tokenizer

BATCH_TOKENS = 2048
WINDOW = 1024
MAX_SOURCE_TOKENS = 1024

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Hypothesis:
    """One translation: its text, its score (higher is better), and its token ids, with the end token."""

    text: str
    score: float
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class Engine:
    """A loaded engine, made by `load`. It holds no state of a call and may be shared between threads."""

    manifest: Manifest
    tokenizer: Tokenizer | None
    session: Session

    @property
    def max_source_tokens(self) -> int:
        """The most tokens that a text may have, the end token included: the model's bound, or else 1024."""
        return self.manifest.max_source_length or MAX_SOURCE_TOKENS

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
        `batch_tokens` source tokens with padding at a time; that changes the speed, not the result. A text of
        more than `max_source_tokens` is an error, or with `truncate` it is cut, and a warning logged.
        The `options` are described in `SearchArguments`.

        Raises: UserError for an option out of range, a text that is too long, an engine without a tokenizer.
        """
        if isinstance(texts, str):
            raise UserError("translate takes a list of texts, not one text", hint="engine.translate([text])")
        return list(
            self.translate_stream(
                texts, window=max(1, len(texts)), batch_tokens=batch_tokens, truncate=truncate, **options
            )
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
        resolved = resolve_options(self.manifest, options)
        if self.tokenizer is None:
            raise UserError(
                f"the engine {self.manifest.name} has no tokenizer: it was built with fresh weights",
                hint="build it from a trained run: xformc build SPEC --weights RUN",
            )
        for name, value in (("window", window), ("batch_tokens", batch_tokens)):
            if value < 1:
                raise UserError(f"{name} must be 1 or more, not {value}")
        return self._windows(self.tokenizer, iter(texts), window, batch_tokens, truncate, resolved)

    def search(
        self, source: NDArray[np.int64] | Sequence[Sequence[int]], **options: Unpack[SearchArguments]
    ) -> SearchResult:
        """Search on token ids: `source` is [batch, source], rows ended by the end token, then padded with 0.

        Raises: UserError for an option out of range or ids that are not as described.
        """
        resolved = resolve_options(self.manifest, options)
        array = check_source(source, self.manifest.source_vocabulary)
        bound = self.manifest.max_source_length
        if bound is not None and array.shape[1] > bound:
            raise UserError(f"the source has {array.shape[1]} tokens, and this engine takes at most {bound}")
        return self.session.run(array, resolved)

    def _windows(
        self,
        tokenizer: Tokenizer,
        texts: Iterator[str],
        window: int,
        batch_tokens: int,
        truncate: bool,
        options: SearchOptions,
    ) -> Iterator[list[Hypothesis]]:
        encoded = (self._encode(tokenizer, text, line, truncate) for line, text in enumerate(texts, start=1))
        while ids := list(islice(encoded, window)):
            yield from self._translate_ids(tokenizer, ids, batch_tokens, options)

    def _encode(self, tokenizer: Tokenizer, text: str, line: int, truncate: bool) -> list[int]:
        try:
            ids = tokenizer.encode(text)
        except UnicodeError as error:
            raise UserError("not valid Unicode text", place=f"line {line}") from error
        if len(ids) <= self.max_source_tokens:
            return ids
        if not truncate:
            raise UserError(
                f"{len(ids):,} tokens, and this engine takes at most {self.max_source_tokens:,}",
                place=f"line {line}",
                hint="split it into sentences, or cut it with --truncate (truncate=True in Python)",
            )
        logger.warning("line %d: cut from %d to %d tokens", line, len(ids), self.max_source_tokens)
        return [*ids[: self.max_source_tokens - 1], ids[-1]]

    def _translate_ids(
        self, tokenizer: Tokenizer, ids: list[list[int]], batch_tokens: int, options: SearchOptions
    ) -> list[list[Hypothesis]]:
        results = [[Hypothesis("", 0.0, ())] for _ in ids]
        filled = [index for index, row in enumerate(ids) if len(row) > 1]
        for group in batches_by_length([len(ids[index]) for index in filled], batch_tokens):
            rows = [ids[filled[member]] for member in group]
            found = self.session.run(_padded(rows), options)
            for row, member in enumerate(group):
                results[filled[member]] = _hypotheses(tokenizer, found, row)
        return results


def load(directory: Path | str, *, threads: int | None = None, verify_hashes: bool = True) -> Engine:
    """Load the engine in the folder `directory`, ready to translate on `threads` cores (None: all of them).

    `verify_hashes` reads every file once more to compare its sha256; without it only the sizes are compared.

    Raises: UserError saying what is wrong with the folder or a file in it.
    """
    folder = Path(directory)
    manifest = read_manifest(folder)
    check_files(folder, manifest, verify_hashes=verify_hashes)
    return Engine(manifest, load_tokenizer(folder, manifest), Session(folder, threads))


def _padded(rows: list[list[int]]) -> NDArray[np.int64]:
    array = np.zeros((len(rows), max(len(row) for row in rows)), np.int64)
    for index, row in enumerate(rows):
        array[index, : len(row)] = row
    return array


def _hypotheses(tokenizer: Tokenizer, found: SearchResult, row: int) -> list[Hypothesis]:
    hypotheses: list[Hypothesis] = []
    for tokens, length, score in zip(found.tokens[row], found.lengths[row], found.scores[row], strict=True):
        if score == -np.inf and hypotheses:
            break
        ids = tuple(int(identifier) for identifier in tokens[:length])
        hypotheses.append(Hypothesis(tokenizer.decode(ids), float(score), ids))
    return hypotheses
