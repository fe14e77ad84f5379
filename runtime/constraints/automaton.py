"""What translations match: an automaton of tokens, and its arrays for a search (docs/search.md)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from xformc.errors import UserError
from xformc.format.inputs import Input
from xformc.format.interfaces import AUTOMATON, NEEDS, START
from xformc.runtime.job import Job, paired
from xformc.runtime.rows import Row

Result = TypeVar("Result")

FREE = -1
"""The first state of a text that need not match anything."""

MAX_CELLS = 1 << 27
"""The most states times tokens of a call: 512 MB."""

_NEVER = np.int64(1 << 40)


@dataclass(frozen=True)
class Automaton:
    """The texts that a translation may be, as a deterministic automaton of its tokens.

    next: integers [states, vocabulary], the state after each state and token, or -1 for tokens that may not follow.
        Columns of the tokens that pad, begin and end texts are not read.
    final: booleans [states], whether a text may end there.
    start: the state in which texts begin.
    """

    next: NDArray[Any]
    final: NDArray[np.bool_]
    start: int = 0


@dataclass(frozen=True)
class Matching:
    """Automata as inputs of a search; `starts` has the first state of each text, or of all, and `room` the most tokens
    that a text needs."""

    next: NDArray[np.int32]
    needs: NDArray[np.int64]
    starts: tuple[int, ...]
    room: int
    by_text: bool

    def arrays(self, rows: Sequence[Row]) -> dict[str, NDArray[Any]]:
        """Return the inputs of the search for these rows."""
        usual = FREE if self.by_text else self.starts[0]
        starts = np.array([int(row.get(START, usual)) for row in rows], np.int64)
        return {AUTOMATON: self.next, NEEDS: self.needs, START: starts}


def matching_of(given: Automaton | Sequence[Automaton | None], written: Input) -> Matching:
    """Return the automaton of all texts, or the automata of each, as inputs of a search that writes this text.

    Raises: UserError for an automaton that is wrong or matches no text.
    """
    automata = [given] if isinstance(given, Automaton) else [*given]
    by_text = not isinstance(given, Automaton)
    distinct = {id(one): one for one in automata if one is not None}
    tables, needs, first = list[NDArray[np.int32]](), list[NDArray[np.int64]](), dict[int, int]()
    states = sum(len(one.next) for one in distinct.values())
    if states * written.pieces > MAX_CELLS:
        message = f"the constraints have {states:,} states; with {written.pieces:,} tokens, the most are"
        raise UserError(f"{message} {MAX_CELLS // written.pieces:,}", hint="give a shorter or less exact one")
    offset = 0
    for key, one in distinct.items():
        table = _checked(one, written)
        needed = tokens_to_end(table, one.final)
        if needed[one.start] >= _NEVER:
            raise UserError("the constraint matches no text that the vocabulary can write")
        tables.append(np.where(table >= 0, table + offset, -1).astype(np.int32))
        for end in written.special.end:
            tables[-1][:, end] = np.where(one.final, np.arange(len(table)) + offset, -1)
        needs.append(needed)
        first[key] = one.start + offset
        offset += len(table)
    starts = tuple(FREE if one is None else first[id(one)] for one in automata)
    if not tables:
        return Matching(np.zeros((0, written.pieces), np.int32), np.zeros(0, np.int64), starts, 0, by_text)
    every = np.concatenate(needs)
    room = 1 + max(int(every[one]) for one in starts if one >= 0)
    return Matching(np.concatenate(tables), every, starts, room, by_text)


def timed_matching(written: Input) -> Matching:
    """Return the inputs of a search whose rows have START, which may be TIMED, and no automaton."""
    return Matching(np.zeros((0, written.pieces), np.int32), np.zeros(0, np.int64), (FREE,), 0, by_text=True)


def _checked(one: Automaton, written: Input) -> NDArray[np.int64]:
    """Return the states after each state and token, none for special tokens. Raises: UserError."""
    table, final = np.asarray(one.next), np.asarray(one.final)
    shape = (len(final), written.pieces)
    if table.ndim != 2 or table.dtype.kind != "i" or final.dtype != np.bool_ or table.shape != shape or not len(final):
        needed = f"integers [states, {written.pieces}] and booleans [states]"
        raise UserError(f"an automaton needs {needed}, not {list(table.shape)} and {list(final.shape)}")
    inside = table.min() >= -1 and table.max() < len(final)
    if not inside or not 0 <= one.start < len(final):
        raise UserError(f"the states of an automaton must be from 0 to {len(final) - 1}, or -1 for no state")
    table = table.astype(np.int64)
    special = {written.special.absent, *written.special.begun, *written.special.end}
    table[:, [one for one in special if 0 <= one < written.pieces]] = -1
    return table


def tokens_to_end(table: NDArray[np.int64], final: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the fewest tokens from each state to a final one, [states]; 2^40 where none can be reached."""
    follows = np.zeros((len(table), len(table)), np.bool_)
    for state, row in enumerate(table):
        follows[state, row[row >= 0]] = True
    needs, reached, steps = np.where(final, 0, _NEVER), final, 0
    while True:
        steps += 1
        new = (follows @ reached) & (needs == _NEVER)
        if not new.any():
            return needs
        needs[new] = steps
        reached = new


def with_starts(job: Job[Any, Row, Result], items: Any, found: Matching | None) -> tuple[Job[Any, Row, Result], Any]:
    """Return the job for items with the first states of their texts, and these, if texts have constraints of their own;
    else what is given."""
    if found is None or not found.by_text:
        return job, items

    def encode(line: int, pair: tuple[Any, int]) -> Row:
        item, start = pair
        return {**job.encode(line, item), START: np.array(start, np.int64)}

    Job.require_several("translate", items)
    pairs = paired(items, found.starts, none="is no constraint", several="constraints", one="one, or None,")
    return Job(encode, job.size, job.run), list(pairs)
