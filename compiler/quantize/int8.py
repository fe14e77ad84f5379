"""int8: 8-bit integers with one scale per row of a matrix.

On CPUs the inputs are quantized as well, each row by its own largest absolute value, so that rows stay independent. On
GPUs, matrix products have 8-bit operands if calibration found an input scale; otherwise only the weights are quantized.
"""

from collections.abc import Sequence
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from xformc.compiler.graph.rules import OnnxEmitter
from xformc.compiler.graph.weight import Weight
from xformc.compiler.quantize.dequantized import emit_quantized_product, emit_restored, emit_uint8
from xformc.compiler.quantize.elements import Element
from xformc.compiler.quantize.layouts import PANEL, PANELS, QUAD
from xformc.compiler.quantize.number_format import Grid, Layouts, LinearMap, NumberFormat
from xformc.compiler.quantize.rounded_rows import LARGEST, TINY, rounded_rows_map
from xformc.compiler.quantize.stored import SCALE, Floats, Layout, Matrix, StoredTensor, short_scales
from xformc.format.targets import Traits

ZERO = 128
"""The zero point of unsigned bytes."""

_INT64 = 7
"""ONNX's number for int64, which is not a format of parameters."""


def round_rows(matrix: Floats) -> tuple[NDArray[np.int8], Floats]:
    """Quantize symmetrically with a scale per row: `matrix ~ q * scale[:, None]`, q in -127..127."""
    scale = short_scales(np.abs(matrix).max(1, initial=0) / np.float32(LARGEST))
    rounded = np.clip(np.rint(matrix / scale[:, None]), -LARGEST, LARGEST)
    return rounded.astype(np.int8), scale


def restore_rows(rounded: NDArray[np.int8], scale: Floats) -> Floats:
    """Dequantize the result of `round_rows`."""
    return rounded.astype(np.float32) * scale[:, None]


