"""The names of the number formats of an engine's weights."""

from collections.abc import Mapping
from typing import Literal, get_args

Precision = Literal["float32", "float16", "bfloat16", "int8", "int4", "float8"]

PrecisionWord = Literal["float32", "float16", "bfloat16", "int8", "int4", "float8", "fp32", "fp16", "bf16", "fp8"]
"""The names that users may write: those above, and short forms."""

_SHORT: Mapping[str, Precision] = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "fp8": "float8"}

WORDS: dict[str, Precision] = {**{name: name for name in get_args(Precision)}, **_SHORT}
"""The number format for each name that users may write."""
