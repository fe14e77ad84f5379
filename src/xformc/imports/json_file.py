"""Reads JSON that others wrote, of bounded size."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from xformc.errors import UserError

T = TypeVar("T")


def read_json(path: Path, limit: int, what: str, convert: Callable[[object], T]) -> T:
    """What `convert` makes of the file's content, which it may find nested too deep for it (RecursionError).

    Raises: UserError for a file of more than `limit` bytes, which is the limit for `what`, or that is not JSON.
    """
    with path.open("rb") as handle:
        data = handle.read(limit + 1)
    if len(data) > limit:
        raise UserError(f"larger than {limit >> 20} MiB, the limit for {what}", place=str(path))
    try:
        return convert(json.loads(data))
    except (ValueError, RecursionError) as error:
        raise UserError(f"not JSON: {error}", place=str(path)) from None
