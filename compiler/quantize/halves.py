"""float16 and bfloat16: half the space, and on GPUs products in 16 bits.

Targets of processors only save space: weights become float32 when the model is loaded. On GPUs a product is computed in
the numbers that a model's types say: both factors and the result have 16 bits there.
"""

from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from xformc.compiler.graph.rules import OnnxEmitter
from xformc.compiler.graph.weight import Weight
from xformc.compiler.quantize.elements import Element
from xformc.compiler.quantize.layouts import PANELS, panel_layout, row_layout
from xformc.compiler.quantize.number_format import Layouts, LinearMap, NumberFormat, ProductStage
from xformc.compiler.quantize.stored import Floats
from xformc.errors import UserError
from xformc.format.targets import Traits

if TYPE_CHECKING:
    from torch import Tensor


class Half(NumberFormat):
    """A format of 16 bits without a scale. bits: how many of a number it has after the first."""

    element: ClassVar[Element]
    bits: ClassVar[int]
    emulated = True

    def emit_product(self, onnx: OnnxEmitter, rows: str, weight: Weight, bias: Sequence[str]) -> str:
        """On a processor with weights in float32; else both factors and the result in 16 bits, the bias in float32."""
        (name,) = weight.tensors
        if not onnx.typed:
            return onnx.op("Gemm", rows, _widened(onnx, name), *bias, transB=1)
        element = self.element
        narrow = onnx.once(f"{element} {rows}", lambda: onnx.op("Cast", rows, to=element))
        if onnx.emulated:
            wide = _widened(onnx, name)
            exact = onnx.op("Gemm", onnx.op("Cast", narrow, to=Element.FLOAT), wide, transB=1)
            product = onnx.op("Cast", exact, to=element)
        else:
            product = onnx.op("Gemm", narrow, name, transB=1)
        result = onnx.op("Cast", product, to=Element.FLOAT)
        return onnx.op("Add", result, *bias) if bias else result

    def emit_rows(self, onnx: OnnxEmitter, ids: str, weight: Weight) -> str:
        """Gather, then Cast."""
        (name,) = weight.tensors
        return onnx.op("Cast", onnx.op("Gather", name, ids, axis=0), to=Element.FLOAT)

    def rounds(self, traits: Traits) -> bool:
        """Where products are in 16 bits."""
        return traits.typed

    def linear_map(self, torch: ModuleType, input_scale: float | None) -> LinearMap:
        """Factors and product are rounded to 16 bits; sums are in float32, and so is the bias."""
        dtype, linear = getattr(torch, self.precision), torch.nn.functional.linear

        def apply(x: "Tensor", weight: "Tensor", bias: "Tensor | None" = None) -> "Tensor":
            product = linear(x.to(dtype).float(), weight.to(dtype).float()).to(dtype).float()
            return product if bias is None else product + bias

        return apply

    def product_stage(self, traits: Traits) -> ProductStage:
        """A result may be the next number of 16 bits."""
        what = "products in 16 bits, as a part of a unit in the last place of the definition's"
        return ProductStage("half", what, self._reach)

    def _reach(self, torch: ModuleType, x: "Tensor", matrix: "Tensor") -> "Tensor":
        return torch.nn.functional.linear(x, matrix).abs() * 2.0**-self.bits


def to_float16(matrix: Floats) -> NDArray[np.float16]:
    """The nearest float16, ties to even."""
    return matrix.astype(np.float16)


def to_bfloat16(matrix: Floats) -> NDArray[np.uint16]:
    """The nearest bfloat16, ties to even, as the upper half of a float32's bits."""
    bits = np.ascontiguousarray(matrix, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bfloat16(halves: NDArray[np.uint16]) -> Floats:
    """The same numbers in float32."""
    return (halves.astype(np.uint32) << 16).view(np.float32)


class Float16(Half):
    """IEEE's half precision; it ends at 65,504."""

    precision = "float16"
    element, bits = Element.FLOAT16, 10
    layouts: ClassVar[Layouts] = {
        "rows": row_layout(Element.FLOAT16, to_float16, lambda array: array),
        "panels": panel_layout(".fp16_panels", Element.UINT16, to_float16, lambda array: array.view(np.float16)),
    }

    def check(self, matrix: Floats, path: str) -> None:
        """Raises: UserError for numbers beyond its end."""
        super().check(matrix, path)
        largest = float(np.abs(matrix).max(initial=0))
        if largest > float(np.finfo(np.float16).max):
            hint = "use bfloat16, which reaches as far as float32"
            raise UserError(f"a weight is {largest:.3g}, and float16 ends at 65,504", place=path, hint=hint)


class BFloat16(Half):
    """The upper half of a float32."""

    precision = "bfloat16"
    element, bits = Element.BFLOAT16, 7
    layouts: ClassVar[Layouts] = {
        "rows": row_layout(Element.BFLOAT16, to_bfloat16, from_bfloat16),
        "panels": panel_layout(PANELS, Element.UINT16, to_bfloat16, from_bfloat16),
    }


def _widened(onnx: OnnxEmitter, name: str) -> str:
    return onnx.once(f"float32 {name}", lambda: onnx.op("Cast", name, to=Element.FLOAT))
