"""Writes text for examples: the search or the sampling of an engine, from rows to hypotheses."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, isfinite
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from xformc.format.inputs import Input
from xformc.format.interfaces import PHRASES, PREFIX
from xformc.format.manifest import Manifest, SampleOptions, SearchOptions
from xformc.format.results import Result, beside_text, of_text
from xformc.format.tokens import SpecialTokens
from xformc.runtime.constraints.automaton import Matching
from xformc.runtime.each import options_in, stack_options
from xformc.runtime.generation.generate import Prompt, sample
from xformc.runtime.kinds.kind import fields_of
from xformc.runtime.options import arrays
from xformc.runtime.predict import expected_outputs, nothing_of, values_of
from xformc.runtime.results import Expected
from xformc.runtime.rows import Row, row_lengths, stack
from xformc.runtime.searching.alignment import Alignment
from xformc.runtime.searching.phrases import phrase_tokens
from xformc.runtime.searching.search import LIMITS, SearchResult, length_limit, search
from xformc.runtime.session import Session
from xformc.runtime.text.tokenizer import Tokenizer

PROMPT, SEED = "prompt", "seed"
"""What a row of an engine that samples has beside its inputs."""

NO_TOKENS = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Hypothesis:
    """One written text: its text, its score (higher is better), and its token ids, with the end token.

    results: the engine's other results, by name: of the example, or of this text if they depend on it.
    token_scores: the log probability of each token, if it was asked for.
    alignment: the links to the source, if they were asked for.
    features: the scores that `score` was made of, by name, if it is not the search's own: `own` and `rerank`.
    language: that of the sound, if the model found it. parts: those of a long sound.
    """

    text: str
    score: float
    tokens: tuple[int, ...]
    results: Mapping[str, Any] = field(default_factory=dict[str, Any])
    features: Mapping[str, float] = field(default_factory=dict[str, float])
    token_scores: tuple[float, ...] = ()
    alignment: Alignment | None = None
    language: str | None = None
    parts: tuple["Part", ...] = ()


@dataclass(frozen=True)
class Part:
    """The text of a part of a sound, and the seconds at which the part begins and ends."""

    start: float
    end: float
    text: str


class Writer(Protocol):
    """What an engine that writes text is given, and what it returns."""

    @property
    def inputs(self) -> Mapping[str, Input]:
        """Every input of the model."""
        ...

    @property
    def given(self) -> Mapping[str, Input]:
        """The inputs without the written text."""
        ...

    @property
    def results(self) -> Mapping[str, Result]:
        """Every result."""
        ...

    @property
    def written(self) -> str | None:
        """The written text."""
        ...

    @property
    def prefix(self) -> tuple[int, ...]:
        """The tokens that texts begin with, unless a call gives others."""
        ...


def tokens_needed(
    row: Row, *, inputs: Mapping[str, Input], options: SearchOptions, longest: int | None, room: int = 0
) -> int:
    """Return the maximum tokens that a search for this row holds: its positions, and a full beam of hypotheses.

    `longest` is the maximum number of tokens that the model can decode, or None; `room` what a constraint needs.
    """
    lengths = list(row_lengths(inputs, row).values())
    limits = {name: row[name].item() for name in LIMITS if name in row}
    own = replace(options, **limits) if limits else options
    begun = len(row.get(PREFIX, ()))
    limit = max(length_limit(own, lengths[0] if lengths else 0), begun, begun + room)
    limit = max(limit, begun + phrase_tokens(row.get(PHRASES)) + 1) if PHRASES in row else limit
    return max(lengths, default=1) + options.beam_size * (limit if longest is None else min(limit, longest))


def drawn_tokens_needed(row: Row, *, inputs: Mapping[str, Input], options: SampleOptions) -> int:
    """Return the maximum tokens that sampling for this row holds: its positions, and those of its text."""
    new = int(row.get("max_new_tokens", options.max_new_tokens))
    return max(len(row.get(PROMPT, ())), *row_lengths(inputs, row).values(), 1) + new


def write_rows(
    session: Session,
    rows: Sequence[Row],
    *,
    manifest: Manifest,
    tokenizer: Tokenizer | None,
    options: SearchOptions | SampleOptions,
    constraint: Matching | None = None,
) -> list[list[Hypothesis]]:
    """Return the hypotheses of each row, best first; a row of which nothing `is_filled` gets an empty text."""
    given, written = manifest.given, manifest.written
    beside = beside_text(manifest.results)
    nothing = nothing_of({name: result for name, result in manifest.results.items() if name != written}, tokenizer)
    results = [[Hypothesis("", 0.0, (), nothing)] for _ in rows]
    filled = [index for index, row in enumerate(rows) if is_filled(given, row)]
    if filled:
        some = [rows[index] for index in filled]
        if isinstance(options, SampleOptions):
            found = sample_rows(session, some, manifest, options)
        else:
            found = search_rows(session, some, manifest, options, constraint=constraint)
        for row, index in enumerate(filled):
            heads = values_of(beside, found.others, row, row_lengths(given, rows[index]), tokenizer) if beside else {}
            results[index] = hypotheses_of(tokenizer, written, found, row, heads)
        if session.of_text is not None:
            texts = [[one.tokens for one in results[index]] for index in filled]
            told = text_rows(written, session.vocabularies.written, some, texts)
            values = iter(_values_of_text(session.of_text, told, manifest, tokenizer))
            for index in filled:
                results[index] = [replace(one, results={**one.results, **next(values)}) for one in results[index]]
    return results


def is_filled(given: Mapping[str, Input], row: Row) -> bool:
    """Return whether the inputs of a row have anything to write about: all of them positions, and one of them more than
    an end token."""
    lengths = row_lengths(given, row)
    if not all(lengths.values()):
        return False
    values = any(item.kind == "values" for item in given.values())
    return values or not lengths or any(number >= given[name].least for name, number in lengths.items())


def hypotheses_of(
    tokenizer: Tokenizer | None, written: str, found: SearchResult, row: int, heads: Mapping[str, Any]
) -> list[Hypothesis]:
    """Return the hypotheses of a row, best first, with the other results of the row."""
    hypotheses: list[Hypothesis] = []
    for rank, score in enumerate(found.scores[row].tolist()):
        if score == -inf and hypotheses:
            break
        ids, text = found.text(row, rank), ""
        if tokenizer is not None and written in tokenizer.vocabularies:
            text = tokenizer.decode(written, ids)
        hypotheses.append(Hypothesis(text, score, ids, heads))
    return hypotheses


def fields_of_text(
    results: Mapping[str, Result],
    hypotheses: Sequence[Hypothesis],
    more: Callable[[Hypothesis], dict[str, object]] = lambda _: {},
) -> dict[str, object]:
    """Return the hypotheses of a row and its other results for JSON, with `more` of each hypothesis."""
    own = of_text(results)
    found = [{**text_fields(one), **more(one), **fields_of(own, one.results)} for one in hypotheses]
    return {"hypotheses": found, **fields_of(beside_text(results), hypotheses[0].results)}


def text_fields(one: Hypothesis) -> dict[str, object]:
    """Return the text, the score and the features of a hypothesis for JSON."""
    features = {name: rounded(value) for name, value in one.features.items()}
    spoken: dict[str, object] = {} if one.language is None else {"language": one.language}
    if one.parts:
        spoken["parts"] = [
            {"start": round(part.start, 3), "end": round(part.end, 3), "text": part.text} for part in one.parts
        ]
    return {"text": one.text, "score": rounded(one.score), **({"features": features} if features else {}), **spoken}


def rounded(score: float) -> float | None:
    """Return a score for JSON, which has no infinite numbers."""
    return round(score, 6) if isfinite(score) else None


def text_rows(
    written: str, special: SpecialTokens, rows: Sequence[Row], texts: Iterable[Sequence[Sequence[int]]]
) -> list[Row]:
    """Return a row for each text of each row: its inputs, and what the decoder had read before its last token."""
    return [
        {**row, written: np.array([*special.begun, *row.get(PROMPT, ()), *tokens[:-1]], np.int64)}
        for row, several in zip(rows, texts, strict=True)
        for tokens in several
    ]


def results_of_text(session: Session, rows: Sequence[Row], engine: Writer) -> dict[str, NDArray[Any]]:
    """Return the outputs of the results that depend on the written text, for rows with that text, as one batch."""
    feeds, results = stack(engine.inputs, rows), of_text(engine.results)
    names = [name for result in results.values() for name in result.outputs]
    return dict(zip(names, session.run(feeds, expected_outputs(results, feeds)), strict=True))


def _values_of_text(
    session: Session, rows: Sequence[Row], manifest: Manifest, tokenizer: Tokenizer | None
) -> list[dict[str, Any]]:
    outputs, results = results_of_text(session, rows, manifest), of_text(manifest.results)
    return [
        values_of(results, outputs, place, row_lengths(manifest.inputs, row), tokenizer)
        for place, row in enumerate(rows)
    ]


def search_rows(
    session: Session,
    rows: Sequence[Row],
    engine: Writer,
    options: SearchOptions,
    end: Sequence[int] = (),
    constraint: Matching | None = None,
) -> SearchResult:
    """Search for rows of the engine's inputs, as one batch; `end` are the end tokens, if not the engine's.

    `constraint` is what the texts match; START is the first state of a row, if it has its own.

    PREFIX are the token ids that a row's text begins with, if there are any. A row may have options of its own.
    """
    feeds, vocabulary = stack(engine.given, rows), engine.inputs[str(engine.written)].pieces
    others, prefixes = _other_outputs(engine, feeds), [row.get(PREFIX, NO_TOKENS) for row in rows]
    each = stack_options(rows, arrays(options))
    beside: Any = {"others": others, "prefixes": prefixes, "each": each, "default": engine.prefix}
    if any(PHRASES in row for row in rows):
        beside["phrases"] = [row.get(PHRASES) for row in rows]
    if constraint is not None:
        beside |= {"automaton": constraint.arrays(rows), "room": constraint.room}
    return search(session, feeds, options, end, vocabulary=vocabulary, **beside)


def sample_rows(
    session: Session, rows: Sequence[Row], engine: Writer, options: SampleOptions, end: Sequence[int] = ()
) -> SearchResult:
    """Sample a text for rows of the engine's inputs, as one batch.

    SEED is the random seed of a row, and PROMPT the token ids that its text begins with, if there are any. A row may
    have options of its own.
    """
    feeds, vocabulary = stack(engine.given, rows), engine.inputs[str(engine.written)].pieces
    prompts = [Prompt([int(one) for one in row.get(PROMPT, ())], int(row[SEED]), options_in(row)) for row in rows]
    found = sample(session, prompts, options, end, vocabulary, given=feeds, others=_other_outputs(engine, feeds))
    return SearchResult(found.tokens[:, None], found.lengths[:, None], found.scores[:, None], found.others)


def _other_outputs(engine: Writer, feeds: Mapping[str, NDArray[Any]]) -> dict[str, Expected]:
    """Return what the outputs of the results beside the text must be, by name; the inputs are `feeds`."""
    others = beside_text(engine.results)
    names = [name for result in others.values() for name in result.outputs]
    return dict(zip(names, expected_outputs(others, feeds) if feeds else (), strict=True))
