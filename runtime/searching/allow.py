"""Searches whose tokens a function allows: docs/search.md, "Functions that allow tokens".

A search runs inside the model and cannot ask a function. Each call of the model finds the open hypotheses of one more
step; the function is asked what may follow each of them, and the answers are states of an automaton, a tree of texts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xformc.errors import UserError, refuse_together
from xformc.format.interfaces import PREFIX, START
from xformc.format.manifest import Manifest, SearchOptions, numbers
from xformc.format.search_options import STOP_RULES
from xformc.runtime.constraints.automaton import FREE, MAX_CELLS, Matching
from xformc.runtime.generation.constrain import Allowed, Matcher, constrain_by
from xformc.runtime.generation.generate import Prompt
from xformc.runtime.rows import Row, row_lengths
from xformc.runtime.searching.search import LIMITS, length_limit
from xformc.runtime.searching.translate import Hypothesis, is_filled, search_rows, write_rows
from xformc.runtime.session import Session
from xformc.runtime.text.tokenizer import Tokenizer

CHECKED = 8
"""After so many steps it is found out which searches have ended, which takes a call of the model."""

ROUNDING = 1e-5
"""The share of a bound that float32 may round it by."""

_OPEN: Mapping[str, Any] = {
    **{"length_penalty": 0.0, "coverage_penalty": 0.0, "min_length": 0, "stop_rule": "first", "patience": 1.0}
}
"""The options of a search without end tokens, whose results are the open hypotheses at its limit."""


def check_allowed(manifest: Manifest, options: Mapping[str, Any]) -> None:
    """Raises: UserError for options, as the model has them, of a search whose open hypotheses are not found so."""
    ends = manifest.inputs[manifest.written].special.end
    if len(ends) > 1:
        raise UserError(f"allowed needs one end token, and {manifest.name} has {len(ends)}", hint="give a constraint")
    for name in ("beam_groups", "prefix_bias"):
        refuse_together({"allowed": True, name: bool(options.get(name, 0) > (name == "beam_groups"))})
    if options.get("stop_rule") == STOP_RULES["shrink"]:
        raise UserError("allowed has no search with the stop rule shrink", hint="choose first, best or complete")


def write_allowed(
    session: Session,
    rows: Sequence[Row],
    *,
    allowed: Allowed,
    manifest: Manifest,
    tokenizer: Tokenizer | None,
    options: SearchOptions,
) -> list[list[Hypothesis]]:
    """As `write_rows`; after each hypothesis, only the tokens follow that `allowed` returns for its tokens after the
    prefix. It is called once for each text that a search goes on with.

    Raises: UserError if nothing may follow any hypothesis of a text; as `write_rows`.
    """
    for row in rows:
        check_allowed(manifest, {**numbers(options), **row})
    search = _Searches(session, rows, allowed, manifest, options)
    waiting, every = [index for index in range(len(rows)) if search.most(index) > 1], range(len(rows))
    for length in count(1):
        if not waiting:
            break
        open_ones = search.grow(waiting, length)
        waiting = [index for index in open_ones if length + 1 < search.most(index)]
        if waiting and length % CHECKED == 0:
            waiting = search.unsettled(waiting, length)
    beside: Any = {"manifest": manifest, "tokenizer": tokenizer, "options": options}
    found = write_rows(session, search.rows(every), constraint=search.matching(every), **beside)
    if any(several[0].score == -np.inf for several in found):
        raise UserError("allowed leaves a text without tokens that may follow", hint="allow the end token, or others")
    return found


class _Searches:
    """What is known of the texts of each row."""

    def __init__(
        self, session: Session, rows: Sequence[Row], allowed: Allowed, manifest: Manifest, options: SearchOptions
    ) -> None:
        self.session, self.given, self.manifest, self.options = session, rows, manifest, options
        written = manifest.inputs[manifest.written]
        matcher, special = constrain_by(allowed, written.pieces)(Prompt([], 0)), written.special
        never = [one for one in (special.absent, *special.begun) if 0 <= one < written.pieces]
        self.special, self.pieces = special, written.pieces
        self.trees = [_Tree(matcher, [one for one in never if one != special.last], special.last) for _ in rows]
        self.best = [0.0 for _ in rows]

    def begun(self, index: int) -> int:
        """The number of tokens of the prefix."""
        return len(self.given[index].get(PREFIX, ())) or len(self.manifest.prefix)

    def most(self, index: int) -> int:
        """The most tokens that a text has after its prefix; 0 for a row without a source, or whose text is given."""
        row, longest = self.given[index], self.manifest.inputs[self.manifest.written].longest
        if not is_filled(self.manifest.given, row) or self.special.last in row.get(PREFIX, ()):
            return 0
        own = replace(self.options, **{name: row[name].item() for name in LIMITS if name in row})
        source = next(iter(row_lengths(self.manifest.given, row).values()))
        limit = max(length_limit(own, source), self.begun(index) + 1)
        return (limit if longest is None else min(limit, longest)) - self.begun(index)

    def rows(self, indices: Sequence[int]) -> list[Row]:
        """The rows, each with its first state in the automaton of all of them."""
        firsts = np.cumsum([1, *(len(self.trees[index].next) for index in indices)])
        pairs = zip(indices, firsts, strict=False)
        return [{**self.given[index], START: np.array(first, np.int64)} for index, first in pairs]

    def matching(self, indices: Sequence[int], *, ends: bool = True) -> Matching:
        """The automaton of these rows: nothing follows state 0, where all texts are that are not known yet."""
        states = 1 + sum(len(self.trees[index].next) for index in indices)
        if states * self.pieces > MAX_CELLS:
            message = f"allowed was asked for {states - 1:,} texts at once; with {self.pieces:,} tokens, the most are"
            hint = "set a smaller beam_size, length limit or max_batch_tokens"
            raise UserError(f"{message} {MAX_CELLS // self.pieces:,}", hint=hint)
        tables, first = [np.full((1, self.pieces), FREE, np.int32)], 1
        for index in indices:
            table = np.stack(self.trees[index].next)
            tables.append(np.where(table > 0, table - 1 + first, table))
            first += len(table)
        every = np.concatenate(tables)
        if not ends:
            every[:, self.special.last] = FREE
        return Matching(every, np.zeros(states, np.int64), (), 1, by_text=True)

    def grow(self, indices: Sequence[int], length: int) -> list[int]:
        """Find the open hypotheses of so many tokens, ask what may follow them, and return the rows that have any."""
        plain: Any = {name: value for name, value in _OPEN.items() if getattr(self.options, name) is not None}
        options = replace(self.options, n_best=self.options.beam_size, **plain)
        rows: list[Row] = []
        for index, row in zip(indices, self.rows(indices), strict=True):
            limit = np.array(self.begun(index) + length, np.int64)
            own = {name: value for name, value in row.items() if name not in plain}
            rows.append({**own, "max_length_factor": np.array(0, np.float32), "max_length_offset": limit})
        matching, open_ones = self.matching(indices, ends=False), list[int]()
        found = search_rows(self.session, rows, self.manifest, options, constraint=matching)
        for place, index in enumerate(indices):
            ranks = np.flatnonzero(np.isfinite(found.scores[place]))
            for rank in ranks:
                self.trees[index].add(found.text(place, int(rank))[self.begun(index) :])
            if len(ranks):
                self.best[index] = float(found.scores[place, 0])
                open_ones.append(index)
        return open_ones

    def unsettled(self, indices: Sequence[int], length: int) -> list[int]:
        """The rows whose results may change if texts of more tokens than these, and the next one, are known."""
        options = replace(self.options, n_best=self.options.beam_size)
        matching = self.matching(indices)
        found = search_rows(self.session, self.rows(indices), self.manifest, options, constraint=matching)
        pairs = zip(indices, found.scores, strict=True)
        return [index for index, scores in pairs if not self._is_settled(index, length, scores)]

    def _is_settled(self, index: int, length: int, scores: NDArray[np.float32]) -> bool:
        """Whether as many hypotheses have finished as the beam has, and no open one can be among them any more."""
        own: dict[str, Any] = {**numbers(self.options), **self.given[index]}
        if not np.isfinite(scores).all():
            return False
        if own["stop_rule"] == STOP_RULES["first"] and own["patience"] == 1:
            return True
        if own["presence_penalty"] < 0 or own["frequency_penalty"] < 0:
            return False  # scores may rise
        offset, alpha = float(own["length_penalty_kind"]), float(own["length_penalty"])
        sizes = (self.begun(index) + length, self.begun(index) + self.most(index))
        bound = max(self.best[index] / ((size + offset) / (1 + offset)) ** alpha for size in sizes)
        return bound < float(scores.min()) - ROUNDING * abs(bound)


class _Tree:
    """The texts of a row that are known: the state after each state and token, counted from 1; 0 for texts that are not
    known, and FREE where none may follow."""

    def __init__(self, matcher: Matcher, never: Sequence[int], end: int) -> None:
        self.matcher, self.never, self.end = matcher, [*never], end
        self.states, self.next = dict[tuple[int, ...], int](), list[NDArray[np.int32]]()
        self.add(())

    def add(self, text: tuple[int, ...]) -> None:
        """Ask what may follow a text, unless that is known. All that it begins with must be known."""
        if text in self.states:
            return
        following = np.where(self.matcher.allowed(text), 0, FREE).astype(np.int32)
        following[self.never] = FREE
        self.next.append(following)
        self.states[text] = len(self.next)
        if text:
            self.next[self.states[text[:-1]] - 1][text[-1]] = len(self.next)
