"""The alignment of a translation with its source: links of tokens and of words, from attention weights."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from xformc.runtime.text.words import Words

Link = tuple[int, int]
"""A word or token of the source, and one of the translation, counted from 0."""


@dataclass(frozen=True)
class Alignment:
    """The links of a translation and its source.

    words: pairs of words, in order; what stands between spaces is a word, also of the source as its tokenizer
        normalizes it.
    tokens: pairs of tokens: each token of the translation that is part of a word, and the token of the source, also
        part of one, at which its attention is largest.
    attention: float32 [tokens of the translation, tokens of the source]: what each token looked at when it was written,
        the mean over the heads. The end tokens are among both.
    """

    words: tuple[Link, ...]
    tokens: tuple[Link, ...]
    attention: NDArray[np.float32] = field(compare=False, repr=False)

    def __str__(self) -> str:
        """Return the links of words in Pharaoh's format, such as `0-0 1-2`."""
        return " ".join(f"{source}-{target}" for source, target in self.words)


def linked(source: Sequence[Words], target: Sequence[Words], weights: NDArray[np.float32]) -> Alignment:
    """Link each token of the translation to the token of the source with the largest weight, and the words of both."""
    choices = [index for index, (first, last) in enumerate(source) if first < last]
    written = [index for index, (first, last) in enumerate(target) if first < last]
    tokens: list[Link] = []
    if choices and written:
        best = weights[:, choices].argmax(1)
        tokens = [(choices[best[index]], index) for index in written]
    pairs = ((range(*source[left]), range(*target[right])) for left, right in tokens)
    words = {(here, there) for left, right in pairs for here in left for there in right}
    return Alignment(tuple(sorted(words)), tuple(tokens), weights)
