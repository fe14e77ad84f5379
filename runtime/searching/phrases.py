"""Phrases that texts must have: their encoding, and their arrays for a search."""

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from xformc.errors import UserError
from xformc.format.abilities import TAKES_PHRASES
from xformc.format.interfaces import PHRASES
from xformc.format.manifest import Manifest
from xformc.runtime.job import Job, paired
from xformc.runtime.rows import Row, pad
from xformc.runtime.text.tokenizer import Tokenizer

Item = TypeVar("Item")
Result = TypeVar("Result")

Phrase = str | Sequence[int]
"""What a text must have somewhere: text, or token ids."""

NO_TOKEN = -1
MAX_TOKENS = 1_000
"""The most tokens of the phrases of a text."""


def with_phrases(
    job: Job[Item, Row, Result],
    items: Iterable[Item],
    phrases: Iterable[Sequence[Phrase]],
    *,
    manifest: Manifest,
    tokenizer: Tokenizer | None,
) -> tuple[Job[tuple[Item, Sequence[Phrase]], Row, Result], Iterable[tuple[Item, Sequence[Phrase]]]]:
    """Return the job for items with their phrases, and these.

    Raises: UserError for an engine without phrases, and, when it is read, for a phrase that does not fit.
    """
    manifest.require(TAKES_PHRASES)

    def encode(line: int, pair: tuple[Item, Sequence[Phrase]]) -> Row:
        item, wanted = pair
        row = job.encode(line, item)
        return {**row, PHRASES: encode_phrases(line, wanted, manifest=manifest, tokenizer=tokenizer)}

    if isinstance(phrases, str):
        raise UserError("a list of phrases is needed for each text, not one text", hint="phrases=[[phrase], ...]")
    pairs = paired(items, phrases, none="are no phrases", several="lists of phrases", one="a list, which may be empty,")
    return Job(encode, job.size, job.run), pairs


def encode_phrases(
    line: int, phrases: Sequence[Phrase], *, manifest: Manifest, tokenizer: Tokenizer | None
) -> NDArray[np.int64]:
    """Return the tokens of the phrases of the text on this line, [phrases, length], padded with -1, each phrase once.

    Raises: UserError for a phrase without tokens, with special ones, or if they do not fit into a text.
    """
    place, name = f"line {line}", manifest.written
    written = manifest.inputs[name]
    if isinstance(phrases, str):
        raise UserError("a list of phrases is needed for each text, not one text", place=place, hint="[phrase]")
    found: list[list[int]] = []
    for phrase in phrases:
        if not isinstance(phrase, str):
            ids = [int(one) for one in phrase]
        elif tokenizer is None or name not in tokenizer.vocabularies:
            raise UserError("the engine has no tokenizer for its text", place=place, hint="give phrases as token ids")
        else:
            try:
                ids = tokenizer.encode_open(name, phrase)
            except UnicodeError as error:
                raise UserError("not valid Unicode text", place=place) from error
            if written.special.unknown in ids:
                message = f"the phrase {phrase!r} has a character that the vocabulary lacks, so no text has it"
                raise UserError(message, place=place, hint="write it as the training text was, or leave it out")
        special = {written.special.pad, *written.special.begun, *written.special.end}
        if not ids or not all(0 <= one < written.pieces and one not in special for one in ids):
            what = "ids of the vocabulary that are not padding, begin or end"
            raise UserError(f"a phrase must be 1 or more tokens, {what}, not {phrase!r}", place=place)
        if ids not in found:
            found.append(ids)
    count = sum(map(len, found))
    most = MAX_TOKENS if written.longest is None else min(MAX_TOKENS, written.longest - 1)
    if count > most:
        raise UserError(f"the phrases have {count:,} tokens; a text of this engine has room for {most:,}", place=place)
    return pad(found, NO_TOKEN) if found else np.zeros((0, 0), np.int64)


def phrase_tokens(phrases: NDArray[np.int64] | None) -> int:
    """Return the number of tokens of the phrases of a text."""
    return 0 if phrases is None else int((phrases != NO_TOKEN).sum())


def stack_phrases(phrases: Sequence[NDArray[np.int64] | None]) -> dict[str, NDArray[Any]]:
    """Return the input of the search for the phrases of the rows of a batch; none if there are none."""
    there = [one for one in phrases if one is not None and one.size]
    if not there:
        return {}
    shape = len(phrases), max(len(one) for one in there), max(one.shape[1] for one in there)
    array = np.full(shape, NO_TOKEN, np.int64)
    for row, one in enumerate(phrases):
        if one is not None and one.size:
            array[row, : one.shape[0], : one.shape[1]] = one
    return {PHRASES: array}
