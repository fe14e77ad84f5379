"""The number formats in which an engine may store its weights."""

from typing import Literal, get_args

Precision = Literal["float32", "float16", "bfloat16", "int8", "int4", "float8"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)

PrecisionWord = Literal["fp32", "fp16", "bf16", "int8", "int4", "fp8"]
"""What a command line or a spec calls them."""

WORDS: dict[str, Precision] = {
    "fp32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "int8": "int8",
    "int4": "int4",
    "fp8": "float8",
}
