"""What a number format of weights is: all that storing, multiplying, calibrating and certifying asks of it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from xformc.compiler.graph.rules import OnnxEmitter
from xformc.compiler.graph.weight import LayoutName, Weight
from xformc.compiler.quantize.stored import Floats, Layout
from xformc.errors import UserError
from xformc.format.precision import Precision
from xformc.format.targets import Target, Traits

if TYPE_CHECKING:
    from torch import Tensor

Layouts = Mapping[LayoutName, Layout]

LinearMap = Callable[["Tensor", "Tensor", "Tensor | None"], "Tensor"]
"""Of (rows [.., width], matrix [new, width], bias [new] or None): [.., new]."""


@dataclass(frozen=True)
class Grid:
    """What calibrated products round to, once their factor is divided by its scale.

    largest: the largest number of it. nearest: of (the torch module, x), the nearest of its numbers, ties to even.
    """

    largest: int
    nearest: "Callable[[ModuleType, Tensor], Tensor]"


@dataclass(frozen=True)
class ProductStage:
    """The certificate's stage of products that round what they are given.

    what: what is compared, after how many there are. reach: of (the torch module, rows [.., width], matrix), how far
    each result may be off; None where each result is the definition's but for what float32 rounds. exact: products are
    compared with those of factors that are not rounded, not with their definition.
    """

    name: str
    what: str
    reach: "Callable[[ModuleType, Tensor, Tensor], Tensor] | None" = None
    exact: bool = False


@dataclass(frozen=True)
class Refusal:
    """Why an engine cannot be built with a format, and what to do."""

    message: str
    hint: str


class NumberFormat(ABC):
    """A number format of weights. One file has all of it; `formats.FORMATS` lists them.

    precision: its name in engine.json. layouts: how a matrix may be stored; rows at least, and without panels target
    native multiplies it by standard operators. grid: what calibrated products round to, if they can be calibrated;
    `calibrated_only` if all must be. emulated: ONNX Runtime has no such products on a processor, so a certificate runs
    them emulated where they round. coarse: its products round much more than float16 does, so the keys and values that
    attention keeps of them may be float16.
    """

    precision: ClassVar[Precision]
    layouts: ClassVar[Layouts]
    grid: ClassVar[Grid | None] = None
    calibrated_only: ClassVar[bool] = False
    emulated: ClassVar[bool] = False
    coarse: ClassVar[bool] = False

    def check(self, matrix: Floats, path: str) -> None:
        """Raises: UserError where the format cannot hold a parameter's numbers."""
        if not np.isfinite(np.abs(matrix).max(initial=0)):
            raise UserError("has values that are not finite, which cannot be rounded", place=path)

    @abstractmethod
    def emit_product(self, onnx: OnnxEmitter, rows: str, weight: Weight, bias: Sequence[str]) -> str:
        """`rows [.., width] * weight^T + bias` as [rows, new]; `bias` has one name or none, rows are a matrix."""

    @abstractmethod
    def emit_rows(self, onnx: OnnxEmitter, ids: str, weight: Weight) -> str:
        """The rows of a table [new, width]: [.., width] for ids [..]."""

    def rounds(self, traits: Traits) -> bool:
        """Whether products of a target, where they are not calibrated, round what they are given."""
        return False

    def linear_map(self, torch: ModuleType, input_scale: float | None) -> LinearMap:
        """The definition of products that round what they are given: by the scale of a calibration, or without one."""
        grid = self.grid
        assert grid is not None and input_scale is not None, f"products with {self.precision} round nothing"

        def apply(x: "Tensor", weight: "Tensor", bias: "Tensor | None") -> "Tensor":
            product = torch.nn.functional.linear(grid.nearest(torch, x / input_scale) * input_scale, weight)
            return product if bias is None else product + bias

        return apply

    def product_stage(self, traits: Traits) -> ProductStage:
        """How a certificate compares the products that round."""
        return ProductStage(self.precision, f"products with {self.precision} and their definition")

    def refusal(self, target: Target, *, uncalibrated: bool) -> Refusal | None:
        """Why engines of a target cannot have weights in it; `uncalibrated`: of products, without examples."""
        return None
