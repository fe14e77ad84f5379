"""The interface of number formats: storage, matrix products, calibration and certificate of weights."""

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
"""Takes rows [.., width], a matrix [new, width] and a bias [new] or None; returns [.., new]."""


@dataclass(frozen=True)
class Grid:
    """The numbers of the quantized inputs of calibrated matrix products, after division by the scale.

    largest: the largest number. nearest(torch, x): round x to the nearest number, ties to even.
    """

    largest: int
    nearest: "Callable[[ModuleType, Tensor], Tensor]"


@dataclass(frozen=True)
class ProductStage:
    """The certificate's stage for matrix products with quantized inputs.

    what: what is compared, after the count. reach(torch, rows [.., width], matrix): the error bound of each result, or
    None if results equal the definition up to float32 rounding. exact: compare with products of unquantized inputs, not
    with the definition.
    """

    name: str
    what: str
    reach: "Callable[[ModuleType, Tensor, Tensor], Tensor] | None" = None
    exact: bool = False


@dataclass(frozen=True)
class Refusal:
    """Why a target cannot use a number format, and a hint."""

    message: str
    hint: str


class NumberFormat(ABC):
    """A number format of weights. Each is defined in one file; `formats.FORMATS` lists them.

    precision: its name in engine.json. layouts: the layouts of a matrix, at least rows; without panels, target native
    uses standard operators. grid: the numbers of quantized inputs, if its matrix products can be calibrated;
    `calibrated_only` if they must be. emulated: ONNX Runtime has no such products on CPUs, so certificates emulate
    them. coarse: its products are much less precise than float16, so attention may store keys and values computed by
    them in float16.
    """

    precision: ClassVar[Precision]
    layouts: ClassVar[Layouts]
    grid: ClassVar[Grid | None] = None
    calibrated_only: ClassVar[bool] = False
    emulated: ClassVar[bool] = False
    coarse: ClassVar[bool] = False

    def check(self, matrix: Floats, path: str) -> None:
        """Raises: UserError if the format cannot represent a parameter's numbers."""
        if not np.isfinite(np.abs(matrix).max(initial=0)):
            raise UserError("has values that are not finite, which cannot be quantized", place=path)

    @abstractmethod
    def emit_product(self, onnx: OnnxEmitter, rows: str, weight: Weight, bias: Sequence[str]) -> str:
        """`rows [rows, width] * weight^T + bias` as [rows, new]; `bias` has one name or none."""

    @abstractmethod
    def emit_rows(self, onnx: OnnxEmitter, ids: str, weight: Weight) -> str:
        """Look up rows of a table [new, width]: [.., width] for ids [..]."""

    def rounds(self, traits: Traits) -> bool:
        """Whether a target's matrix products quantize their inputs without calibration."""
        return False

    def linear_map(self, torch: ModuleType, input_scale: float | None, traits: Traits) -> LinearMap:
        """The definition of matrix products with quantized inputs, with a calibrated input scale or without one."""
        grid = self.grid
        assert grid is not None and input_scale is not None, (
            f"products with {self.precision} do not quantize their inputs"
        )

        def apply(x: "Tensor", weight: "Tensor", bias: "Tensor | None") -> "Tensor":
            product = torch.nn.functional.linear(grid.nearest(torch, x / input_scale) * input_scale, weight)
            return product if bias is None else product + bias

        return apply

    def product_stage(self, traits: Traits) -> ProductStage:
        """How a certificate compares matrix products with quantized inputs."""
        return ProductStage(self.precision, f"matrix products with {self.precision} and their definition")

    def refusal(self, target: Target, *, uncalibrated: bool) -> Refusal | None:
        """Why a target cannot use the format, or None; `uncalibrated`: there are no calibration examples."""
        return None
