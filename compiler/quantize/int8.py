"""int8: integers with a scale for each row of a matrix.

On processors what comes in is rounded, too, each row by its own largest number, so that no row depends on another. On
GPUs products are of 8 bits where a calibration found the scale of what comes in; otherwise weights alone are rounded.
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
"""What stands for 0 in unsigned bytes."""

_INT64 = 7
"""ONNX's number for int64, which no parameter is stored in."""


def round_rows(matrix: Floats) -> tuple[NDArray[np.int8], Floats]:
    """Symmetric, a scale for each row: `matrix ~ q * scale[:, None]`, q in -127..127."""
    scale = short_scales(np.abs(matrix).max(1, initial=0) / np.float32(LARGEST))
    rounded = np.clip(np.rint(matrix / scale[:, None]), -LARGEST, LARGEST)
    return rounded.astype(np.int8), scale


def restore_rows(rounded: NDArray[np.int8], scale: Floats) -> Floats:
    """The numbers that `round_rows` stands for."""
    return rounded.astype(np.float32) * scale[:, None]


def byte_panels(rounded: NDArray[np.int8]) -> NDArray[np.uint8]:
    """int8 [new, width] -> uint8 [ceil(new / 32), ceil(width / 4), 32, 4] of `q + 128`, which stands for 0 outside."""
    new, width = rounded.shape
    count, quads = -(-new // PANEL), -(-width // QUAD)
    padded = np.pad(rounded, ((0, count * PANEL - new), (0, quads * QUAD - width))).view(np.uint8) ^ np.uint8(ZERO)
    return np.ascontiguousarray(padded.reshape(count, PANEL, quads, QUAD).transpose(0, 2, 1, 3))


def from_byte_panels(stored: NDArray[np.uint8], new: int, width: int) -> NDArray[np.int8]:
    """The matrix [new, width] of `byte_panels`."""
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
    """`q * scale` with q in -127..127 and a scale for each row."""

    precision = "int8"
    layouts: ClassVar[Layouts] = {
        "rows": Layout("", Element.INT8, _store_rows, _read_rows),
        "panels": Layout(PANELS, Element.UINT8, _store_panels, _read_panels),
    }
    grid = Grid(LARGEST, lambda torch, x: x.round().clamp(-128, LARGEST))
    coarse = True

    def emit_product(self, onnx: OnnxEmitter, rows: str, weight: Weight, bias: Sequence[str]) -> str:
        """`scale_x * scale * sum(q_x * q)`, as docs/kernels.md has it, the sum exact; on GPUs by calibrated scales."""
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
        """Rows that are looked up are restored; on GPUs all are, because TensorRT takes integers as factors alone."""
        if onnx.typed:
            return onnx.op("Gather", emit_restored(onnx, weight), ids, axis=0)
        name, scale = weight.tensors
        rows = onnx.op("Cast", onnx.op("Gather", name, ids, axis=0), to=Element.FLOAT)
        return onnx.op("Mul", rows, onnx.op("Unsqueeze", onnx.op("Gather", scale, ids, axis=0), [-1]))

    def rounds(self, traits: Traits) -> bool:
        """On processors."""
        return not traits.typed

    def linear_map(self, torch: ModuleType, input_scale: float | None) -> LinearMap:
        """Rows by their own scales where there is no calibration."""
        return rounded_rows_map(torch) if input_scale is None else super().linear_map(torch, input_scale)


def emit_signed_products_are_exact(onnx: OnnxEmitter) -> str:
    """Whether MatMulInteger is exact for uint8 and int8: on x86 without VNNI, ONNX Runtime adds them up in 16 bits.

    ONNX Runtime computes this when it loads the model, and keeps the one branch of each If that this processor needs.
    """
    largest = onnx.op("Cast", [255, 255], to=Element.UINT8), onnx.op("Cast", [127, 127], to=Element.INT8)
    total = onnx.op("Cast", onnx.op("MatMulInteger", *largest), to=_INT64)
    return onnx.op("Equal", total, 2 * 255 * 127)


def _emit_sum(onnx: OnnxEmitter, rounded: str, columns: str, *zero: str) -> str:
    total = onnx.op("MatMulInteger", rounded, columns, emit_uint8(onnx, ZERO), *zero)
    return onnx.op("Cast", total, to=Element.FLOAT)


def _emit_unsigned(onnx: OnnxEmitter, columns: str) -> str:
    """int8 as uint8 around 128: slower to multiply where both are exact."""
    return onnx.op("Cast", onnx.op("Add", onnx.op("Cast", columns, to=Element.FLOAT), float(ZERO)), to=Element.UINT8)


def _emit_scale(onnx: OnnxEmitter, rows: str) -> str:
    """What 1 stands for in each row [rows, 1]: its largest number without sign / 127."""
    largest = onnx.op("ReduceMax", onnx.op("Abs", rows), [-1], keepdims=1)
    return onnx.op("Div", onnx.op("Max", largest, TINY), float(LARGEST))


def _emit_rounded(onnx: OnnxEmitter, rows: str, scale: str) -> str:
    """The rows as uint8 around 128: the integer product of ONNX Runtime is fastest for these."""
    scales = onnx.op("Squeeze", scale, [-1])
    zeros = onnx.op("Expand", emit_uint8(onnx, ZERO), onnx.op("Shape", scales))
    return onnx.op("QuantizeLinear", rows, scales, zeros, axis=0)
