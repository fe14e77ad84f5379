"""Aligns translations with their sources by the attention of the model that wrote them (docs/search.md)."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from xformc.errors import UserError
from xformc.format.abilities import ALIGNS_TEXTS
from xformc.format.interfaces import PREFIX
from xformc.format.manifest import Manifest
from xformc.format.names import ALIGNMENTS
from xformc.runtime.each import Asked
from xformc.runtime.job import Job, paired
from xformc.runtime.results import Expected
from xformc.runtime.rows import Row, stack
from xformc.runtime.searching.alignment import Alignment, linked
from xformc.runtime.searching.translate import Hypothesis, text_rows
from xformc.runtime.session import Session
from xformc.runtime.text.texts import encode_line, whole_limit
from xformc.runtime.text.tokenizer import Tokenizer
from xformc.runtime.text.words import Words, written_words

SOURCE, TARGET = "source", "target"
WORDS = "words"
"""What a row has beside its inputs: the words of each token of the source, int64 [source, 2]."""


def aligning(
    job: Job[str, Row, list[Hypothesis]], manifest: Manifest, tokenizer: Tokenizer
) -> Job[str, Row, list[Hypothesis]]:
    """Return the job whose hypotheses have alignments. Raises: UserError for an engine without them."""
    manifest.require(ALIGNS_TEXTS)
    with_words = partial(_with_words, tokenizer=tokenizer, tail=len(manifest.inputs[SOURCE].special.after))

    def run(session: Session, rows: Sequence[Row]) -> list[list[Hypothesis]]:
        found = job.run(session, rows)
        tokens = [[one.tokens for one in several] for several in found]
        words = [[written_words(partial(tokenizer.decode, TARGET), ids) for ids in several] for several in tokens]
        links = iter(_align(session, rows, tokens, words, manifest))
        return [[replace(one, alignment=next(links)) for one in several] for several in found]

    def encode(line: int, item: str | Asked[str]) -> Row:
        text = item.item if isinstance(item, Asked) else item
        return with_words(cast(Any, job).encode(line, item), text)

    return Job(encode, job.size, run)


def alignments(
    manifest: Manifest, tokenizer: Tokenizer, max_batch_tokens: int, *, truncate: bool
) -> Job[tuple[str, str], Row, Alignment]:
    """Return the job that aligns given pairs of texts. Raises: UserError for an engine without alignments."""
    manifest.require(ALIGNS_TEXTS)
    limits = {name: whole_limit(manifest.inputs[name].longest, max_batch_tokens) for name in (SOURCE, TARGET)}
    tails = {name: len(manifest.inputs[name].special.after) for name in limits}

    def encode(line: int, pair: tuple[str, str]) -> Row:
        ids = {
            name: encode_line(
                line,
                text,
                encode=partial(tokenizer.encode, name),
                limit=limits[name],
                truncate=truncate,
                tail=tails[name],
            )
            for name, text in zip(limits, pair, strict=True)
        }
        row = _with_words({SOURCE: np.array(ids[SOURCE], np.int64)}, pair[0], tokenizer, tails[SOURCE])
        words = np.array(_cut(tokenizer.words(TARGET, pair[1]), len(ids[TARGET]), tails[TARGET]), np.int64)
        return {**row, PREFIX: np.array(ids[TARGET], np.int64), _TARGET_WORDS: words}

    def run(session: Session, rows: Sequence[Row]) -> list[Alignment]:
        words = [[[(int(first), int(last)) for first, last in row[_TARGET_WORDS]]] for row in rows]
        return _align(session, rows, [[row[PREFIX].tolist()] for row in rows], words, manifest)

    return Job(encode, lambda row: max(len(row[SOURCE]), len(row[PREFIX])), run)


def pairs_to_align(sources: Iterable[str], targets: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Return each source with its translation. Raises: UserError for a text alone, and at the first that is one."""
    if isinstance(sources, str) or isinstance(targets, str):
        raise UserError("lists of texts are needed, not one text", hint="put the text in a list: [text]")
    return paired(sources, targets, none="is no translation", several="translations", one="one")


_TARGET_WORDS = "target words"


def _with_words(row: Row, text: str, tokenizer: Tokenizer, tail: int) -> Row:
    """Return the row with the words of its source, which is `text`."""
    return {**row, WORDS: np.array(_cut(tokenizer.words(SOURCE, text), len(row[SOURCE]), tail), np.int64)}


def _cut(words: Sequence[Words], count: int, tail: int) -> list[Words]:
    """Return the words of a text that may have been cut to `count` tokens before its last `tail`."""
    return [*words] if len(words) <= count else [*words[: count - tail], *words[len(words) - tail :]]


def _align(
    session: Session,
    rows: Sequence[Row],
    texts: Sequence[Sequence[Sequence[int]]],
    words: Sequence[Sequence[Sequence[Words]]],
    manifest: Manifest,
) -> list[Alignment]:
    """Return the alignment of each text of each row, one after the other: their tokens, and the words of each token."""
    every = [(row, spelled) for row, several in zip(rows, words, strict=True) for spelled in several]
    read = text_rows(TARGET, session.vocabularies.written, rows, texts)
    both = [bool(spelled) and len(row[SOURCE]) > 0 for row, spelled in every]
    some = [row for row, filled in zip(read, both, strict=True) if filled]
    found = iter(_attention(session, some, manifest) if some else ())
    return [
        linked(row[WORDS].tolist(), spelled, next(found) if filled else np.zeros((len(spelled), 0), np.float32))
        for (row, spelled), filled in zip(every, both, strict=True)
    ]


def _attention(session: Session, rows: Sequence[Row], manifest: Manifest) -> Iterator[NDArray[np.float32]]:
    """Yield the weights of each row, which has the source and what the decoder reads, [target, source]."""
    model = session.beside(ALIGNMENTS)
    assert model is not None, "the engine has no alignments"
    feeds = stack(manifest.inputs, rows)
    shape = len(rows), feeds[TARGET].shape[1], feeds[SOURCE].shape[1]
    (weights,) = model.run(feeds, [Expected(np.float32, shape)])
    for row, found in zip(rows, weights, strict=True):
        yield found[: len(row[TARGET]), : len(row[SOURCE])]
