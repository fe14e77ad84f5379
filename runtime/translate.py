"""Translations of token ids as text, batched by length."""

from dataclasses import dataclass

import numpy as np

from xformc.runtime.batches import batches_by_length
from xformc.runtime.manifest import SearchOptions
from xformc.runtime.rows import pad
from xformc.runtime.search import SearchResult, search
from xformc.runtime.session import Session
from xformc.runtime.tokenizer import Tokenizer


@dataclass(frozen=True)
class Hypothesis:
    """One translation: its text, its score (higher is better), and its token ids, with the end token."""

    text: str
    score: float
    tokens: tuple[int, ...]


def translate_ids(
    session: Session, tokenizer: Tokenizer, options: SearchOptions, batch_tokens: int, ids: list[list[int]]
) -> list[list[Hypothesis]]:
    """The hypotheses of each row of source ids, in order, best first; a row of only the end token has the text ""."""
    results = [[Hypothesis("", 0.0, ())] for _ in ids]
    filled = [index for index, row in enumerate(ids) if len(row) > 1]
    for group in batches_by_length([len(ids[index]) for index in filled], batch_tokens):
        found = search(session, pad([ids[filled[member]] for member in group]), options)
        for row, member in enumerate(group):
            results[filled[member]] = _hypotheses(tokenizer, found, row)
    return results


def _hypotheses(tokenizer: Tokenizer, found: SearchResult, row: int) -> list[Hypothesis]:
    hypotheses: list[Hypothesis] = []
    for tokens, length, score in zip(found.tokens[row], found.lengths[row], found.scores[row], strict=True):
        if score == -np.inf and hypotheses:
            break
        ids = tuple(int(identifier) for identifier in tokens[:length])
        hypotheses.append(Hypothesis(tokenizer.decode("target", ids), float(score), ids))
    return hypotheses
