"""A parameter as a rule writes it into a model: as a matrix, in the layout that the rule's nodes take."""

from dataclasses import dataclass
from typing import Literal

from xformc.format.precision import Precision

LayoutName = Literal["rows", "blocks", "panels", "screen"]
"""rows: for standard operators. blocks: for ONNX Runtime's own, where a number format has them. panels: for the kernels
of docs/kernels.md. screen: what ScreenCandidates takes beside the rows."""


@dataclass(frozen=True)
class Weight:
    """A parameter that a model stores as a matrix [new, width].

    tensors: the names of its tensors, its numbers first, then its scale if it has one. input_scale: the tensor with the
    scale by which products with this weight round what they are given, where a calibration found one.
    """

    name: str
    precision: Precision
    layout: LayoutName
    new: int
    width: int
    tensors: tuple[str, ...]
    input_scale: str | None = None
