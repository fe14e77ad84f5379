"""The number formats in which an engine may store its weights, as words."""

from collections.abc import Mapping
from typing import Literal, get_args

Precision = Literal["float32", "float16", "bfloat16", "int8", "int4", "float8"]

PrecisionWord = Literal["float32", "float16", "bfloat16", "int8", "int4", "float8", "fp32", "fp16", "bf16", "fp8"]
"""What users may write: a name as above, or its short form."""

_SHORT: Mapping[str, Precision] = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "fp8": "float8"}

WORDS: dict[str, Precision] = {**{name: name for name in get_args(Precision)}, **_SHORT}
"""The number format that each word names."""
