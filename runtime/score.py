"""Scores given texts by the engine's model of token scores: the log probability of each token, and of the text."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from xformc.errors import UserError
from xformc.format.inputs import Input
from xformc.format.interfaces import PREFIX
from xformc.format.manifest import Manifest
from xformc.format.names import SCORES
from xformc.runtime.generation.generate import Continuation, Prompt, added_text
from xformc.runtime.results import Expected
from xformc.runtime.rows import Row, pad, row_lengths, stack
from xformc.runtime.searching.prefix import Prefix
from xformc.runtime.searching.translate import PROMPT, Hypothesis, Writer, rounded
from xformc.runtime.session import Session
from xformc.runtime.text.texts import Limit, TooLongError, encode_text, warn_of_cut
from xformc.runtime.text.tokenizer import Tokenizer

FIRST = "first"
"""What a row may have beside its inputs: the token before its text, if that is not the begin token."""

Given = tuple[Prefix, Prefix]
"""A prompt, which is empty for a whole text, and the text that follows it."""


Item = TypeVar("Item")
Result = TypeVar("Result")
Run = Callable[[Session, Sequence[Item]], Sequence[Result]]
"""The results of some rows, in order, from a session."""


def token_scores(
    session: Session, rows: Sequence[Row], texts: Sequence[Sequence[int]], engine: Writer
) -> list[NDArray[np.float32]]:
    """Return the log probability of each token of each text, given the inputs of its row, as one batch.

    A text that nothing comes before, as there is no begin token, has its first token with certainty.
    """
    scoring = session.beside(SCORES)
    assert scoring is not None, "the engine has no scores of tokens"
    found = [np.zeros(len(text), np.float32) for text in texts]
    written = str(engine.written)
    special = engine.inputs[written].special
    begun = [[int(row[FIRST])] if FIRST in row else [*special.begun] for row in rows]
    read = [[*before, *text] for before, text in zip(begun, texts, strict=True)]
    some = [index for index, ids in enumerate(read) if len(ids) > 1]
    if some:
        given = stack(engine.given, [rows[index] for index in some])
        ids = pad([read[index] for index in some], special.fill)
        expected = Expected(np.float32, (len(some), ids.shape[1] - 1))
        (scores,) = scoring.run({**given, written: ids}, [expected])
        for index, row in zip(some, scores, strict=True):
            alone = len(texts[index]) + len(begun[index]) - 1
            found[index][len(texts[index]) - alone :] = row[:alone]
    return found


def total(scores: NDArray[np.float32]) -> float:
    """Return the sum of log probabilities, added one by one in float32, as sampling adds them."""
    return float(np.cumsum(scores, dtype=np.float32)[-1]) if len(scores) else 0.0


def encode_given(
    line: int, item: Given, *, name: str, text: Input, tokenizer: Tokenizer | None, limit: Limit, truncate: bool
) -> Row:
    """Return the row of a text for the input `name`, which is `text`; see `Engine.score`.

    With `truncate`, a long prompt keeps its end, and a long text loses what is before its last token.

    Raises: UserError for a text that is too long or is not valid Unicode, and for ids that do not fit.
    """
    prompt, own = item

    def ids_of(given: Prefix, *, whole: bool = True) -> list[int]:
        if isinstance(given, str):
            if tokenizer is None:
                raise UserError("the engine has no tokenizer for its text", place=f"line {line}", hint="give token ids")
            return encode_text(line, given, partial(tokenizer.encode_alone if whole else tokenizer.encode_open, name))
        ids = [int(one) for one in given]
        if not all(0 <= one < text.pieces for one in ids):
            raise UserError(f"the ids of a text must be from 0 to {text.pieces - 1}", place=f"line {line}")
        return ids

    first = ids_of(prompt, whole=False)
    if isinstance(prompt, str) and isinstance(own, str):
        whole = ids_of(prompt + own)
        same = _in_common(first, whole)
        first, ids = whole[:same], whole[same:]
    else:
        ids = ids_of(own)
    count, most = len(first) + len(ids), limit.tokens
    if count > most:
        if not truncate:
            raise TooLongError(line, count, limit)
        warn_of_cut(line, count, most)
        first = first[count - most :]
        ids = ids if len(ids) <= most else [*ids[: most - 1], ids[-1]]
    return {PROMPT: np.array(first, np.int64), PREFIX: np.array(ids, np.int64)}


def tokens_read(row: Row, *, manifest: Manifest) -> int:
    """Return the number of tokens that the scores of a row hold: its positions, or those of its text."""
    return max(len(_text(row)), *row_lengths(manifest.given, row).values(), 1)


def score_rows(
    session: Session, rows: Sequence[Row], *, manifest: Manifest, tokenizer: Tokenizer | None
) -> list[Hypothesis]:
    """Return the text of each row, without its prompt, and its scores."""
    texts = [_text(row) for row in rows]
    every = token_scores(session, rows, texts, manifest)
    return [_scored(row, scores, manifest.written, tokenizer) for row, scores in zip(rows, every, strict=True)]


def with_token_scores(run: Run[Row, list[Hypothesis]], manifest: Manifest) -> Run[Row, list[Hypothesis]]:
    """Return the function that also scores the tokens of each hypothesis that `run` returns."""

    def scored(session: Session, rows: Sequence[Row]) -> list[list[Hypothesis]]:
        found = run(session, rows)
        repeated = [row for row, several in zip(rows, found, strict=True) for _ in several]
        texts = [one.tokens for several in found for one in several]
        scores = iter(token_scores(session, repeated, texts, manifest))
        return [[replace(one, token_scores=tuple(map(float, next(scores)))) for one in several] for several in found]

    return scored


def with_added_scores(run: Run[Prompt, Continuation], manifest: Manifest) -> Run[Prompt, Continuation]:
    """Return the function that also scores the tokens of each continuation that `run` returns."""

    def scored(session: Session, prompts: Sequence[Prompt]) -> list[Continuation]:
        found = run(session, prompts)
        pairs = [(prompt, one) for prompt, first in zip(prompts, found, strict=True) for one in (first, *first.others)]
        texts = [[*prompt.ids, *one.tokens] for prompt, one in pairs]
        every = zip(pairs, token_scores(session, [{} for _ in pairs], texts, manifest), strict=True)
        told = (
            replace(one, token_scores=tuple(map(float, scores[len(prompt.ids) :]))) for (prompt, one), scores in every
        )
        return [replace(next(told), others=tuple(next(told) for _ in one.others)) for one in found]

    return scored


def token_fields(tokenizer: Tokenizer | None, name: str, one: Hypothesis | Continuation) -> dict[str, object]:
    """Return the scores of a text's tokens for JSON, with the tokens themselves; the text is one of `name`."""
    scores = {"token_scores": [rounded(score) for score in one.token_scores]}
    if tokenizer is None or name not in tokenizer.vocabularies:
        return {**scores}
    return {"pieces": tokenizer.pieces(name, one.tokens), **scores}


def _text(row: Row) -> list[int]:
    """Return the tokens of a row's prompt and text."""
    return [int(one) for name in (PROMPT, PREFIX) for one in row.get(name, ())]


def _scored(row: Row, scores: NDArray[np.float32], name: str, tokenizer: Tokenizer | None) -> Hypothesis:
    ids, text = _text(row), ""
    before = len(ids) - len(row[PREFIX])
    if tokenizer is not None and name in tokenizer.vocabularies:
        text = added_text(partial(tokenizer.decode, name), ids[:before], ids[before:])
    own = scores[before:]
    return Hypothesis(text, total(own), tuple(ids[before:]), token_scores=tuple(map(float, own)))


def _in_common(first: Sequence[int], second: Sequence[int]) -> int:
    """Return the number of equal tokens that both begin with."""
    return next(
        (place for place, pair in enumerate(zip(first, second, strict=False)) if pair[0] != pair[1]), len(first)
    )
