"""ONNX nodes for weights that DequantizeLinear restores, in the form of which TensorRT makes products.

That is explicit quantization: QuantizeLinear and DequantizeLinear before a product in float32. Where no calibration
found a scale for what comes in, weights alone are restored, which only saves memory, which limits a step.
"""

from collections.abc import Sequence

from xformc.compiler.graph.rules import OnnxEmitter
from xformc.compiler.graph.weight import Weight
from xformc.compiler.quantize.elements import Element


def emit_restored(onnx: OnnxEmitter, weight: Weight, axis: int = 0, block: int = 0) -> str:
    """The matrix in float32, beside what reads it, so that a builder may do both at once.

    Scales are by `axis`, or along it for each `block` of numbers.
    """
    name, scale = weight.tensors
    return onnx.once(f"read {name}", lambda: onnx.op("DequantizeLinear", name, scale, axis=axis, block_size=block))


def emit_quantized_product(onnx: OnnxEmitter, rows: str, weight: Weight, bias: Sequence[str], element: Element) -> str:
    """Both factors rounded, the first by one scale if a calibration found it; else the product in float32."""
    matrix, scale = emit_restored(onnx, weight), weight.input_scale
    if scale is None:
        return onnx.op("Gemm", rows, matrix, *bias, transB=1)
    rounded = onnx.once(
        f"{element} {rows} {scale}", lambda: onnx.op("QuantizeLinear", rows, scale, output_dtype=element)
    )
    factor = onnx.once(f"float32 {rounded}", lambda: onnx.op("DequantizeLinear", rounded, scale))
    product = onnx.op("Gemm", factor, matrix, transB=1)
    return onnx.op("Add", product, *bias) if bias else product


def emit_uint8(onnx: OnnxEmitter, value: int | list[int]) -> str:
    """One constant of uint8 or a vector of them."""
    return onnx.outermost(f"uint8 {value}", lambda scope: scope.op("Cast", value, to=Element.UINT8))
