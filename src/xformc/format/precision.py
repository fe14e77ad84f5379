"""The names of the number formats of an engine's weights, and of its caches."""

from collections.abc import Mapping
from typing import Literal, get_args

from xformc.errors import UserError

Precision = Literal["float32", "float16", "bfloat16", "int8", "int4", "float8"]

PrecisionWord = Literal["float32", "float16", "bfloat16", "int8", "int4", "float8", "fp32", "fp16", "bf16", "fp8"]
"""The names that users may write: those above, and short forms."""

Caches = Literal["auto", "int8"]
"""How an engine stores the keys and values that a step reads.

auto: in float16 where products of integers or of bfloat16 made them, else in float32.
"""

_SHORT: Mapping[str, Precision] = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "fp8": "float8"}

WORDS: dict[str, Precision] = {**{name: name for name in get_args(Precision)}, **_SHORT}
"""The number format for each name that users may write."""


def number_format(word: str | None) -> Precision | None:
    """The number format that a word names; None for None. Raises: UserError for another word."""
    if word is not None and word not in WORDS:
        raise UserError(f"precision is {word!r}", hint=f"use {', '.join(WORDS)}")
    return None if word is None else WORDS[word]


def cache_format(word: str | None) -> Caches | None:
    """The number format of caches that a word names; None for None. Raises: UserError for another word."""
    found: tuple[Caches, ...] = get_args(Caches)
    if word is not None and word not in found:
        raise UserError(f"caches is {word!r}", hint=f"use {' or '.join(found)}")
    return next((name for name in found if name == word), None)
