"""float16 and bfloat16: half the memory, and 16-bit matrix products.

On GPUs, the operands and the result of a matrix product have 16 bits. On CPUs the operands do in bfloat16, and sums are
in float32; in float16 only memory is saved, and weights are converted to float32.
"""

from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from xformc.compiler.graph.rules import OnnxEmitter
from xformc.compiler.graph.weight import Weight
from xformc.compiler.quantize.elements import Element
from xformc.compiler.quantize.layouts import (
    PAIR,
    PANEL,
    PANELS,
    from_pairs,
    paired_shape,
    panel_layout,
    row_layout,
    to_pairs,
)
from xformc.compiler.quantize.number_format import Layouts, LinearMap, NumberFormat, ProductStage
from xformc.compiler.quantize.stored import Floats, Layout, Matrix, StoredTensor
from xformc.errors import UserError
from xformc.format.targets import Traits

if TYPE_CHECKING:
    from torch import Tensor


MINUS_ZERO = 0x8000
"""-0 in bfloat16."""


class Half(NumberFormat):
    """A 16-bit float format without a scale.

    bits: the stored bits of its mantissa. rounds_on_cpus: products round their inputs there, too.
    """

    element: ClassVar[Element]
    bits: ClassVar[int]
    rounds_on_cpus: ClassVar[bool] = False
    emulated = True

    def emit_product(self, onnx: OnnxEmitter, rows: str, weight: Weight, bias: Sequence[str]) -> str:
        """On CPUs sums in float32; otherwise operands and result in 16 bits, and the bias in float32."""
        (name,) = weight.tensors
        element = self.element
        if not onnx.typed and not self.rounds_on_cpus:
            return onnx.op("Gemm", rows, _widened(onnx, name), *bias, transB=1)
        narrow = onnx.once(f"{element} {rows}", lambda: onnx.op("Cast", rows, to=element))
        if not onnx.typed:
            return onnx.op("Gemm", _widened(onnx, narrow), _widened(onnx, name), *bias, transB=1)
        if onnx.emulated:
            exact = onnx.op("Gemm", _widened(onnx, narrow), _widened(onnx, name), transB=1)
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
        """True on GPUs, and for bfloat16 everywhere."""
        return traits.typed or self.rounds_on_cpus

    def linear_map(self, torch: ModuleType, input_scale: float | None, traits: Traits) -> LinearMap:
        """Operands, and on GPUs the product, are rounded to 16 bits; sums and bias are in float32."""
        dtype, linear = getattr(torch, self.precision), torch.nn.functional.linear

        def apply(x: "Tensor", weight: "Tensor", bias: "Tensor | None" = None) -> "Tensor":
            product = linear(x.to(dtype).float(), weight.to(dtype).float())
            product = product.to(dtype).float() if traits.typed else product
            return product if bias is None else product + bias

        return apply

    def product_stage(self, traits: Traits) -> ProductStage:
        """On GPUs, a result may differ by one unit in the last place."""
        if not traits.typed:
            return super().product_stage(traits)
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


def pair_panels(halves: NDArray[np.uint16]) -> NDArray[np.uint16]:
    """bfloat16 [new, width] -> [ceil(new / 32), ceil(width / 2), 32, 2], with 0 after the last row.

    An odd width is followed by -0. No weight is stored as -0, so this tells the width.
    """
    new, width = halves.shape
    count, pairs, _, _ = paired_shape(new, width)
    padded = np.zeros((count * PANEL, pairs * PAIR), np.uint16)
    padded[:new, :width] = np.where(halves == MINUS_ZERO, 0, halves)
    padded[:, width:] = MINUS_ZERO
    return to_pairs(padded)


def from_pair_panels(stored: NDArray[np.uint16], count: int) -> NDArray[np.uint16] | None:
    """The inverse of `pair_panels`, for a matrix of `count` numbers: bfloat16 [new, width], or None if none fits."""
    if not stored.size:
        return None
    rows = from_pairs(stored)
    width = rows.shape[1] - int((rows[:, -1] == MINUS_ZERO).all())
    new = count // width if count % width == 0 else 0
    return rows[:new, :width] if new and -(-new // PANEL) == stored.shape[0] else None


def _store_pairs(matrix: Matrix, new: int, width: int) -> dict[str, StoredTensor]:
    shape = paired_shape(new, width)
    return {PANELS: StoredTensor(Element.UINT16, shape, lambda: pair_panels(to_bfloat16(matrix())))}


def _read_pairs(array: NDArray[Any], scale: NDArray[Any] | None, count: int) -> NDArray[Any] | None:
    if array.ndim != 4 or array.shape[2:] != (PANEL, PAIR):
        return None
    halves = from_pair_panels(array, count)
    return None if halves is None else from_bfloat16(np.ascontiguousarray(halves))


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
    element, bits, rounds_on_cpus, coarse = Element.BFLOAT16, 7, True, True
    layouts: ClassVar[Layouts] = {
        "rows": row_layout(Element.BFLOAT16, to_bfloat16, from_bfloat16),
        "panels": Layout(PANELS, Element.UINT16, _store_pairs, _read_pairs),
    }


def _widened(onnx: OnnxEmitter, name: str) -> str:
    return onnx.once(f"float32 {name}", lambda: onnx.op("Cast", name, to=Element.FLOAT))
