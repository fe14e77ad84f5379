"""Runs the search of an engine that writes text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xformc.errors import UserError
from xformc.format.inputs import Vocabularies
from xformc.format.interfaces import END_TOKEN, PREFIX
from xformc.format.manifest import SearchOptions
from xformc.format.search_options import LENGTH_PENALTIES
from xformc.runtime.arrays import as_array
from xformc.runtime.each import Values
from xformc.runtime.options import arrays
from xformc.runtime.results import Expected, up_to
from xformc.runtime.rows import pad
from xformc.runtime.searching.phrases import phrase_tokens, stack_phrases
from xformc.runtime.session import Session


@dataclass(frozen=True)
class SearchResult:
    """The hypotheses of each source row, best first.

    tokens: [batch, n_best, length] int64, without the begin token, with the end token if one was
        generated, then 0.
    lengths: [batch, n_best] int64, the number of tokens of each, the end token included.
    scores: [batch, n_best] float32, the log probability divided by the length penalty; -inf for missing hypotheses if
        the search found fewer than n_best.
    others: the outputs of the engine's other results, by name.
    """

    tokens: NDArray[np.int64]
    lengths: NDArray[np.int64]
    scores: NDArray[np.float32]
    others: Mapping[str, NDArray[Any]] = field(default_factory=dict[str, NDArray[Any]])

    def text(self, row: int, rank: int) -> tuple[int, ...]:
        """Return the tokens of a hypothesis, without padding."""
        return tuple(self.tokens[row, rank, : self.lengths[row, rank]].tolist())

    def texts(self) -> list[list[tuple[int, ...]]]:
        """Return the tokens of the hypotheses of each row."""
        rows, ranks = self.lengths.shape
        return [[self.text(row, rank) for rank in range(ranks)] for row in range(rows)]


def search(  # noqa: PLR0913 (each is an option)
    session: Session,
    given: Mapping[str, NDArray[Any]],
    options: SearchOptions,
    end: Sequence[int] = (),
    vocabulary: int | None = None,
    *,
    others: Mapping[str, Expected] = MappingProxyType({}),
    prefixes: Sequence[Sequence[int] | NDArray[np.int64]] = (),
    each: Values = MappingProxyType({}),
    phrases: Sequence[NDArray[np.int64] | None] = (),
    default: Sequence[int] = (),
    automaton: Mapping[str, NDArray[Any]] = MappingProxyType({}),
    room: int = 0,
) -> SearchResult:
    """Write text for the inputs `given` by name, batch first, padded at the end.

    `end` are the tokens that end a text, if not those of the engine; `vocabulary`, if known, is the number of tokens.
    `others` are further outputs of the model. `prefixes`, if there are any, are the tokens that the text of each row
    begins with. `each` are options with a row for each text, which replace those of `options`.
    `phrases` are the tokens of the phrases that the text of each row must have, [phrases, length], padded with -1.
    `default` is the prefix that the model gives to a text without one.
    `automaton` are the inputs for what texts match, which takes at most `room` tokens.

    Raises: UserError if ONNX Runtime fails, or if the model's results are none of such a search.
    """
    if any(one is not None for one in phrases) and (options.beam_groups or 1) > 1:
        raise UserError("beam_groups: no effect with phrases", hint="leave out beam_groups, or phrases")
    first = next(iter(given.values()))
    if not len(first):
        none = (0, options.n_best)
        return SearchResult(np.zeros((*none, 0), np.int64), np.zeros(none, np.int64), np.zeros(none, np.float32))
    special = session.vocabularies.written
    feeds = {
        **given,
        **arrays(options),
        **each,
        **({END_TOKEN: np.array(special.as_input(end), np.int64)} if end else {}),
        **stack_phrases(phrases),
        **automaton,
        **({PREFIX: pad(prefixes, special.absent)} if any(len(prefix) for prefix in prefixes) else {}),
    }
    own = {name: each[name].max().item() for name in LIMITS if name in each}
    longest = replace(options, **own) if own else options
    limit, found = length_limit(longest, most_positions(given, session.vocabularies)), (len(first), options.n_best)
    begun = max(map(len, prefixes), default=0)
    more = max(map(phrase_tokens, phrases)) + 1 if phrases else room
    limit = max(limit, max(begun, len(default)) + more if more else begun)
    tokens = Expected(np.int64, (*found, up_to(limit)), vocabulary)
    expected = (tokens, Expected(np.int64, found, limit + 1), Expected(np.float32, found))
    tokens_found, lengths, scores, *rest = session.run(feeds, (*expected, *others.values()))
    return SearchResult(tokens_found, lengths, scores, dict(zip(others, rest, strict=True)))


LIMITS = ("max_length_factor", "max_length_offset")
"""The options that bound the length of a text."""


def most_positions(given: Mapping[str, NDArray[Any]], vocabularies: Vocabularies) -> int:
    """Return the most positions of the first input of tokens or vectors, without padding; 0 if there is none."""
    for name, array in given.items():
        if array.ndim == 2 and array.dtype.kind == "i":
            return int((array != vocabularies.of(name).absent).sum(1).max())
        if name.endswith("_mask"):
            return int(array.sum(1).max())
    return 0


def length_limit(options: SearchOptions, source: int) -> int:
    """Return the maximum tokens of a hypothesis for `source` tokens, the end token included (docs/search.md).

    The product is computed in float32, as in an engine.
    """
    scaled = np.float32(options.max_length_factor) * np.float32(source)
    return max(1, int(scaled) + options.max_length_offset)


def length_divisor(length: int, alpha: float, kind: str | None = None) -> float:
    """Return the divisor of the log probability of a hypothesis of `length` tokens (docs/search.md).

    kind: one of `LENGTH_PENALTIES`; None is GNMT's (Wu et al. 2016, equation 14).
    """
    offset = LENGTH_PENALTIES[kind or "gnmt"]
    return ((length + offset) / (1 + offset)) ** alpha


def check_source(
    source: NDArray[np.int64] | Sequence[Sequence[int]], vocabulary: int, padding: int = 0
) -> NDArray[np.int64]:
    """Return the source ids as an int64 array [batch, source].

    Raises: UserError unless they are integers within the vocabulary, and each row is one or more tokens followed by
    `padding`.
    """
    array = as_array("source", source)
    if array.ndim != 2 or not np.issubdtype(array.dtype, np.integer):
        found = f"{array.dtype} of {list(array.shape)}"
        raise UserError(f"the source ids must be integers of shape [batch, source], not {found}")
    if array.size and (array.min() < 0 or array.max() >= vocabulary):
        raise UserError(f"the source ids must be from 0 to {vocabulary - 1}; one of them is not")
    filled = array != padding
    if array.shape[0] and (not filled.any(axis=1).all() or bool((filled[:, 1:] & ~filled[:, :-1]).any())):
        raise UserError(f"each row of source ids must be one or more tokens, then padding ({padding}) only")
    return np.ascontiguousarray(array, np.int64)