def byte_panels(rounded: NDArray[np.int8]) -> NDArray[np.uint8]:
    """int8 [new, width] -> uint8 [ceil(new / 32), ceil(width / 4), 32, 4] of `q + 128`, padded with 128 (zero)."""
    new, width = rounded.shape
    count, quads = -(-new // PANEL), -(-width // QUAD)
    padded = np.pad(rounded, ((0, count * PANEL - new), (0, quads * QUAD - width))).view(np.uint8) ^ np.uint8(ZERO)
    return np.ascontiguousarray(padded.reshape(count, PANEL, quads, QUAD).transpose(0, 2, 1, 3))


def from_byte_panels(stored: NDArray[np.uint8], new: int, width: int) -> NDArray[np.int8]:
    """The inverse of `byte_panels`: the matrix [new, width]."""
    flat = stored.transpose(0, 2, 1, 3).reshape(-1, stored.shape[1] * QUAD)[:new, :width]
    return np.ascontiguousarray(flat ^ np.uint8(ZERO)).view(np.int8)


def _store_rows(matrix: Matrix, new: int, width: int) -> dict[str, StoredTensor]:
    return {
        "": StoredTensor(Element.INT8, (new, width), lambda: round_rows(matrix())[0]),
        SCALE: StoredTensor(Element.FLOAT, (new,), lambda: round_rows(matrix())[1]),
    }


def _read_rows(array: NDArray[Any], scale: NDArray[Any] | None, count: int) -> NDArray[Any] | None:
    if array.ndim != 2 or scale is None or scale.shape != array.shape[:1]:
        return None
    return restore_rows(array, scale)


def _store_panels(matrix: Matrix, new: int, width: int) -> dict[str, StoredTensor]:
    shape = (-(-new // PANEL), -(-width // QUAD), PANEL, QUAD)
    return {
        PANELS: StoredTensor(Element.UINT8, shape, lambda: byte_panels(round_rows(matrix())[0])),
        SCALE: StoredTensor(Element.FLOAT, (new,), lambda: round_rows(matrix())[1]),
    }


def _read_panels(array: NDArray[Any], scale: NDArray[Any] | None, count: int) -> NDArray[Any] | None:
    if scale is None or scale.ndim != 1 or not scale.size or count % scale.size:
        return None
    new, width = scale.size, count // scale.size
    if array.shape != (-(-new // PANEL), -(-width // QUAD), PANEL, QUAD):
        return None
    return restore_rows(from_byte_panels(array, new, width), scale)


class Int8(NumberFormat):
    """`q * scale` with q in -127..127 and one scale per row."""

    precision = "int8"
    layouts: ClassVar[Layouts] = {
        "rows": Layout("", Element.INT8, _store_rows, _read_rows),
        "panels": Layout(PANELS, Element.UINT8, _store_panels, _read_panels),
    }
    grid = Grid(LARGEST, lambda torch, x: x.round().clamp(-128, LARGEST))
    coarse = True

    def emit_product(self, onnx: OnnxEmitter, rows: str, weight: Weight, bias: Sequence[str]) -> str:
        """`scale_x * scale * sum(q_x * q)` with an exact sum (docs/kernels.md); on GPUs with calibrated scales."""
        if onnx.typed:
            return emit_quantized_product(onnx, rows, weight, bias, Element.INT8)
        name, scale = weight.tensors
        columns = onnx.once(f"columns {name}", lambda: onnx.op("Transpose", name, perm=[1, 0]))
        row_scale = onnx.once(f"scale of {rows}", lambda: _emit_scale(onnx, rows))
        rounded = onnx.once(f"int8 {rows}", lambda: _emit_rounded(onnx, rows, row_scale))
        total = onnx.either(
            onnx.outermost("signed products are exact", emit_signed_products_are_exact),
            lambda branch: _emit_sum(branch, rounded, columns),
            lambda branch: _emit_sum(branch, rounded, _emit_unsigned(branch, columns), emit_uint8(branch, ZERO)),
        )
        product = onnx.op("Mul", onnx.op("Mul", total, scale), row_scale)
        return onnx.op("Add", product, *bias) if bias else product

    def emit_rows(self, onnx: OnnxEmitter, ids: str, weight: Weight) -> str:
        """Dequantize the rows that are looked up; on GPUs all rows, as TensorRT reads integers only as operands."""
        if onnx.typed:
            return onnx.op("Gather", emit_restored(onnx, weight), ids, axis=0)
        name, scale = weight.tensors
        rows = onnx.op("Cast", onnx.op("Gather", name, ids, axis=0), to=Element.FLOAT)
        return onnx.op("Mul", rows, onnx.op("Unsqueeze", onnx.op("Gather", scale, ids, axis=0), [-1]))

    def rounds(self, traits: Traits) -> bool:
        """True for CPU targets."""
        return not traits.typed

    def linear_map(self, torch: ModuleType, input_scale: float | None, traits: Traits) -> LinearMap:
        """Without calibration, each row of the input has its own scale."""
        return rounded_rows_map(torch) if input_scale is None else super().linear_map(torch, input_scale, traits)


def emit_signed_products_are_exact(onnx: OnnxEmitter) -> str:
    """Whether MatMulInteger is exact for uint8 and int8: on x86 without VNNI, ONNX Runtime accumulates in 16 bits.

    ONNX Runtime evaluates this when it loads the model, and keeps only the branch of each If that this CPU needs.
    """
    largest = onnx.op("Cast", [255, 255], to=Element.UINT8), onnx.op("Cast", [127, 127], to=Element.INT8)
    total = onnx.op("Cast", onnx.op("MatMulInteger", *largest), to=_INT64)
    return onnx.op("Equal", total, 2 * 255 * 127)


def _emit_sum(onnx: OnnxEmitter, rounded: str, columns: str, *zero: str) -> str:
    total = onnx.op("MatMulInteger", rounded, columns, emit_uint8(onnx, ZERO), *zero)
    return onnx.op("Cast", total, to=Element.FLOAT)


def _emit_unsigned(onnx: OnnxEmitter, columns: str) -> str:
    """int8 as uint8 with zero point 128; slower to multiply if both are exact."""
    return onnx.op("Cast", onnx.op("Add", onnx.op("Cast", columns, to=Element.FLOAT), float(ZERO)), to=Element.UINT8)


def _emit_scale(onnx: OnnxEmitter, rows: str) -> str:
    """The scale of each row [rows, 1]: its largest absolute value / 127."""
    largest = onnx.op("ReduceMax", onnx.op("Abs", rows), [-1], keepdims=1)
    return onnx.op("Div", onnx.op("Max", largest, TINY), float(LARGEST))


def _emit_rounded(onnx: OnnxEmitter, rows: str, scale: str) -> str:
    """Quantize the rows to uint8 with zero point 128, the fastest input of ONNX Runtime's integer product."""
    scales = onnx.op("Squeeze", scale, [-1])
    zeros = onnx.op("Expand", emit_uint8(onnx, ZERO), onnx.op("Shape", scales))
    return onnx.op("QuantizeLinear", rows, scales, zeros, axis=0)
