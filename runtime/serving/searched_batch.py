"""A batch of texts that a beam search translates together, whose texts join and leave between calls of the model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xformc.format.interfaces import AT, COUNT, DONE, JOINED, KEPT, LEAST, LIMIT, POOL, PREFIX, PREFIX_SO_FAR, SLOTS
from xformc.format.manifest import SearchOptions
from xformc.format.names import ADVANCE, JOIN, NEXT
from xformc.runtime.each import options_in, own_values, stack_options
from xformc.runtime.options import arrays
from xformc.runtime.results import Expected, check_results, up_to
from xformc.runtime.rows import Row, pad
from xformc.runtime.searching.search import LIMITS, SearchResult, length_limit
from xformc.runtime.serving.slotted_batch import SlottedBatch, run_stateful
from xformc.runtime.session import Session

Array = NDArray[Any]


@dataclass(eq=False)
class Search:
    """A text of a batch.

    row: its source, and its prefix and options if it has any. most: the most tokens of its translation. found: its
    hypotheses, once it has ended.
    """

    row: Row
    most: int
    limit: int = 0
    least: int = 0
    position: int = 0
    slot: int = 0
    done: bool = False
    found: SearchResult | None = None

    @property
    def reads(self) -> int:
        """The tokens of its source."""
        return len(self.row["source"])

    @property
    def needs(self) -> int:
        """The most tokens that the model reads of it."""
        return self.most

    @property
    def prefix(self) -> Array:
        """The tokens that its translation begins with."""
        return self.row.get(PREFIX, np.zeros(0, np.int64))


def search_of(row: Row, options: SearchOptions, longest: int | None) -> Search:
    """Return the text of a row with a source; `longest` is the maximum number of tokens that the model decodes."""
    own = {**arrays(options), **options_in(row)}
    factor, offset = (own[name].item() for name in LIMITS)
    limited = SearchOptions(1, 1, 0.0, factor, offset)
    most = length_limit(limited, len(row["source"]))
    most = max(most if longest is None else min(most, longest), len(row.get(PREFIX, ())))
    return Search(row, most)


class RefillingSearch(SlottedBatch[Search]):
    """The texts that are being translated."""

    def __init__(
        self, session: Session, options: SearchOptions, *, slots: int, vocabulary: int, at_once: int | None
    ) -> None:
        """`at_once`: the most steps of a call, which ends sooner if an eighth of the texts has ended."""
        join, model = session.beside(JOIN), session.beside(ADVANCE)
        assert join is not None and model is not None, "the engine has no batches of searches that refill"
        super().__init__(session, slots=slots, at_once=at_once)
        self._join, self._model = join, model
        self._special, self._fill = session.vocabularies.written, session.vocabularies.of("source").fill
        self._vocabulary, self._options = vocabulary, options
        self._usual = arrays(options)
        self._sources = Slots(slots)
        self._none: dict[str, Any] = {}

    def _cache_sizes(self) -> dict[str, int]:
        return {**super()._cache_sizes(), "beam_size": self._options.beam_size}

    def _call(self, kept: Sequence[int], joining: Sequence[Search]) -> int:
        initial = self._read(joining) if joining else self._none
        return self._take(run_stateful(self._model, {**self._feeds(kept), **initial}))

    def _read(self, joining: Sequence[Search]) -> dict[str, Any]:
        """Read the sources of texts into their slots; return their initial states."""
        rows = [text.row for text in joining]
        given = {
            "source": pad([row["source"] for row in rows], self._fill),
            PREFIX: pad([text.prefix for text in joining], self._special.absent),
            **self._usual,
            **stack_options(rows, self._usual),
        }
        found = {name.removesuffix(NEXT): value for name, value in run_stateful(self._join, given).items()}
        limits, least = (found.pop(name).numpy() for name in (LIMIT, LEAST))
        most = max(text.most for text in joining)
        expected = Expected(np.int64, (len(joining),), most + 1), Expected(np.int64, (len(joining),))
        check_results({LIMIT: limits, LEAST: least}, expected, JOIN)
        for text, limit, at_least in zip(joining, limits, least, strict=True):
            text.limit, text.least = int(limit), int(at_least)
        initial = {name: found.pop(name) for name in [*found] if name.startswith(JOINED)}
        self._none = {name: value.numpy()[:0] for name, value in initial.items()}
        self._sources.write({name: value.numpy() for name, value in found.items()}, [text.slot for text in joining])
        return initial

    def _feeds(self, kept: Sequence[int]) -> dict[str, Any]:
        texts = self.texts
        prefixes = pad([[*text.prefix, self._special.absent] for text in texts], self._special.absent)
        numbers = {
            KEPT: kept,
            SLOTS: [text.slot for text in texts],
            AT: [text.position for text in texts],
            LIMIT: [text.limit for text in texts],
            LEAST: [text.least for text in texts],
            COUNT: self._pace.steps,
        }
        return {
            **self._usual,
            **stack_options([text.row for text in texts], own_values(self._options)),
            **self._sources.arrays,
            **self._caches,
            **self._states,
            PREFIX_SO_FAR: prefixes,
            **{name: np.array(value, np.int64) for name, value in numbers.items()},
        }

    def _take(self, found: dict[str, Any]) -> int:
        """Take the positions, states, and hypotheses of the texts that have ended; return the number of steps."""
        done, at = (found.pop(f"{name}{NEXT}").numpy() for name in (DONE, AT))
        rows, width, most = len(self.texts), self._options.beam_size, max(text.limit for text in self.texts)
        expected = Expected(np.bool_, (rows,)), Expected(np.int64, (rows,), most)
        check_results({DONE: done, AT: at}, expected, ADVANCE)
        self._states = {name.removesuffix(NEXT): value for name, value in found.items()}
        steps = max(int(position) - text.position for text, position in zip(self.texts, at, strict=True))
        for text, position, has_ended in zip(self.texts, at, done, strict=True):
            text.position, text.done = int(position), bool(has_ended)
        if not done.any():
            return steps
        tokens, lengths, scores = (self._states[name].numpy() for name in POOL)
        expected = (
            Expected(np.int64, (rows, width, up_to(most + 1)), self._vocabulary),
            Expected(np.int64, (rows, width), most + 1),
            Expected(np.float32, (rows, width)),
        )
        check_results(dict(zip(POOL, (tokens, lengths, scores), strict=True)), expected, ADVANCE)
        for row in np.flatnonzero(done):
            self.texts[row].found = _best(tokens[row], lengths[row], scores[row], self._options.n_best)
        return steps


class Slots:
    """What the model keeps of the sources of texts, in arrays [slots, ..] that grow with the longest source."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self.arrays: dict[str, Array] = {}

    def write(self, values: Mapping[str, Array], slots: Sequence[int]) -> None:
        """Write values [texts, ..] into the slots of their texts, padded with zeros."""
        for name, value in values.items():
            known = self.arrays.get(name)
            if known is None or any(size < new for size, new in zip(known.shape[1:], value.shape[1:], strict=True)):
                self.arrays[name] = known = _grown(known, self._slots, value)
            if known.shape[1:] != value.shape[1:]:
                known[slots] = 0
            known[(slots, *map(slice, value.shape[1:]))] = value


def _grown(before: Array | None, slots: int, value: Array) -> Array:
    """An array with room for a value [texts, ..] in each slot, and a quarter more, with what was there before."""
    old = (0,) * (value.ndim - 1) if before is None else before.shape[1:]
    sizes = (
        has if has >= new else new + new // 4 * (before is not None)
        for has, new in zip(old, value.shape[1:], strict=True)
    )
    array = np.zeros((slots, *sizes), value.dtype)
    if before is not None:
        array[tuple(map(slice, before.shape))] = before
    return array


def _best(tokens: Array, lengths: Array, scores: Array, n_best: int) -> SearchResult:
    """The n best of a pool, without the begin token, cut to the length of the longest."""
    longest = int(lengths[:n_best].max())
    cut = tokens[None, :n_best, 1 : longest + 1].copy()
    return SearchResult(cut, lengths[None, :n_best].copy(), scores[None, :n_best].copy())
