"""float32: the format of training, and the default of engines."""

from collections.abc import Sequence
from typing import ClassVar

from xformc.compiler.graph.rules import OnnxEmitter
from xformc.compiler.graph.weight import Weight
from xformc.compiler.quantize.elements import Element
from xformc.compiler.quantize.layouts import PANELS, panel_layout, row_layout
from xformc.compiler.quantize.number_format import Layouts, NumberFormat
from xformc.compiler.quantize.screening import SCREENED
from xformc.compiler.quantize.stored import Floats


class Float32(NumberFormat):
    """Weights without quantization, in any shape."""

    precision = "float32"
    layouts: ClassVar[Layouts] = {
        "rows": row_layout(Element.FLOAT, lambda matrix: matrix, lambda array: array),
        "panels": panel_layout(PANELS, Element.FLOAT, lambda matrix: matrix, lambda array: array),
        "screened": SCREENED,
    }

    def check(self, matrix: Floats, path: str) -> None:
        """Accept any numbers."""

    def emit_product(self, onnx: OnnxEmitter, rows: str, weight: Weight, bias: Sequence[str]) -> str:
        """One Gemm."""
        return onnx.op("Gemm", rows, onnx.flat(weight.name, weight.new, weight.width), *bias, transB=1)

    def emit_rows(self, onnx: OnnxEmitter, ids: str, weight: Weight) -> str:
        """One Gather."""
        return onnx.op("Gather", onnx.flat(weight.name, weight.new, weight.width), ids, axis=0)
