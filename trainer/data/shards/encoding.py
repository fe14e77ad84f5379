"""Encodes chunks of text as blocks of ids."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from xformc.errors import UserError
from xformc.extras import import_extra
from xformc.format.tokens import SpecialTokens
from xformc.trainer.data.foreign_vocabulary import ForeignVocabulary, opened_vocabulary
from xformc.trainer.data.in_order import in_order
from xformc.trainer.data.shards.blocks import Block, Ids, id_type, make_blocks
from xformc.trainer.data.shards.chunks import Chunk
from xformc.trainer.data.shards.manifest import Stored
from xformc.trainer.data.text_files import Row
from xformc.trainer.data.vocabulary import Vocabulary

RATIO, COPY, NOTHING = "above the length ratio", "with equal sides", "without tokens"
LANGUAGE = "in another language"


@dataclass(frozen=True)
class Filters:
    """Which rows are dropped. longest: those with more positions, or None. max_ratio: those of which one text has more
    than this many times the tokens of another. copies: those whose texts are all the same. languages: the code of each
    column's; rows with a text in another language are dropped."""

    longest: int | None = None
    max_ratio: float | None = None
    copies: bool = False
    languages: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Job:
    """How texts become ids: the columns, the file and the special tokens of each one's vocabulary, the filters, and the
    tag of each corpus, which stands before the first text of its rows, and a space."""

    columns: Mapping[str, Stored]
    models: Mapping[str, Path]
    special: Mapping[str, SpecialTokens]
    filters: Filters
    tags: Sequence[str] = ()


@dataclass(frozen=True)
class Encoded:
    """A chunk's blocks, the tokens of each column, and the number of rows dropped for each reason."""

    blocks: Sequence[Block]
    tokens: Mapping[str, int]
    dropped: Mapping[str, int]


class Encoder:
    """Encodes chunks of rows, each a text for each column."""

    def __init__(self, job: Job) -> None:
        self._job = job
        loaded = {
            (job.models[name], job.special[name]): opened_vocabulary(job.models[name], column.size, job.special[name])
            for name, column in job.columns.items()
        }
        encoders = {key: _encoder(vocabulary) for key, vocabulary in loaded.items()}
        self._encoders = [encoders[job.models[name], job.special[name]] for name in job.columns]
        self._language = None if job.filters.languages is None else language_of()
        self._kind = id_type(max(column.size for column in job.columns.values()))

    def __call__(self, chunk: Chunk) -> Encoded:
        """Return the blocks of a chunk."""
        rows: Sequence[Row] = chunk.rows
        filters, dropped = self._job.filters, Counter[str]()
        if filters.copies:
            chosen = [row for row in rows if any(text != row[0] for text in row[1:])]
            dropped[COPY], rows = len(rows) - len(chosen), chosen
        if filters.languages is not None and self._language is not None:
            wanted, language = filters.languages, self._language
            chosen = [row for row in rows if tuple(map(language, row)) == wanted]
            dropped[LANGUAGE], rows = len(rows) - len(chosen), chosen
        if self._job.tags and (tag := self._job.tags[chunk.corpus]):
            rows = [(f"{tag} {row[0]}", *row[1:]) for row in rows]
        columns = [encode([row[index] for row in rows]) for index, encode in enumerate(self._encoders)]
        kept = list[tuple[Ids, ...]]()
        affixes = [(list(column.before), list(column.after)) for column in self._job.columns.values()]
        for texts in zip(*columns, strict=True):
            lengths = list(map(len, texts))
            if filters.longest is not None and max(lengths) >= filters.longest:  # with a begin or an end token
                dropped[f"longer than {filters.longest} positions"] += 1
            elif filters.max_ratio is not None and max(lengths) > filters.max_ratio * max(1, min(lengths)):
                dropped[RATIO] += 1
            else:
                whole = tuple([*before, *ids, *after] for ids, (before, after) in zip(texts, affixes, strict=True))
                kept += [whole] if all(whole) else []
                dropped[NOTHING] += not all(whole)
        totals = np.array([[len(ids) for ids in row] for row in kept], np.int64).reshape(-1, len(columns)).sum(0)
        tokens = dict(zip(self._job.columns, map(int, totals), strict=True))
        return Encoded(list(make_blocks(kept, self._kind)), tokens, +dropped)


def language_of() -> Callable[[str], str]:
    """What returns the code of a text's language. Raises: ModuleNotFoundError without py3langid."""
    identifier = import_extra("py3langid")
    return lambda text: str(identifier.classify(text)[0])


def check_languages(languages: Sequence[str], columns: Sequence[str]) -> None:
    """Raises: UserError unless there is a known code for each column; ModuleNotFoundError without py3langid."""
    known = sorted(str(code) for code, _ in import_extra("py3langid").rank(""))
    if len(languages) != len(columns):
        hint = f"such as {'-'.join(('en', 'de')[: len(columns)])}"
        raise UserError(f"{'-'.join(languages)} must have a language for {' and '.join(columns)}", hint=hint)
    unknown = [code for code in languages if code not in known]
    if unknown:
        raise UserError(f"unknown language {unknown[0]!r}", hint=f"the languages are {', '.join(known)}")


def _encoder(vocabulary: Vocabulary) -> Callable[[list[str]], list[list[int]]]:
    """What encodes texts; a SentencePiece model is opened once."""
    if isinstance(vocabulary, ForeignVocabulary):
        return vocabulary.encode
    return partial(vocabulary.processor().encode, out_type=int)


def encode_chunks(chunks: Iterable[Chunk], job: Job, workers: int) -> Iterator[tuple[Chunk, Encoded]]:
    """Yield each chunk with its blocks, in order; with one worker in this process.

    Raises: UserError if a process is killed.
    """
    return in_order(chunks, Encoder, job, workers)
