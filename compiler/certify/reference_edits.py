"""A plain implementation of the edits of scores that docs/search.md defines, for one text."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xformc.format.manifest import SampleOptions, SearchOptions

EDITED: Mapping[str, Any] = {
    "no_repeat_ngram_size": 2,
    "repetition_penalty": 1.3,
    "presence_penalty": 0.2,
    "frequency_penalty": 0.1,
}
"""The options of the stage `edits`, beside suppressed tokens."""


def edited(
    scores: NDArray[np.float32], text: Sequence[int], options: SearchOptions | SampleOptions
) -> NDArray[np.float32]:
    """The scores [vocabulary] of the tokens that may follow a text, edited; those of banned tokens are -inf."""
    found = scores.copy()
    for token, count in Counter(text).items():
        repetition = np.float32(options.repetition_penalty or 1)
        found[token] = found[token] * repetition if found[token] < 0 else found[token] / repetition
        found[token] -= np.float32(options.presence_penalty or 0) + np.float32(options.frequency_penalty or 0) * count
    found[[*(options.suppress_tokens or ()), *repeating(text, options.no_repeat_ngram_size or 0)]] = -np.inf
    return found


def biased(
    scores: NDArray[np.float32], text: Sequence[int], prefix: Sequence[int], share: float
) -> NDArray[np.float32]:
    """The log probabilities [vocabulary] after a text, without a begin token, in which the next token of the prefix has
    this share of the probability besides, if the text follows the prefix so far."""
    written = len(text)
    if not share or written >= len(prefix) or [*text] != [*prefix[:written]]:
        return scores
    found = scores + np.log(np.float32(1 - share))
    own = np.exp(scores[prefix[written]]) * np.float32(1 - share) + np.float32(share)
    found[prefix[written]] = np.log(own)
    return found


def repeating(text: Sequence[int], size: int) -> set[int]:
    """The tokens after which the text would have an n-gram of this size twice; none for 0."""
    if size == 0:
        return set()
    newest = tuple(text[len(text) - size + 1 :])
    grams = (tuple(text[start : start + size]) for start in range(len(text) - size + 1))
    return {gram[-1] for gram in grams if gram[:-1] == newest}
