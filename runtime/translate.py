"""Translates token ids into text."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from xformc.format.manifest import SearchOptions
from xformc.runtime.rows import pad
from xformc.runtime.search import SearchResult, length_limit, search
from xformc.runtime.session import Session
from xformc.runtime.tokenizer import Tokenizer


@dataclass(frozen=True)
class Hypothesis:
    """One translation: its text, its score (higher is better), and its token ids, with the end token."""

    text: str
    score: float
    tokens: tuple[int, ...]


def tokens_needed(ids: Sequence[int], *, options: SearchOptions, longest: int | None) -> int:
    """Return the maximum tokens that a search of these source ids holds: the source, and a full beam of hypotheses.

    `longest` is the maximum number of tokens that the model can decode, or None.
    """
    limit = length_limit(options, len(ids))
    return len(ids) + options.beam_size * (limit if longest is None else min(limit, longest))


def translate_ids(
    session: Session, ids: Sequence[Sequence[int]], *, tokenizer: Tokenizer, options: SearchOptions, vocabulary: int
) -> list[list[Hypothesis]]:
    """Return the hypotheses of each row of source ids, best first; a row of only the end token gets an empty text.

    `vocabulary` is the number of target tokens.
    """
    results = [[Hypothesis("", 0.0, ())] for _ in ids]
    filled = [index for index, row in enumerate(ids) if len(row) > 1]
    if filled:
        found = search(session, pad([ids[index] for index in filled]), options, vocabulary=vocabulary)
        for row, index in enumerate(filled):
            results[index] = _hypotheses(tokenizer, found, row)
    return results


def _hypotheses(tokenizer: Tokenizer, found: SearchResult, row: int) -> list[Hypothesis]:
    hypotheses: list[Hypothesis] = []
    for tokens, length, score in zip(found.tokens[row], found.lengths[row], found.scores[row], strict=True):
        if score == -np.inf and hypotheses:
            break
        ids = tuple(int(identifier) for identifier in tokens[:length])
        hypotheses.append(Hypothesis(tokenizer.decode("target", ids), float(score), ids))
    return hypotheses
