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
    """The most tokens that a text may have; `hint` is what to do about a longer one."""

    tokens: int
    hint: str = "split it into sentences, or cut it with --truncate (truncate=True in Python)"


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

    Raises: UserError for a text that is too long (with `truncate` it is cut, and a warning logged), or no Unicode.
    """
    try:
        ids = encode(text)
    except UnicodeError as error:
        raise UserError("not valid Unicode text", place=f"line {line}") from error
    most = limit.tokens
    if len(ids) <= most:
        return ids
    if not truncate:
        message = f"{len(ids):,} tokens, and this engine takes at most {most:,}"
        raise UserError(message, place=f"line {line}", hint=limit.hint)
    logger.warning("line %d: cut from %d to %d tokens", line, len(ids), most)
    return [*ids[: most - tail], *ids[len(ids) - tail :]]


def _batch_limit(max_batch_tokens: int, share: int) -> Limit:
    """One part in `share` of a batch, or of a default one where that is larger: a small batch refuses nothing."""
    more = "raise --max-batch-tokens (max_batch_tokens= in Python) for longer texts, if there is the memory"
    return Limit(max(MAX_BATCH_TOKENS, max_batch_tokens) // share, f"{Limit.hint}; or {more}")
