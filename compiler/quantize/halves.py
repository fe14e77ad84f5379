"""float16 and bfloat16: half the memory, and 16-bit matrix products on GPUs.

CPU targets only save memory: weights are converted to float32 when the model is loaded. On GPUs, the operands and the
result of a matrix product have 16 bits.
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
    """A 16-bit float format without a scale. bits: the stored bits of its mantissa."""

    element: ClassVar[Element]
    bits: ClassVar[int]
    emulated = True

    def emit_product(self, onnx: OnnxEmitter, rows: str, weight: Weight, bias: Sequence[str]) -> str:
        """On CPUs in float32; otherwise operands and result in 16 bits, and the bias in float32."""
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
        """True for targets with 16-bit matrix products."""
        return traits.typed

    def linear_map(self, torch: ModuleType, input_scale: float | None) -> LinearMap:
        """Operands and product are rounded to 16 bits; sums and bias are in float32."""
        dtype, linear = getattr(torch, self.precision), torch.nn.functional.linear

        def apply(x: "Tensor", weight: "Tensor", bias: "Tensor | None" = None) -> "Tensor":
            product = linear(x.to(dtype).float(), weight.to(dtype).float()).to(dtype).float()
            return product if bias is None else product + bias

        return apply

    def product_stage(self, traits: Traits) -> ProductStage:
        """A result may differ by one unit in the last place."""
        what = "16-bit matrix products, in units in the last place of the definition"
        return ProductStage("half", what, self._reach)

    def _reach(self, torch: ModuleType, x: "Tensor", matrix: "Tensor") -> "Tensor":
        return torch.nn.functional.linear(x, matrix).abs() * 2.0**-self.bits


def to_float16(matrix: Floats) -> NDArray[np.float16]:
    """Convert to float16, ties to even."""
    return matrix.astype(np.float16)


def to_bfloat16(matrix: Floats) -> NDArray[np.uint16]:
    """Convert to bfloat16, ties to even, as the upper 16 bits of a float32."""
    bits = np.ascontiguousarray(matrix, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bfloat16(halves: NDArray[np.uint16]) -> Floats:
    """Convert to float32."""
    return (halves.astype(np.uint32) << 16).view(np.float32)


class Float16(Half):
    """IEEE half precision; its largest number is 65,504."""

    precision = "float16"
    element, bits = Element.FLOAT16, 10
    layouts: ClassVar[Layouts] = {
        "rows": row_layout(Element.FLOAT16, to_float16, lambda array: array),
        "panels": panel_layout(".fp16_panels", Element.UINT16, to_float16, lambda array: array.view(np.float16)),
    }

    def check(self, matrix: Floats, path: str) -> None:
        """Raises: UserError for numbers out of range."""
        super().check(matrix, path)
        largest = float(np.abs(matrix).max(initial=0))
        if largest > float(np.finfo(np.float16).max):
            hint = "use bfloat16, which has the range of float32"
            raise UserError(f"a weight is {largest:.3g}, above the float16 maximum of 65,504", place=path, hint=hint)


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
