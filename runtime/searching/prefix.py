"""Texts that begin with given tokens: the prefixes of a search, and whole texts, whose scores are wanted."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from xformc.errors import UserError
from xformc.format.abilities import SCORES_TEXTS, TAKES_PREFIXES
from xformc.format.interfaces import PREFIX
from xformc.format.manifest import Manifest
from xformc.format.targets import BUILD_FOR_CPUS
from xformc.runtime.job import Job, paired
from xformc.runtime.rows import Row
from xformc.runtime.searching.translate import Hypothesis
from xformc.runtime.session import Session
from xformc.runtime.text.texts import scored_limit
from xformc.runtime.text.tokenizer import Tokenizer

Item = TypeVar("Item")
Result = TypeVar("Result")

Prefix = str | Sequence[int]
"""What a text begins with: text, or token ids."""


def begin_with(
    job: Job[Item, Row, Result],
    items: Iterable[Item],
    prefixes: str | Iterable[Prefix],
    *,
    manifest: Manifest,
    tokenizer: Tokenizer | None,
    whole: bool = False,
) -> tuple[Job[tuple[Item, Prefix], Row, Result], Iterator[tuple[Item, Prefix]]]:
    """Return the job for items with their prefixes, and these; a single text is the prefix of all items.

    whole: the prefixes are whole texts, so that the end token follows them.

    Raises: UserError for an engine without prefixes, and, when it is read, for a prefix that does not fit.
    """
    encode = prefix_encoder(manifest, tokenizer, whole=whole)
    if isinstance(items, str):
        raise UserError("a list of texts is needed, not one text", hint="put the text in a list: [text]")

    def encode_pair(line: int, pair: tuple[Item, Prefix]) -> Row:
        item, prefix = pair
        return {**job.encode(line, item), PREFIX: encode(line, prefix)}

    return Job(encode_pair, job.size, job.run), _pairs(items, prefixes)


def check_scores(manifest: Manifest) -> None:
    """Raises: UserError for an engine that cannot score given texts."""
    if manifest.decoding == "forward":
        message = f"{manifest.name} writes no text, so it has no scores of texts"
        raise UserError(message, hint="scores need an engine that writes text")
    if not manifest.can(SCORES_TEXTS if manifest.decoding == "sample" else TAKES_PREFIXES):
        raise UserError(f"{manifest.name} cannot score given texts", hint=BUILD_FOR_CPUS)


def scores_of(
    run: Callable[[Session, Sequence[Row]], Sequence[list[Hypothesis]]], session: Session, rows: Sequence[Row]
) -> list[Hypothesis]:
    """Return the hypothesis that each row's whole text is; `run` searches.

    A row that is not searched for has the empty text with certainty, and no other.
    """
    scored: list[Hypothesis] = []
    for row, (best, *_) in zip(rows, run(session, rows), strict=True):
        impossible = not best.tokens and [int(one) for one in row[PREFIX]] != [session.vocabularies.written.last]
        scored.append(replace(best, score=-np.inf) if impossible else best)
    return scored


def _pairs(items: Iterable[Item], prefixes: str | Iterable[Prefix]) -> Iterator[tuple[Item, Prefix]]:
    if isinstance(prefixes, str):
        return ((item, prefixes) for item in items)
    return paired(items, prefixes, none="is no prefix", several="prefixes", one="one")


def prefix_encoder(
    manifest: Manifest, tokenizer: Tokenizer | None, *, whole: bool
) -> Callable[[int, Prefix], NDArray[np.int64]]:
    """Return the function from a prefix, or a whole text, and its line to its ids; it raises UserError for a wrong one.

    Raises: UserError for an engine without prefixes.
    """
    if not (whole and manifest.can(SCORES_TEXTS)):
        manifest.require(TAKES_PREFIXES)
    name = manifest.written
    written = manifest.inputs[name]
    special, most = written.special, scored_limit(written.longest).tokens
    what = "text" if whole else "prefix"

    def encode(line: int, prefix: Prefix) -> NDArray[np.int64]:
        place = f"line {line}"
        if not isinstance(prefix, str):
            try:
                ids = [int(one) for one in prefix]
            except (TypeError, ValueError) as error:
                raise UserError(f"a {what} is a text, or token ids, not {prefix!r}", place=place) from error
            if not all(0 <= one < written.pieces and one != special.pad for one in ids):
                but = f" and not {special.pad}, which is padding"
                raise UserError(f"the ids of a {what} must be from 0 to {written.pieces - 1}{but}", place=place)
            if any(end in ids[:-1] for end in special.end):
                ends = ", ".join(map(str, special.end))
                raise UserError(f"the end token, {ends}, may only be the last of a {what}", place=place)
        elif tokenizer is None or name not in tokenizer.vocabularies:
            raise UserError(
                "the engine has no tokenizer for its text", place=place, hint=f"give each {what} as token ids"
            )
        else:
            try:
                ids = (tokenizer.encode if whole else tokenizer.encode_open)(name, prefix)
            except UnicodeError as error:
                raise UserError("not valid Unicode text", place=place) from error
        if len(ids) > most:
            verb = "takes" if written.longest is None else "writes"
            raise UserError(f"the {what} has {len(ids):,} tokens; this engine {verb} at most {most:,}", place=place)
        return np.array(ids, np.int64)

    return encode
