"""Tokens that a call names by their ids or by their pieces."""

from collections.abc import Callable, Sequence
from numbers import Integral
from typing import cast

from xformc.errors import UserError
from xformc.runtime.text.tokenizer import Tokenizer

Pieces = Callable[[], Sequence[str]]
"""Gives the pieces of a vocabulary by id; those of ids without one are empty."""

_WORD = "\u2581"
"""What begins a word in SentencePiece's pieces."""


def pieces_of(tokenizer: Tokenizer | None, name: str, size: int) -> Pieces | None:
    """The pieces of the input `name`, of so many tokens; None if the engine cannot tell."""
    if tokenizer is None or name not in tokenizer.vocabularies:
        return None
    return lambda: tokenizer.pieces(name, range(size))


def checked_tokens(name: str, given: object, size: int, pieces: Pieces | None) -> tuple[int, ...]:
    """Return the ids of tokens that are given by id or by piece, each once.

    Raises: UserError that names the option, for what is no token of a vocabulary of this size.
    """
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise UserError(f"{name} must be a list of tokens, not {given!r}", hint=f"put it in a list: {name}=[{given!r}]")
    ids: list[int] = []
    known: dict[str, int] = {}
    for one in cast(Sequence[object], given):
        if isinstance(one, str):
            known = known or _ids_of(name, pieces)
            ids.append(_id_of(name, one, known))
        elif not isinstance(one, bool) and isinstance(one, Integral) and 0 <= int(one) < size:
            ids.append(int(one))
        else:
            raise UserError(f"{name} must be ids from 0 to {size - 1} or pieces of the vocabulary, not {one!r}")
    return tuple(dict.fromkeys(ids))


def _ids_of(name: str, pieces: Pieces | None) -> dict[str, int]:
    if pieces is None:
        raise UserError(f"the engine has no tokenizer for its text, so {name} must be ids")
    return {piece: index for index, piece in reversed(list(enumerate(pieces()))) if piece}


def _id_of(name: str, piece: str, known: dict[str, int]) -> int:
    if piece in known:
        return known[piece]
    word = _WORD + piece
    hint = (
        f"the vocabulary has {word!r}, which begins a word" if word in known else "`xformc inspect` shows a tokenizer"
    )
    raise UserError(f"{name}: the vocabulary has no token {piece!r}", hint=hint)
