"""Samples of the texts that an engine searches for, such as translations, drawn by a model of its own."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, cast

import numpy as np

from xformc.errors import UserError
from xformc.format.abilities import SAMPLES_TEXTS
from xformc.format.interfaces import PREFIX
from xformc.format.manifest import Manifest, SampleOptions, SearchOptions
from xformc.format.names import SAMPLES
from xformc.runtime.each import rows_with_own, values_of
from xformc.runtime.generation.generate import check_seed
from xformc.runtime.generation.sampling import MAX_SAMPLES, MAX_TEMPERATURE, MAX_TOP_K
from xformc.runtime.job import Job
from xformc.runtime.options import (
    EditArguments,
    SearchArguments,
    TranslationArguments,
    checked_integer,
    checked_number,
    resolve_edits,
    resolve_options,
)
from xformc.runtime.rows import Row, row_lengths
from xformc.runtime.searching.search import LIMITS, length_limit
from xformc.runtime.searching.translate import NO_TOKENS, PROMPT, SEED, Hypothesis, drawn_tokens_needed, write_rows
from xformc.runtime.session import Session
from xformc.runtime.suppressed import Pieces
from xformc.runtime.text.tokenizer import Tokenizer

Item = TypeVar("Item")

MOST = "max_new_tokens"
FILTERS = ("temperature", "top_k", "top_p")
"""The options of samples that a search has not."""

KNOWN = (*FILTERS, *LIMITS, *EditArguments.__annotations__)
"""The options of samples. The limits of lengths and the edits of scores have the engine's defaults."""


def samples_of(
    encode: Callable[[int, Item], Row],
    arguments: TranslationArguments,
    *,
    manifest: Manifest,
    tokenizer: Tokenizer | None,
    pieces: Pieces | None,
    seed: int,
) -> Job[Item, Row, list[Hypothesis]]:
    """Return the job that samples a text for each item.

    encode: returns the row of an item. seed: that of the first item.

    Raises: UserError for an option of the search alone, and for an engine without samples.
    """
    manifest.require(SAMPLES_TEXTS)
    first = check_seed(seed)
    shared = dict(arguments)

    def resolve(own: Mapping[str, Any]) -> SampleOptions:
        return _sample_options(manifest, {**shared, **own}, pieces)

    def limits(own: Mapping[str, Any]) -> SearchOptions:
        given = {**shared, **own}
        return resolve_options(manifest, cast(Any, {name: given[name] for name in LIMITS if name in given}))

    options, usual = resolve({}), limits({})
    with_values = rows_with_own(encode, values_of(manifest, resolve))
    with_limits = rows_with_own(lambda _line, _item: {}, values_of(manifest, limits))

    def seeded(line: int, item: Any) -> Row:
        row, limit = with_values(line, item), with_limits(line, item)
        own = replace(usual, **{name: limit[name].item() for name in LIMITS if name in limit})
        most = length_limit(own, next(iter(row_lengths(manifest.given, row).values())))
        return {**row, MOST: np.array(most), SEED: np.array(first + line - 1, np.int64)}

    run = partial(_run, manifest=manifest, tokenizer=tokenizer, options=options)
    return Job(seeded, partial(drawn_tokens_needed, inputs=manifest.given, options=options), run)


def checked_samples(samples: int | None, arguments: Mapping[str, Any], seed: int) -> int | None:
    """Return the number of samples. Raises: UserError for a wrong one, and without it for what only samples have."""
    if samples is not None:
        return checked_integer("samples", samples, 1, 1, MAX_SAMPLES)
    given = {**{name: arguments.get(name) for name in FILTERS}, "seed": seed or None}
    idle = [name for name, value in given.items() if value is not None]
    if idle:
        raise UserError(f"{', '.join(idle)}: no effect on a search", hint="say how many samples to draw")
    return None


def search_alone(arguments: TranslationArguments) -> SearchArguments:
    """Return the arguments without those of samples."""
    return cast(Any, {name: value for name, value in arguments.items() if name not in FILTERS})


def _sample_options(manifest: Manifest, arguments: Mapping[str, Any], pieces: Pieces | None) -> SampleOptions:
    given = {name: value for name, value in arguments.items() if value is not None}
    idle = [name for name in given if name not in KNOWN]
    if idle:
        raise UserError(f"{', '.join(idle)}: no effect on samples", hint=f"their options are {', '.join(KNOWN)}")
    return SampleOptions(
        temperature=checked_number("temperature", given.get("temperature"), 1.0, 0.0, MAX_TEMPERATURE),
        top_k=checked_integer("top_k", given.get("top_k"), 0, 0, MAX_TOP_K),
        top_p=checked_number("top_p", given.get("top_p"), 1.0, 0.0, 1.0),
        max_new_tokens=1,  # each row has its own
        **resolve_edits(manifest, given, pieces),
    )


def _run(
    session: Session, rows: Sequence[Row], *, manifest: Manifest, tokenizer: Tokenizer | None, options: SampleOptions
) -> list[list[Hypothesis]]:
    sampler = session.beside(SAMPLES)
    assert sampler is not None, "the engine samples no texts"
    prefixes = [[int(one) for one in row.get(PREFIX, NO_TOKENS)] or [*manifest.prefix] for row in rows]
    found = write_rows(
        sampler,
        [_begun(row, prefix) for row, prefix in zip(rows, prefixes, strict=True)],
        manifest=manifest,
        tokenizer=tokenizer,
        options=options,
    )
    return [
        [_after(prefix, one, manifest.written, tokenizer) for one in several]
        for prefix, several in zip(prefixes, found, strict=True)
    ]


def _begun(row: Row, prefix: Sequence[int]) -> Row:
    """The row of a text that begins with these tokens, which count in its limit; one token follows them at least."""
    if not prefix:
        return row
    most = max(1, int(row[MOST]) - len(prefix))
    return {**row, PROMPT: np.array(prefix, np.int64), MOST: np.array(most)}


def _after(prefix: Sequence[int], one: Hypothesis, name: str, tokenizer: Tokenizer | None) -> Hypothesis:
    if not prefix or not one.tokens:
        return one
    tokens = (*prefix, *one.tokens)
    return replace(one, tokens=tokens, text=one.text if tokenizer is None else tokenizer.decode(name, tokens))
