"""By definition, in PyTorch: products that round each row of what they are given by its own largest number."""

from types import ModuleType
from typing import TYPE_CHECKING

from xformc.compiler.quantize.number_format import LinearMap

if TYPE_CHECKING:
    from torch import Tensor

LARGEST = 127

TINY = 1e-30
"""Stands for the largest number of a row of zeros."""


def rounded_rows_map(torch: ModuleType) -> LinearMap:
    """Each row [.., width] is rounded, half to even, by the scale of 1 / 127 of its largest number."""
    linear = torch.nn.functional.linear

    def apply(x: "Tensor", weight: "Tensor", bias: "Tensor | None" = None) -> "Tensor":
        scale = x.abs().amax(-1, keepdim=True).clamp_min(TINY) / LARGEST
        product = linear((x / scale).round(), weight) * scale
        return product if bias is None else product + bias

    return apply


def reach(torch: ModuleType, x: "Tensor", matrix: "Tensor") -> "Tensor":
    """How far rounding each factor by half a scale of its row may move each result."""
    largest = x.abs().amax(1, keepdim=True).expand_as(x)
    return torch.nn.functional.linear(largest, matrix.abs()) / (2 * LARGEST)
