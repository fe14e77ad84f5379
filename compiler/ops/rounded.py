"""ONNX nodes for matrices that a model stores rounded: products with them, and looking up their rows.

int8 rounds the factor, too, each row by its own largest number, so that no row depends on another. 16-bit weights only
save space: they are made float32 when the model is loaded.

On GPUs a product is computed in the numbers that a model's types say. There 16-bit weights are multiplied with 16-bit
factors, to 16-bit results. Where a calibration found in which steps to round what comes in, int8 and float8 are
multiplied as they are; otherwise integers are restored as they are read, and only save memory, which limits a step.
"""

from collections.abc import Callable

from xformc.compiler.graph.rules import OnnxEmitter
from xformc.format.precision import Precision

FLOAT, UINT8, INT8, INT64, FLOAT16, BFLOAT16, FLOAT8 = 1, 2, 3, 7, 10, 16, 17
"""ONNX's numbers for these types."""

BLOCK = 32
"""Neighbours of a row that share one scale in int4."""

_LARGEST, _ZERO = 127, 128
_TINY = 1e-30
"""Stands for the largest number of a row of zeros."""

Product = Callable[[OnnxEmitter, str, str, int, int, list[str]], str]


def emit_product(onnx: OnnxEmitter, rows: str, weight: str, new: int, width: int, bias: list[str]) -> str:
    """`rows [.., width] * weight^T + bias` as [rows, new]; `bias` has one name or none, rows are a matrix."""
    products = _TYPED_PRODUCTS if onnx.typed else _PRODUCTS
    return products[onnx.precision_of(weight)](onnx, rows, weight, new, width, bias)


def emit_rows(onnx: OnnxEmitter, ids: str, table: str, new: int, width: int) -> str:
    """The rows of a table [new, width] that is stored rounded: [.., width] for ids [..]."""
    rows = _TYPED_ROWS if onnx.typed else _ROWS
    return rows[onnx.precision_of(table)](onnx, ids, table, new, width)


def _exact(onnx: OnnxEmitter, rows: str, weight: str, new: int, width: int, bias: list[str]) -> str:
    return onnx.op("Gemm", rows, onnx.flat(weight, new, width), *bias, transB=1)


def _halved(onnx: OnnxEmitter, rows: str, weight: str, new: int, width: int, bias: list[str]) -> str:
    name, _ = onnx.stored(weight, new, width)
    matrix = onnx.once(f"float32 {name}", lambda: onnx.op("Cast", name, to=FLOAT))
    return onnx.op("Gemm", rows, matrix, *bias, transB=1)


def _bytes(onnx: OnnxEmitter, rows: str, weight: str, new: int, width: int, bias: list[str]) -> str:
    """`scale_x * scale * sum(q_x * q)`, as docs/kernels.md has it; the sum is exact."""
    name, scale = onnx.stored(weight, new, width)
    assert scale is not None
    columns = onnx.once(f"columns {name}", lambda: onnx.op("Transpose", name, perm=[1, 0]))
    step = onnx.once(f"step of {rows}", lambda: _step(onnx, rows))
    rounded = onnx.once(f"int8 {rows}", lambda: _round(onnx, rows, step))
    total = onnx.either(
        onnx.outermost("signed products are exact", _signed_products_are_exact),
        lambda branch: _sum(branch, rounded, columns, []),
        lambda branch: _sum(branch, rounded, _without_sign(branch, columns), [_constant(branch, _ZERO)]),
    )
    product = onnx.op("Mul", onnx.op("Mul", total, scale), step)
    return onnx.op("Add", product, *bias) if bias else product


def _sum(onnx: OnnxEmitter, rounded: str, columns: str, zero: list[str]) -> str:
    total = onnx.op("MatMulInteger", rounded, columns, _constant(onnx, _ZERO), *zero)
    return onnx.op("Cast", total, to=FLOAT)


def _signed_products_are_exact(onnx: OnnxEmitter) -> str:
    """Whether MatMulInteger is exact for uint8 and int8: on x86 without VNNI, ONNX Runtime adds them up in 16 bits.

    ONNX Runtime computes this when it loads the model, and keeps the one branch of each If that this processor needs.
    """
    largest = onnx.op("Cast", [255, 255], to=UINT8), onnx.op("Cast", [127, 127], to=INT8)
    total = onnx.op("Cast", onnx.op("MatMulInteger", *largest), to=INT64)
    return onnx.op("Equal", total, 2 * 255 * 127)


