"""The number formats in which an engine may store its weights, as words."""

from typing import Literal, get_args

Precision = Literal["float32", "float16", "bfloat16", "int8", "int4", "float8"]
"""What engine.json calls them."""

PrecisionWord = Literal["fp32", "fp16", "bf16", "int8", "int4", "fp8"]
"""What a command line or a spec calls them, in the same order."""

WORDS: dict[str, Precision] = dict(zip(get_args(PrecisionWord), get_args(Precision), strict=True))
