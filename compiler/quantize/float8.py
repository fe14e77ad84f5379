"""float8, always E4M3: 253 numbers and one scale for a matrix, the scheme that TensorRT is known to fuse."""

from collections.abc import Sequence
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from xformc.compiler.graph.rules import OnnxEmitter
from xformc.compiler.graph.weight import Weight
from xformc.compiler.quantize.dequantized import emit_quantized_product, emit_restored
from xformc.compiler.quantize.elements import Element
from xformc.compiler.quantize.number_format import Grid, Layouts, NumberFormat, Refusal
from xformc.compiler.quantize.stored import SCALE, Floats, Layout, Matrix, StoredTensor, short_scales
from xformc.format.targets import TRAITS, Target

LARGEST = 448
"""The largest number of E4M3 (Micikevicius et al. 2022, FP8 Formats for Deep Learning, table 1)."""


def round_float8(matrix: Floats) -> tuple[NDArray[np.uint8], Floats]:
    """The bits, and one scale without axes for the whole: `matrix ~ numbers * scale`, ties to even."""
    scale = short_scales(np.abs(matrix).max(initial=0) / np.float32(LARGEST))
    scaled = np.clip(matrix / scale, -LARGEST, LARGEST)
    return scaled.astype(ml_dtypes.float8_e4m3fn).view(np.uint8), scale


def restore_float8(bits: NDArray[np.uint8], scale: Floats) -> Floats:
    """The numbers that `round_float8` stands for."""
    return np.ascontiguousarray(bits).view(ml_dtypes.float8_e4m3fn).astype(np.float32) * scale


def _store(matrix: Matrix, new: int, width: int) -> dict[str, StoredTensor]:
    return {
        "": StoredTensor(Element.FLOAT8E4M3FN, (new, width), lambda: round_float8(matrix())[0]),
        SCALE: StoredTensor(Element.FLOAT, (), lambda: round_float8(matrix())[1]),
    }


def _read(array: NDArray[Any], scale: NDArray[Any] | None, count: int) -> NDArray[Any] | None:
    return None if array.ndim != 2 or scale is None or scale.shape != () else restore_float8(array, scale)


class Float8(NumberFormat):
    """`number * scale` with one scale for the whole matrix, in calibrated products of TensorRT alone."""

    precision = "float8"
    layouts: ClassVar[Layouts] = {"rows": Layout("", Element.FLOAT8E4M3FN, _store, _read)}
    grid = Grid(LARGEST, lambda torch, x: x.clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn).float())
    calibrated_only = True

    def emit_product(self, onnx: OnnxEmitter, rows: str, weight: Weight, bias: Sequence[str]) -> str:
        """Both factors in float8."""
        return emit_quantized_product(onnx, rows, weight, bias, Element.FLOAT8E4M3FN)

    def emit_rows(self, onnx: OnnxEmitter, ids: str, weight: Weight) -> str:
        """Rows of the restored table, because TensorRT takes stored numbers of 8 bits as factors alone."""
        return onnx.op("Gather", emit_restored(onnx, weight), ids, axis=0)

    def refusal(self, target: Target, *, uncalibrated: bool) -> Refusal | None:
        """Only calibrated products are multiplied, only by TensorRT."""
        if not TRAITS[target].calibrated:
            message = f"float8 is multiplied by TensorRT alone, not by an engine of target {target}"
            return Refusal(message, "build with --target tensorrt, or with --precision int8")
        if uncalibrated:
            message = "float8 needs to know how large the numbers are that it is multiplied with"
            hint = "give examples: --calibrate valid.en --calibrate valid.de, or one file, as the task has"
            return Refusal(message, hint)
        return None