def _without_sign(onnx: OnnxEmitter, columns: str) -> str:
    """int8 as uint8 around 128: slower to multiply where both are exact."""
    return onnx.op("Cast", onnx.op("Add", onnx.op("Cast", columns, to=FLOAT), float(_ZERO)), to=UINT8)


def _step(onnx: OnnxEmitter, rows: str) -> str:
    """What 1 stands for in each row [rows, 1]: its largest number without sign / 127."""
    largest = onnx.op("ReduceMax", onnx.op("Abs", rows), [-1], keepdims=1)
    return onnx.op("Div", onnx.op("Max", largest, _TINY), float(_LARGEST))


def _round(onnx: OnnxEmitter, rows: str, step: str) -> str:
    """The rows as uint8 around 128: the integer product of ONNX Runtime is fastest for these."""
    steps = onnx.op("Squeeze", step, [-1])
    zeros = onnx.op("Expand", _constant(onnx, _ZERO), onnx.op("Shape", steps))
    return onnx.op("QuantizeLinear", rows, steps, zeros, axis=0)


def _constant(onnx: OnnxEmitter, value: int | list[int]) -> str:
    """One uint8 or a vector of them."""
    return onnx.outermost(f"uint8 {value}", lambda scope: scope.op("Cast", value, to=UINT8))


def _nibbles(onnx: OnnxEmitter, rows: str, weight: str, new: int, width: int, bias: list[str]) -> str:
    if onnx.fused:
        name, scale = onnx.blocks(weight, new, width)
        assert scale is not None
        sizes = {"N": new, "K": width, "bits": 4, "block_size": BLOCK, "accuracy_level": 4}
        product = onnx.op("MatMulNBits", rows, name, scale, domain="com.microsoft", **sizes)
        return onnx.op("Add", product, *bias) if bias else product
    return onnx.op("Gemm", rows, _restored(onnx, weight, new, width), *bias, transB=1)


def _restored(onnx: OnnxEmitter, weight: str, new: int, width: int) -> str:
    """An int4 matrix in float32, once for each run of the model."""
    name, scale = onnx.stored(weight, new, width)
    assert scale is not None

    def write(scope: OnnxEmitter) -> str:
        return scope.op("DequantizeLinear", name, scale, axis=1, block_size=BLOCK)

    return onnx.outermost(f"float32 {name}", write)


_PRODUCTS: dict[Precision, Product] = {
    "float32": _exact,
    "float16": _halved,
    "bfloat16": _halved,
    "int8": _bytes,
    "int4": _nibbles,
}


def _half(onnx: OnnxEmitter, rows: str, weight: str, new: int, width: int, bias: list[str]) -> str:
    """Both factors and the result in 16 bits; the bias is added in float32."""
    name, _ = onnx.stored(weight, new, width)
    dtype = _HALVES[onnx.precision_of(weight)]
    narrow = onnx.once(f"{dtype} {rows}", lambda: onnx.op("Cast", rows, to=dtype))
    if onnx.emulated:
        wide = onnx.once(f"float32 {name}", lambda: onnx.op("Cast", name, to=FLOAT))
        exact = onnx.op("Gemm", onnx.op("Cast", narrow, to=FLOAT), wide, transB=1)
        product = onnx.op("Cast", exact, to=dtype)
    else:
        product = onnx.op("Gemm", narrow, name, transB=1)
    result = onnx.op("Cast", product, to=FLOAT)
    return onnx.op("Add", result, *bias) if bias else result


_HALVES: dict[Precision, int] = {"float16": FLOAT16, "bfloat16": BFLOAT16}


def _quantized(onnx: OnnxEmitter, rows: str, weight: str, new: int, width: int, bias: list[str]) -> str:
    """Both factors rounded, the first in steps of one size, in the form of which TensorRT makes one product.

    That is explicit quantization: QuantizeLinear and DequantizeLinear before a product in float32. Weights alone are
    rounded where there is no calibration.
    """
    step = onnx.input_scale(weight)
    if step is None:
        return _read(onnx, rows, weight, new, width, bias)
    matrix = _readable(onnx, weight, new, width)
    dtype = _EIGHTS[onnx.precision_of(weight)]
    rounded = onnx.once(f"{dtype} {rows} {step}", lambda: onnx.op("QuantizeLinear", rows, step, output_dtype=dtype))
    factor = onnx.once(f"float32 {rounded}", lambda: onnx.op("DequantizeLinear", rounded, step))
    product = onnx.op("Gemm", factor, matrix, transB=1)
    return onnx.op("Add", product, *bias) if bias else product


