"""Texts that match a constraint: a regular expression, a JSON schema, or a function of the tokens so far.

The tokens are sampled one call at a time, and each call bans those that the constraint does not allow next.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from xformc.errors import UserError
from xformc.extras import explain_missing
from xformc.format.inputs import Input
from xformc.format.tokens import SpecialTokens
from xformc.runtime.generation.generate import Prompt

Mask = NDArray[np.bool_]

Allowed = Callable[[Sequence[int]], Sequence[int] | Mask]
"""Returns the tokens that may follow the tokens of a continuation: their ids, or a mask of the vocabulary."""


class Matcher(Protocol):
    """Follows one text."""

    def allowed(self, tokens: Sequence[int]) -> Mask:
        """Return which tokens of the vocabulary may follow the tokens so far, end tokens among them."""
        ...

    def complete(self, tokens: Sequence[int]) -> bool:
        """Return whether the tokens, without an end token, are a whole text."""
        ...

    @property
    def text(self) -> Callable[[Sequence[int]], str] | None:
        """Returns the text of tokens, the end of which may lack the rest of a character; None: the tokenizer's."""
        ...


Constraint = Callable[[Prompt], Matcher]
"""Makes the matcher of a prompt's continuation."""


@dataclass(frozen=True)
class Spelled:
    """The bytes of each token, b"" for those without any, and whether a text loses its first space."""

    pieces: Sequence[bytes]
    special: SpecialTokens
    strips: bool


def constrain_by(allowed: Allowed, size: int) -> Constraint:
    """Return the constraint of a function, for a vocabulary of this size."""
    return lambda _: _Called(allowed, size)


@dataclass(frozen=True)
class _Called:
    function: Allowed
    size: int

    def allowed(self, tokens: Sequence[int]) -> Mask:
        found = np.asarray(self.function([*tokens]))
        if found.dtype == np.bool_ and found.shape == (self.size,):
            return found
        inside = found.ndim == 1 and bool(((found >= 0) & (found < self.size)).all())
        if not inside or (len(found) and found.dtype.kind != "i"):
            raise UserError(f"allowed must return ids from 0 to {self.size - 1}, or a mask of {self.size} booleans")
        mask = np.zeros(self.size, np.bool_)
        mask[found.astype(np.int64)] = True
        return mask

    def complete(self, tokens: Sequence[int]) -> bool:
        return True

    @property
    def text(self) -> None:
        return None


def constrain_by_grammar(
    spelled: Spelled, *, regex: str | None, json_schema: Mapping[str, Any] | str | None
) -> Constraint:
    """Return the constraint of a regular expression, which the whole text matches, or of a JSON schema.

    Raises: UserError for a grammar that llguidance does not accept; ModuleNotFoundError without llguidance.
    """
    try:
        import llguidance  # noqa: PLC0415  # pyright: ignore[reportMissingImports] (an extra)
    except ModuleNotFoundError as error:
        raise explain_missing(error) from error
    library = cast(Any, llguidance)
    name = "regex" if json_schema is None else "json_schema"
    try:
        matcher = library.LLMatcher
        grammar = matcher.grammar_from_regex(regex or "")
        if json_schema is not None:
            grammar = matcher.grammar_from_json_schema(_schema(json_schema), defaults=_SPACES)
    except ValueError as error:
        raise UserError(f"{name}: {error}") from error
    pieces = library.TokenizerWrapper(_Pieces(spelled))
    tokenizer = library.LLTokenizer(pieces, n_vocab=len(spelled.pieces), slices=[])
    is_wrong, messages = matcher.validate_grammar_with_warnings(grammar, tokenizer)
    if is_wrong:
        raise UserError(f"{name}: {_one_line(messages[0])}", hint="the package llguidance defines what it may be")
    return lambda prompt: _Grammar(matcher(tokenizer, grammar, log_level=0), spelled, name, first=not prompt.ids)


