"""A parameter as a rule writes it into a model: as a matrix, in the layout that the rule's nodes expect."""

from dataclasses import dataclass
from typing import Literal

from xformc.format.precision import Precision

LayoutName = Literal["rows", "blocks", "panels", "screened"]
"""rows: for standard operators. blocks: for ONNX Runtime's own, if the number format has them. panels: for the kernels
of docs/kernels.md. screened: for the kernels, precise enough to rule out most logits of a vocabulary early."""


@dataclass(frozen=True)
class Weight:
    """A parameter that a model stores as a matrix [new, width].

    tensors: the names of its tensors, the values first, then the scale if it has one. input_scale: the tensor with the
    calibrated scale for quantizing the inputs of matrix products with this weight, if there is one.
    """

    name: str
    precision: Precision
    layout: LayoutName
    new: int
    width: int
    tensors: tuple[str, ...]
    input_scale: str | None = None