_EIGHTS: dict[Precision, int] = {"int8": INT8, "float8": FLOAT8}


def _read(onnx: OnnxEmitter, rows: str, weight: str, new: int, width: int, bias: list[str]) -> str:
    """The product in float32 with integers that are restored where they are read."""
    return onnx.op("Gemm", rows, _readable(onnx, weight, new, width), *bias, transB=1)


def _read_rows(onnx: OnnxEmitter, ids: str, table: str, new: int, width: int) -> str:
    """Rows of a restored table: TensorRT takes stored integers as factors alone."""
    return onnx.op("Gather", _readable(onnx, table, new, width), ids, axis=0)


def _readable(onnx: OnnxEmitter, weight: str, new: int, width: int) -> str:
    """A matrix of 8 bits or fewer in float32, beside what reads it, so that a builder may do both at once."""
    name, scale = onnx.stored(weight, new, width)
    assert scale is not None
    axis, block = (1, BLOCK) if onnx.precision_of(weight) == "int4" else (0, 0)
    return onnx.once(f"read {name}", lambda: onnx.op("DequantizeLinear", name, scale, axis=axis, block_size=block))


_TYPED_PRODUCTS: dict[Precision, Product] = {
    "float32": _exact,
    "float16": _half,
    "bfloat16": _half,
    "int8": _quantized,
    "int4": _read,
    "float8": _quantized,
}
"""The products of models for GPUs."""


def _exact_rows(onnx: OnnxEmitter, ids: str, table: str, new: int, width: int) -> str:
    return onnx.op("Gather", table, ids, axis=0)


def _halved_rows(onnx: OnnxEmitter, ids: str, table: str, new: int, width: int) -> str:
    name, _ = onnx.stored(table, new, width)
    return onnx.op("Cast", onnx.op("Gather", name, ids, axis=0), to=FLOAT)


def _byte_rows(onnx: OnnxEmitter, ids: str, table: str, new: int, width: int) -> str:
    name, scale = onnx.stored(table, new, width)
    assert scale is not None
    rows = onnx.op("Cast", onnx.op("Gather", name, ids, axis=0), to=FLOAT)
    return onnx.op("Mul", rows, onnx.op("Unsqueeze", onnx.op("Gather", scale, ids, axis=0), [-1]))


def _nibble_rows(onnx: OnnxEmitter, ids: str, table: str, new: int, width: int) -> str:
    if not onnx.fused:
        return onnx.op("Gather", _restored(onnx, table, new, width), ids, axis=0)
    name, scale = onnx.blocks(table, new, width)
    assert scale is not None
    pairs = onnx.op("Unsqueeze", onnx.op("Gather", name, ids, axis=0), [-1])
    shifted = onnx.op("BitShift", pairs, _constant(onnx, [0, 4]), direction="RIGHT")
    halves = onnx.op("BitwiseAnd", shifted, _constant(onnx, 15))
    numbers = onnx.op("Sub", onnx.op("Cast", halves, to=FLOAT), 8.0)
    scales = onnx.op("Gather", scale, ids, axis=0)
    blocks = onnx.op("Mul", numbers, onnx.op("Unsqueeze", scales, [-1, -2]))
    shape = onnx.op("Concat", onnx.op("Shape", ids), [-(-width // BLOCK) * BLOCK], axis=0)
    return onnx.op("Slice", onnx.op("Reshape", blocks, shape), [0], [width], [-1])


_ROWS: dict[Precision, Callable[[OnnxEmitter, str, str, int, int], str]] = {
    "float32": _exact_rows,
    "float16": _halved_rows,
    "bfloat16": _halved_rows,
    "int8": _byte_rows,
    "int4": _nibble_rows,
}

_TYPED_ROWS = {**_ROWS, "int8": _read_rows, "int4": _read_rows, "float8": _read_rows}
"""Looking up in models for GPUs."""
