"""Linear maps in PyTorch that round as the products of an engine do: the definitions of docs/precision.md."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn.functional import linear

from xformc.compiler.backends.torch.operators import LinearMap
from xformc.compiler.quantize.rounding import LARGEST_FLOAT8
from xformc.format.precision import Precision


def rounding_map(precision: Precision, input_scale: float | None = None) -> LinearMap:
    """The linear map of a weight in these numbers, where the engine's product rounds what it is given.

    `input_scale` is the step of a calibration; without one each row has its own step.
    """
    return _MAPS[precision] if input_scale is None else _calibrated(ROUND[precision], input_scale)


def round_int8(x: Tensor) -> Tensor:
    """The nearest integers of -128..127, ties to even."""
    return x.round().clamp(-128, 127)


def round_float8(x: Tensor) -> Tensor:
    """The nearest numbers of float8 (E4M3FN), ties to even."""
    return x.clamp(-LARGEST_FLOAT8, LARGEST_FLOAT8).to(torch.float8_e4m3fn).float()


ROUND: Mapping[Precision, Callable[[Tensor], Tensor]] = {"int8": round_int8, "float8": round_float8}
"""How products that are calibrated round what they are given, divided by its step."""


def _calibrated(rounded: Callable[[Tensor], Tensor], step: float) -> LinearMap:
    def apply(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        product = linear(rounded(x / step) * step, weight)
        return product if bias is None else product + bias

    return apply


def _by_rows(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Each row [.., width] is rounded, half to even, to steps of 1 / 127 of its largest number."""
    step = x.abs().amax(-1, keepdim=True).clamp_min(_TINY) / 127
    product = linear((x / step).round(), weight) * step
    return product if bias is None else product + bias


def _half(dtype: torch.dtype) -> LinearMap:
    """Factors and product are rounded to 16 bits; sums are in float32, and so is the bias."""

    def apply(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        product = linear(x.to(dtype).float(), weight.to(dtype).float()).to(dtype).float()
        return product if bias is None else product + bias

    return apply


_MAPS: Mapping[Precision, LinearMap] = {
    "float16": _half(torch.float16),
    "bfloat16": _half(torch.bfloat16),
    "int8": _by_rows,
    "int4": _by_rows,
}

_TINY = 1e-30
"""Stands for the largest number of a row of zeros."""
