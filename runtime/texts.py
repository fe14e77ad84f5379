"""Lines of text as token ids: what is too long, or is no text, is said with its line."""

import logging
from collections.abc import Callable

from xformc.errors import UserError

MAX_TOKENS = 1024
"""The most tokens of a text where the model has no bound."""

logger = logging.getLogger(__name__)


def encode_line(
    line: int, text: str, *, encode: Callable[[str], list[int]], longest: int | None, truncate: bool, tail: int = 1
) -> list[int]:
    """The ids of the text in this line, at most `longest` (None: MAX_TOKENS); the last `tail` ids are never cut off.

    Raises: UserError for a text that is too long (with `truncate` it is cut, and a warning logged), or no Unicode.
    """
    try:
        ids = encode(text)
    except UnicodeError as error:
        raise UserError("not valid Unicode text", place=f"line {line}") from error
    most = MAX_TOKENS if longest is None else longest
    if len(ids) <= most:
        return ids
    if not truncate:
        raise UserError(
            f"{len(ids):,} tokens, and this engine takes at most {most:,}",
            place=f"line {line}",
            hint="split it into sentences, or cut it with --truncate (truncate=True in Python)",
        )
    logger.warning("line %d: cut from %d to %d tokens", line, len(ids), most)
    return [*ids[: most - tail], *ids[len(ids) - tail :]]
