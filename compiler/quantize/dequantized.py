"""ONNX nodes for weights with DequantizeLinear, in the form that TensorRT fuses into quantized matrix products.

This is explicit quantization: QuantizeLinear and DequantizeLinear before a float32 matrix product. Without a calibrated
input scale, only the weights are quantized; this saves memory bandwidth, the limit of a step.
"""

from collections.abc import Sequence

from xformc.compiler.graph.rules import OnnxEmitter
from xformc.compiler.graph.weight import Weight
from xformc.compiler.quantize.elements import Element


def emit_restored(onnx: OnnxEmitter, weight: Weight, axis: int = 0, block: int = 0) -> str:
    """Dequantize the matrix to float32 next to its reader, so that a builder can fuse both.

    Scales are per index of `axis`, or per `block` of elements along it.
    """
    name, scale = weight.tensors
    return onnx.once(f"read {name}", lambda: onnx.op("DequantizeLinear", name, scale, axis=axis, block_size=block))


def emit_quantized_product(onnx: OnnxEmitter, rows: str, weight: Weight, bias: Sequence[str], element: Element) -> str:
    """A matrix product with both operands quantized; in float32 if there is no calibrated input scale."""
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
