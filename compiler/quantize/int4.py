"""int4: 4-bit integers with one scale per block of 32 elements of a row.

The kernels of docs/kernels.md and ONNX Runtime's MatMulNBits also quantize the inputs, to 8 bits. With standard
operators the matrix is dequantized: on CPUs once per run of the model, on GPUs next to its reader.
"""

from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from xformc.compiler.graph.rules import OnnxEmitter
from xformc.compiler.graph.weight import Weight
from xformc.compiler.quantize.dequantized import emit_restored, emit_uint8
from xformc.compiler.quantize.elements import Element, pair, to_int4, unpair
from xformc.compiler.quantize.layouts import PANEL, QUAD
from xformc.compiler.quantize.number_format import Layouts, LinearMap, NumberFormat, ProductStage
from xformc.compiler.quantize.rounded_rows import reach, rounded_rows_map
from xformc.compiler.quantize.stored import SCALE, Floats, Layout, Matrix, StoredTensor, short_scales
from xformc.format.targets import Traits

BLOCK = 32
"""The number of adjacent elements of a row that share a scale."""

BLOCKS, INT4_PANELS = ".blocks", ".int4_panels"

NIBBLES = (BLOCK // (2 * QUAD), PANEL, QUAD)
"""The shape of the bytes of one block of 32 rows: each byte has two numbers of one row."""


def round_blocks(matrix: Floats) -> tuple[NDArray[np.int8], Floats]:
    """Quantize symmetrically with a scale per block: q [new, blocks, BLOCK] in -8..7, scale [new, blocks].

    The number with the largest absolute value becomes -8, so a scale may be negative. The last block is zero-padded.
    """
    new, width = matrix.shape
    blocks = -(-width // BLOCK)
    parts = np.pad(matrix, ((0, 0), (0, blocks * BLOCK - width))).reshape(new, blocks, BLOCK)
    largest = np.take_along_axis(parts, np.abs(parts).argmax(2)[..., None], 2)[..., 0]
    scale = short_scales(largest / np.float32(-8))
    rounded = np.clip(np.rint(parts / scale[..., None]), -8, 7)
    return rounded.astype(np.int8), scale


def restore_blocks(rounded: NDArray[np.int8], scale: Floats, width: int) -> Floats:
    """Dequantize the result of `round_blocks`: [new, width]."""
    return (rounded.astype(np.float32) * scale[..., None]).reshape(len(rounded), -1)[:, :width]


def nibble_panels(rounded: NDArray[np.int8], scale: Floats) -> tuple[NDArray[np.uint8], Floats]:
    """Arrange int4 [new, blocks, 32] and its scale [new, blocks] in panels: uint8 [panels, blocks, 4, 32, 4], and
    float32 [panels, blocks, 32], with 0 after the last row.

    A byte has `q + 8` of two numbers that are 4 apart in their row, the first in the lower half.
    """
    new, blocks, _ = rounded.shape
    count = -(-new // PANEL)
    outside = ((0, count * PANEL - new), (0, 0))
    eights = np.pad(rounded, (*outside, (0, 0))).reshape(-1, blocks, NIBBLES[0], 2, QUAD)
    bytes_ = pair(np.ascontiguousarray(np.swapaxes(eights, -1, -2)))[..., 0]
    stored = bytes_.reshape(count, PANEL, blocks, NIBBLES[0], QUAD).transpose(0, 2, 3, 1, 4)
    scales = np.pad(scale, outside).reshape(count, PANEL, blocks).transpose(0, 2, 1)
    return np.ascontiguousarray(stored), np.ascontiguousarray(scales)


def from_nibble_panels(stored: NDArray[np.uint8], scale: Floats) -> tuple[NDArray[np.int8], Floats]:
    """The inverse of `nibble_panels`."""
    count, blocks = stored.shape[:2]
    new = int(np.count_nonzero(scale[:, :1]))
    halves = unpair(stored.transpose(0, 3, 1, 2, 4)[..., None])
    rounded = np.swapaxes(halves, -1, -2).reshape(count * PANEL, blocks, BLOCK)[:new]
    return rounded, scale.transpose(0, 2, 1).reshape(-1, blocks)[:new]


_PANEL_SCALE = ".panel_scale"
"""Panels have scales of their own: another model of the engine may have the same weight by rows or blocks. Engines that
were built before they had a name have them as `SCALE`."""


def _scale(matrix: Matrix, new: int, width: int) -> StoredTensor:
    return StoredTensor(Element.FLOAT, (new, -(-width // BLOCK)), lambda: round_blocks(matrix())[1])


def _store_rows(matrix: Matrix, new: int, width: int) -> dict[str, StoredTensor]:
    def make() -> NDArray[np.uint8]:
        return to_int4(round_blocks(matrix())[0].reshape(new, -1)[:, :width].reshape(-1))

    return {"": StoredTensor(Element.INT4, (new, width), make), SCALE: _scale(matrix, new, width)}


def _read_rows(array: NDArray[Any], scale: NDArray[Any] | None, count: int) -> NDArray[Any] | None:
    if array.ndim != 2 or scale is None or scale.shape != (array.shape[0], -(-array.shape[1] // BLOCK)):
        return None
    return array.astype(np.float32) * np.repeat(scale, BLOCK, 1)[:, : array.shape[1]]


def _store_blocks(matrix: Matrix, new: int, width: int) -> dict[str, StoredTensor]:
    shape = (new, -(-width // BLOCK), BLOCK // 2)
    pairs = StoredTensor(Element.UINT8, shape, lambda: pair(round_blocks(matrix())[0]))
    return {BLOCKS: pairs, SCALE: _scale(matrix, new, width)}


def _read_blocks(array: NDArray[Any], scale: NDArray[Any] | None, count: int) -> NDArray[Any] | None:
    if array.ndim != 3 or scale is None or scale.shape != array.shape[:2]:
        return None
    new, _, pairs = array.shape
    if not new or count % new or pairs * 2 != BLOCK:
        return None
    return restore_blocks(unpair(array), scale, count // new)


def _store_panels(matrix: Matrix, new: int, width: int) -> dict[str, StoredTensor]:
    made = cache(lambda: nibble_panels(*round_blocks(matrix())))
    count, blocks = -(-new // PANEL), -(-width // BLOCK)
    return {
        INT4_PANELS: StoredTensor(Element.UINT8, (count, blocks, *NIBBLES), lambda: made()[0]),
        _PANEL_SCALE: StoredTensor(Element.FLOAT, (count, blocks, PANEL), lambda: made()[1]),
    }


def _read_panels(
    array: NDArray[Any], own: NDArray[Any] | None, other: NDArray[Any] | None, count: int
) -> NDArray[Any] | None:
    scale = other if own is None else own
    if array.ndim != 5 or array.shape[2:] != NIBBLES or scale is None:
        return None
    if scale.shape != (*array.shape[:2], PANEL) or 0 in scale.shape:
        return None
    rounded, scales = from_nibble_panels(array, scale)
    new, blocks, _ = rounded.shape
    if not new or count % new or -(-(count // new) // BLOCK) != blocks:
        return None
    return restore_blocks(rounded, scales, count // new)


class Int4(NumberFormat):
    """`q * scale` with q in -8..7 and one scale per block of 32 elements of a row."""

    precision = "int4"
    layouts: ClassVar[Layouts] = {
        "rows": Layout("", Element.INT4, _store_rows, _read_rows),
        "blocks": Layout(BLOCKS, Element.UINT8, _store_blocks, _read_blocks),
        "panels": Layout(INT4_PANELS, Element.UINT8, _store_panels, _read_panels, beside=(_PANEL_SCALE, SCALE)),
    }
    coarse = True

    def emit_product(self, onnx: OnnxEmitter, rows: str, weight: Weight, bias: Sequence[str]) -> str:
        """MatMulNBits for blocks; otherwise a matrix product with the dequantized matrix."""
        if weight.layout == "blocks":
            sizes = {"N": weight.new, "K": weight.width, "bits": 4, "block_size": BLOCK, "accuracy_level": 4}
            product = onnx.op("MatMulNBits", rows, *weight.tensors, domain="com.microsoft", **sizes)
            return onnx.op("Add", product, *bias) if bias else product
        return onnx.op("Gemm", rows, _emit_restored(onnx, weight), *bias, transB=1)

    def emit_rows(self, onnx: OnnxEmitter, ids: str, weight: Weight) -> str:
        """Rows of the dequantized matrix; with blocks, only the rows that are looked up are dequantized."""
        if weight.layout == "blocks":
            return _emit_block_rows(onnx, ids, weight)
        return onnx.op("Gather", _emit_restored(onnx, weight), ids, axis=0)

    def rounds(self, traits: Traits) -> bool:
        """True for targets with kernels or MatMulNBits."""
        return traits.contrib

    def linear_map(self, torch: ModuleType, input_scale: float | None, traits: Traits) -> LinearMap:
        """Each row of the input is quantized by its own largest absolute value."""
        return rounded_rows_map(torch)

    def product_stage(self, traits: Traits) -> ProductStage:
        """Kernels compute the definition; MatMulNBits has its own rounding, so only an error bound is known."""
        if traits.kernels:
            return super().product_stage(traits)
        what = "int4 matrix products, as a fraction of the error bound of 8-bit inputs"
        return ProductStage(self.precision, what, reach, exact=True)


def _emit_restored(onnx: OnnxEmitter, weight: Weight) -> str:
    """Dequantize the matrix to float32: on GPUs next to its reader, otherwise once per run of the model."""
    if onnx.typed:
        return emit_restored(onnx, weight, axis=1, block=BLOCK)
    return onnx.outermost(f"float32 {weight.tensors[0]}", lambda scope: emit_restored(scope, weight, 1, BLOCK))


def _emit_block_rows(onnx: OnnxEmitter, ids: str, weight: Weight) -> str:
    name, scale = weight.tensors
    pairs = onnx.op("Unsqueeze", onnx.op("Gather", name, ids, axis=0), [-1])
    shifted = onnx.op("BitShift", pairs, emit_uint8(onnx, [0, 4]), direction="RIGHT")
    halves = onnx.op("BitwiseAnd", shifted, emit_uint8(onnx, 15))
    numbers = onnx.op("Sub", onnx.op("Cast", halves, to=Element.FLOAT), 8.0)
    scales = onnx.op("Gather", scale, ids, axis=0)
    blocks = onnx.op("Mul", numbers, onnx.op("Unsqueeze", scales, [-1, -2]))
    shape = onnx.op("Concat", onnx.op("Shape", ids), [-(-weight.width // BLOCK) * BLOCK], axis=0)
    return onnx.op("Slice", onnx.op("Reshape", blocks, shape), [0], [weight.width], [-1])
