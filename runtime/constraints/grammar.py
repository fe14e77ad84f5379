"""Automata of tokens for regular expressions and JSON schemas.

The bytes of the expression's texts are an automaton with a few hundred states. A token leads from a state to where its
bytes lead.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from xformc.errors import UserError
from xformc.extras import explain_missing
from xformc.runtime.constraints.automaton import Automaton
from xformc.runtime.generation.constrain import Spelled

BYTES, MAX_STATES = 256, 20_000
SPACES = "[ ]?"
"""What JSON may have around its marks."""


def automaton_of(
    spelled: Spelled, *, regex: str | None = None, json_schema: Mapping[str, Any] | str | None = None
) -> Automaton:
    """Return the automaton of the texts that match a regular expression as a whole, or that are JSON of a schema.

    Where texts lose their first space, the first token may begin with one.

    Raises: UserError for what outlines_core does not accept; ModuleNotFoundError without outlines_core.
    """
    try:
        import outlines_core  # noqa: PLC0415  # pyright: ignore[reportMissingImports] (an extra)
    except ModuleNotFoundError as error:
        raise explain_missing(error) from error
    library, name = cast(Any, outlines_core), "regex" if json_schema is None else "json_schema"
    try:
        if json_schema is not None:
            regex = library.json_schema.build_regex_from_schema(_text_of(json_schema), SPACES)
        each = library.Vocabulary(BYTES, {bytes([byte]): [byte] for byte in range(BYTES)})
        index = library.Index(regex or "", each)
    except ValueError as error:
        raise UserError(f"{name}: {' '.join(str(error).split())[:200]}") from error
    transitions, finals = cast(dict[int, dict[int, int]], index.get_transitions()), set[int](index.get_final_states())
    states = sorted({index.get_initial_state(), *finals, *transitions})
    if len(states) > MAX_STATES:
        raise UserError(f"{name}: {len(states):,} states; the most are {MAX_STATES:,}")
    number = {state: place for place, state in enumerate(states)}
    table = np.full((len(states) + 1, BYTES), len(states), np.int32)
    for state, following in transitions.items():
        for byte, after in following.items():
            if byte < BYTES:
                table[number[state], byte] = number[after]
    final = np.array([state in finals for state in states], np.bool_)
    return of_bytes(table, final, number[index.get_initial_state()], spelled)


def _text_of(schema: Mapping[str, Any] | str) -> str:
    try:
        return json.dumps(json.loads(schema) if isinstance(schema, str) else schema)
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(f"json_schema is no JSON: {error}") from error


def of_bytes(table: NDArray[np.int32], final: NDArray[np.bool_], start: int, spelled: Spelled) -> Automaton:
    """Return the automaton of tokens for one of bytes, [states + 1, 256], whose last state is the one of no text.

    Tokens without text may not follow.
    """
    pieces, never = spelled.pieces, len(table) - 1
    found = _after(table, np.arange(never), pieces)
    if spelled.strips:  # the first state, as texts begin: there, the first space of a token is no part of the text
        first = _after(table, np.array([start]), [piece.removeprefix(b" ") or b" " for piece in pieces])
        alone = [place for place, piece in enumerate(pieces) if piece == b" "]
        first[0, alone] = start
        found, final, start = np.concatenate([found, first]), np.append(final, final[start]), len(found)
    found[:, [place for place, piece in enumerate(pieces) if not piece]] = never
    found[:, [*spelled.special.ids]] = never
    return Automaton(np.where(found == never, -1, found), final, start)


def _after(table: NDArray[np.int32], states: NDArray[Any], pieces: Sequence[bytes]) -> NDArray[np.int32]:
    """The state after each state and piece, [states, pieces]."""
    found = np.repeat(states.astype(np.int32)[:, None], len(pieces), axis=1)
    longest = max(map(len, pieces), default=0)
    for place in range(longest):
        here = [index for index, piece in enumerate(pieces) if len(piece) > place]
        found[:, here] = table[found[:, here], [pieces[index][place] for index in here]]
    return found