_SPACES = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""JSON has the spaces of `json.dumps`, and no others: a text cannot go on by spaces. `x-guidance` in a schema wins."""


def _one_line(message: str) -> str:
    return " ".join(message.split())[:200]


def _schema(given: Mapping[str, Any] | str) -> str:
    try:
        return json.dumps(json.loads(given) if isinstance(given, str) else given)
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(f"json_schema is no JSON: {error}") from error


class _Pieces:
    """A vocabulary as llguidance reads it."""

    def __init__(self, spelled: Spelled) -> None:
        self.eos_token_id, self.bos_token_id = spelled.special.last, None
        silent = [index for index, piece in enumerate(spelled.pieces) if not piece]
        self.special_token_ids = sorted({*silent, *spelled.special.ids})
        self.tokens = [
            f"<token {index}>".encode() if index in set(self.special_token_ids) else piece
            for index, piece in enumerate(spelled.pieces)
        ]

        real = [index for index in range(len(self.tokens)) if index not in set(self.special_token_ids)]
        self._ids = {self.tokens[index]: index for index in reversed(real)}
        self._longest = max(map(len, self._ids), default=0)

    def __call__(self, text: bytes) -> list[int]:
        """Return the longest pieces one after the other, up to a byte that no piece begins with."""
        ids: list[int] = []
        place = 0
        while place < len(text):
            sizes = range(min(self._longest, len(text) - place), 0, -1)
            size = next((size for size in sizes if text[place : place + size] in self._ids), 0)
            if not size:
                break
            ids.append(self._ids[text[place : place + size]])
            place += size
        return ids


class _Grammar:
    """A matcher of llguidance."""

    def __init__(self, matcher: Any, spelled: Spelled, name: str, *, first: bool) -> None:
        """`first`: the text begins at this continuation."""
        self._matcher, self._spelled, self._name, self._taken = matcher, spelled, name, 0
        self._never = np.array([not piece for piece in spelled.pieces], np.bool_)
        self._never[[*spelled.special.ids]] = True
        lost = [piece.startswith(b" ") for piece in spelled.pieces]
        self._first = np.array(lost, np.bool_) & (first and spelled.strips)

    def allowed(self, tokens: Sequence[int]) -> Mask:
        if not self._matcher.consume_tokens([*tokens[self._taken :]]):  # its mask had a token that it does not take
            raise _nothing_follows(self._taken)
        self._taken = len(tokens)
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        if self._matcher.is_error():
            error = str(self._matcher.get_error())
            raise _nothing_follows(len(tokens)) if error.startswith("NoExtension") else self._wrong(error)
        mask = np.unpackbits(bits, bitorder="little")[: len(self._never)].astype(np.bool_) & ~self._never
        if not tokens:
            mask &= ~self._first
        mask[[*self._spelled.special.end]] = self._matcher.is_accepting()
        return mask

    def _wrong(self, error: str) -> UserError:
        return UserError(f"{self._name}: {_one_line(error)}")

    def complete(self, tokens: Sequence[int]) -> bool:
        self.allowed(tokens)
        return bool(self._matcher.is_accepting())

    @property
    def text(self) -> Callable[[Sequence[int]], str]:
        return self._written

    def _written(self, tokens: Sequence[int]) -> str:
        ends = self._spelled.special.end
        return b"".join(self._spelled.pieces[token] for token in tokens if token not in ends).decode(errors="replace")


class MatcherGuide:
    """A guide by a matcher (`token_calls.Guide`)."""

    def __init__(self, matcher: Matcher, suppressed: Sequence[int], written: Input) -> None:
        """`suppressed` are tokens that the options ban; `written` is the input for what the engine writes."""
        self._matcher, self._end = matcher, written.special.end
        self._never = np.zeros(written.pieces, np.bool_)
        self._never[[*suppressed]] = True
        self._mask = self._never

    def banned(self, tokens: Sequence[int]) -> NDArray[np.int64]:
        """Return the tokens that may not follow those of the continuation. Raises: UserError if none may."""
        self._mask = self._matcher.allowed(tokens) & ~self._never
        if not self._mask.any():
            raise _nothing_follows(len(tokens))
        return np.flatnonzero(~self._mask)

    def check(self, tokens: Sequence[int]) -> None:
        """Raises: UserError if the last of the tokens was banned."""
        if not self._mask[tokens[-1]]:  # other bans left none
            raise _nothing_follows(len(tokens) - 1)

    def check_whole(self, tokens: Sequence[int]) -> None:
        """Raises: UserError if the continuation, which has ended, is no whole text."""
        if not self._matcher.complete(tokens[:-1] if tokens and tokens[-1] in self._end else tokens):
            message = f"the text is not complete after {len(tokens)} tokens"
            raise UserError(message, hint="give it more, with max_new_tokens, or a constraint of shorter texts")


def _nothing_follows(count: int) -> UserError:
    hint = "the constraint and the banned tokens leave none of the vocabulary"
    return UserError(f"no token may follow the {count} tokens of the text so far", hint=hint)
