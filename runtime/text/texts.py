"""Encodes lines of text as token ids, with the line number in every error."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from xformc.errors import UserError
from xformc.runtime.stream import MAX_BATCH_TOKENS

WHOLE_SHARE = 4
"""A text that is read at once may have 1/WHOLE_SHARE of a batch's tokens, because attention's memory is quadratic."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Limit:
    """The maximum tokens of a text: the model's own limit, or 1/`share` of a batch's tokens."""

    tokens: int
    share: int | None = None


class TooLongError(UserError):
    """A text over its limit. `budget` is the `max_batch_tokens` that would allow it, or None if none would."""

    def __init__(self, line: int, count: int, limit: Limit) -> None:
        message = f"{count:,} tokens; this engine takes at most {limit.tokens:,}"
        super().__init__(message, place=f"line {line}", hint="split it into shorter texts")
        self.budget = None if limit.share is None else count * limit.share

    def advised(self, truncate: str, max_batch_tokens: str | None = None) -> "TooLongError":
        """Return the error with a hint that names the caller's options; the second lacks its number."""
        self.hint = f"split it into shorter texts, or cut it with {truncate}"
        if self.budget is not None and max_batch_tokens is not None:
            self.hint += f"; with enough memory, {max_batch_tokens}{self.budget} allows it"
        return self


def whole_limit(longest: int | None, max_batch_tokens: int = MAX_BATCH_TOKENS) -> Limit:
    """Return the limit of a text that is read at once: the model's own, or a share of `max_batch_tokens`."""
    return _batch_limit(max_batch_tokens, WHOLE_SHARE) if longest is None else Limit(longest)


def prompt_limit(longest: int | None, max_batch_tokens: int = MAX_BATCH_TOKENS) -> Limit:
    """Return the limit of a prompt, which is read token by token; a model's limit leaves one token to generate."""
    return _batch_limit(max_batch_tokens, 1) if longest is None else Limit(longest - 1)


def scored_limit(longest: int | None, max_batch_tokens: int = MAX_BATCH_TOKENS) -> Limit:
    """Return the limit of a text to score, which is read in parts."""
    return _batch_limit(max_batch_tokens, 1) if longest is None else Limit(longest)


def encode_line(
    line: int, text: str, *, encode: Callable[[str], list[int]], limit: Limit, truncate: bool, tail: int = 1
) -> list[int]:
    """Return the ids of the text on this line. With `truncate`, a long text is cut before its last `tail` ids.

    A cut is logged as a warning.

    Raises: TooLongError without `truncate`; UserError for invalid Unicode, and for what is no str.
    """
    ids, most = encode_text(line, text, encode), limit.tokens
    if len(ids) <= most:
        return ids
    if not truncate:
        raise TooLongError(line, len(ids), limit)
    warn_of_cut(line, len(ids), most)
    return [*ids[: most - tail], *ids[len(ids) - tail :]]


def encode_text(line: int, text: str, encode: Callable[[str], list[int]]) -> list[int]:
    """Return the ids of the text on this line. Raises: UserError for invalid Unicode, and for what is no str."""
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] (callers without types)
        found = type(text).__name__
        raise UserError(f"a text must be a str, found {found}", place=f"line {line}", hint="engine.search takes ids")
    try:
        return encode(text)
    except UnicodeError as error:
        raise UserError("not valid Unicode text", place=f"line {line}") from error


def warn_of_cut(line: int, count: int, most: int) -> None:
    """Log that the text on this line was cut."""
    logger.warning("line %d: cut from %d to %d tokens", line, count, most)


def _batch_limit(max_batch_tokens: int, share: int) -> Limit:
    """Return 1/`share` of a batch, at least that of a default batch, so that small batches reject no text."""
    return Limit(max(MAX_BATCH_TOKENS, max_batch_tokens) // share, share)
