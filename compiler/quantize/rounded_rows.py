"""The definition, in PyTorch, of rows that are quantized by their largest absolute value.

They are the inputs of matrix products, and the keys and values that a decoder keeps.
"""

from types import ModuleType
from typing import TYPE_CHECKING

from xformc.compiler.quantize.number_format import LinearMap

if TYPE_CHECKING:
    from torch import Tensor

LARGEST = 127

TINY = 1e-30
"""The least largest value of a row, for rows of zeros."""


def rounded_rows(x: "Tensor") -> "Tensor":
    """Each row [.., width], quantized, ties to even, with a scale of 1 / 127 of its largest absolute value."""
    scale = x.abs().amax(-1, keepdim=True).clamp_min(TINY) / LARGEST
    return (x / scale).round() * scale


def rounded_rows_map(torch: ModuleType) -> LinearMap:
    """Quantize each row [.., width], ties to even, with a scale of 1 / 127 of its largest absolute value."""
    linear = torch.nn.functional.linear

    def apply(x: "Tensor", weight: "Tensor", bias: "Tensor | None" = None) -> "Tensor":
        scale = x.abs().amax(-1, keepdim=True).clamp_min(TINY) / LARGEST
        product = linear((x / scale).round(), weight) * scale
        return product if bias is None else product + bias

    return apply


def reach(torch: ModuleType, x: "Tensor", matrix: "Tensor") -> "Tensor":
    """The error bound of each result if each input is off by at most half the scale of its row."""
    largest = x.abs().amax(1, keepdim=True).expand_as(x)
    return torch.nn.functional.linear(largest, matrix.abs()) / (2 * LARGEST)
