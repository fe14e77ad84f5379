"""Lines of text as token ids: what is too long, or is no text, is said with its line."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from xformc.errors import UserError
from xformc.runtime.stream import MAX_BATCH_TOKENS

WHOLE_SHARE = 4
"""A text that is read at once may have one part in this many of a batch's tokens: attention's memory is quadratic."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Limit:
    """The most tokens that a text may have: the model's own bound, or one part in `share` of a batch's tokens."""

    tokens: int
    share: int | None = None


class TooLongError(UserError):
    """A text with more tokens than its limit; `budget` is the `max_batch_tokens` that takes it, None if none does."""

    def __init__(self, line: int, count: int, limit: Limit) -> None:
        message = f"{count:,} tokens, and this engine takes at most {limit.tokens:,}"
        super().__init__(message, place=f"line {line}", hint="split it into shorter texts")
        self.budget = None if limit.share is None else count * limit.share

    def advised(self, truncate: str, max_batch_tokens: str | None = None) -> "TooLongError":
        """The error with a hint that names these options of the caller's, the second without its number."""
        self.hint = f"split it into shorter texts, or cut it with {truncate}"
        if self.budget is not None and max_batch_tokens is not None:
            self.hint += f"; with enough memory, {max_batch_tokens}{self.budget} takes it whole"
        return self


def whole_limit(longest: int | None, max_batch_tokens: int = MAX_BATCH_TOKENS) -> Limit:
    """The limit of a text that is read at once: the model's own, or what suits a batch of `max_batch_tokens`."""
    return _batch_limit(max_batch_tokens, WHOLE_SHARE) if longest is None else Limit(longest)


def prompt_limit(longest: int | None, max_batch_tokens: int = MAX_BATCH_TOKENS) -> Limit:
    """The limit of a prompt, which is read token by token; where the model has a bound, one token is left to add."""
    return _batch_limit(max_batch_tokens, 1) if longest is None else Limit(longest - 1)


def encode_line(
    line: int, text: str, *, encode: Callable[[str], list[int]], limit: Limit, truncate: bool, tail: int = 1
) -> list[int]:
    """The ids of the text in this line; the last `tail` ids are never cut off.

    Raises: TooLongError (with `truncate` the text is cut, and a warning logged); UserError for invalid Unicode.
    """
    try:
        ids = encode(text)
    except UnicodeError as error:
        raise UserError("not valid Unicode text", place=f"line {line}") from error
    most = limit.tokens
    if len(ids) <= most:
        return ids
    if not truncate:
        raise TooLongError(line, len(ids), limit)
    logger.warning("line %d: cut from %d to %d tokens", line, len(ids), most)
    return [*ids[: most - tail], *ids[len(ids) - tail :]]


def _batch_limit(max_batch_tokens: int, share: int) -> Limit:
    """One part in `share` of a batch, or of a default one where that is larger: a small batch refuses nothing."""
    return Limit(max(MAX_BATCH_TOKENS, max_batch_tokens) // share, share)
