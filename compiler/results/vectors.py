"""Vectors: embeddings of a whole example or of each of its positions."""

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from xformc.compiler.graph.axes import Type
from xformc.compiler.graph.graph import Op
from xformc.compiler.graph.rules import OnnxEmitter
from xformc.compiler.ops.loss import Contrastive
from xformc.compiler.results.kind import EACH, Allowed, Declared, Kind, Outputs, any_positions, is_result, register
from xformc.format.results import Setting

SHORTEST = 1e-12
"""The length below which a vector is not scaled up to length 1."""


class Vectors(Kind):
    """A vector. With `normalize`, the engine returns it with length 1."""

    name = "vectors"
    settings: ClassVar[Allowed] = {"normalize": False, "each": EACH}
    raw = "_value"
    losses: ClassVar[Allowed] = {"temperature": 0.05}

    def wanted(self, sequences: Collection[str], settings: Mapping[str, Setting]) -> str:
        """See `Kind`."""
        return f"float32[batch, SIZE] or float32[batch, {any_positions(sequences)}, SIZE]"

    def fits(self, type: Type, sequences: Collection[str], settings: Mapping[str, Setting]) -> bool:
        """See `Kind`."""
        return is_result(type, sequences, range(1, 2))

    def target(self, type: Type, settings: Mapping[str, Setting]) -> Type:
        """See `Kind`."""
        return Type("int64", type.axes[:-1])

    def loss(self, result: Declared, smoothing: float) -> Op:
        """See `Kind`."""
        return Contrastive(float(result.loss["temperature"]))

    def emit(self, onnx: OnnxEmitter, value: str, type: Type, settings: Mapping[str, Setting]) -> Outputs:
        """See `Kind`."""
        if not settings["normalize"]:
            return [(value, type)]
        length = onnx.op("Sqrt", onnx.op("ReduceSum", onnx.op("Mul", value, value), [-1], keepdims=1))
        return [(onnx.op("Div", value, onnx.op("Max", length, SHORTEST)), type)]

    def expected(self, value: NDArray[Any], settings: Mapping[str, Setting]) -> tuple[NDArray[np.float32], ...]:
        """See `Kind`."""
        if not settings["normalize"]:
            return (value,)
        return (value / np.maximum(np.sqrt((value * value).sum(-1, keepdims=True)), SHORTEST),)


register(Vectors())
