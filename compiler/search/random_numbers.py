"""Random numbers that depend only on a seed and a position: SplitMix64 in ONNX integer arithmetic.

Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (2014), figure 17 with the
finaliser of Stafford's variant 13.
"""

from xformc.compiler.graph.rules import OnnxEmitter, Operand

WEYL = 0x9E3779B97F4A7C15
"""The increment: 2^64 divided by the golden ratio."""

ROUNDS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
"""The shifts and the multipliers of the finaliser; it ends with a shift by LAST_SHIFT."""

LAST_SHIFT = 31
BITS = 24
"""The number of the 64 bits that are used: the precision of a float32."""

_FLOAT, _UINT64 = 1, 13


def emit_stream(onnx: OnnxEmitter, seed: str) -> str:
    """The initial state of each stream, from the seeds, int64 [batch]."""
    return _mixed(onnx, onnx.op("Add", _unsigned(onnx, seed), _constant(onnx, WEYL)))


def emit_uniform(onnx: OnnxEmitter, stream: str, place: str) -> str:
    """A uniform float32 in [0, 1), k / 2^24, for each stream at this position, an int64."""
    steps = onnx.op("Mul", _unsigned(onnx, place), _constant(onnx, WEYL))
    bits = onnx.op(
        "BitShift", _mixed(onnx, onnx.op("Add", stream, steps)), _constant(onnx, 64 - BITS), direction="RIGHT"
    )
    return onnx.op("Mul", onnx.op("Cast", bits, to=_FLOAT), 2.0**-BITS)


def _mixed(onnx: OnnxEmitter, value: str) -> str:
    for shift, multiplier in ROUNDS:
        value = onnx.op("Mul", _folded(onnx, value, shift), _constant(onnx, multiplier))
    return _folded(onnx, value, LAST_SHIFT)


def _folded(onnx: OnnxEmitter, value: str, shift: int) -> str:
    shifted = onnx.op("BitShift", value, _constant(onnx, shift), direction="RIGHT")
    return onnx.op("BitwiseXor", value, shifted)


def _constant(onnx: OnnxEmitter, value: int) -> str:
    return _unsigned(onnx, value if value < 2**63 else value - 2**64)


def _unsigned(onnx: OnnxEmitter, value: Operand) -> str:
    return onnx.op("Cast", value, to=_UINT64)
