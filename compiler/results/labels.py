"""Labels of a whole example or of each of its positions: one of them, or several at once."""

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from xformc.compiler.graph.axes import Type
from xformc.compiler.graph.graph import Op
from xformc.compiler.graph.rules import OnnxEmitter
from xformc.compiler.ops.loss import BinaryCrossEntropy, CrossEntropy
from xformc.compiler.results.kind import EACH, Allowed, Declared, Kind, Outputs, any_positions, is_result, register
from xformc.format.results import Setting
from xformc.format.tokens import IGNORE


class Labels(Kind):
    """Logits of labels. The engine returns their softmax or, with `several`, the sigmoid of each."""

    name = "labels"
    smoothed = True
    settings: ClassVar[Allowed] = {"several": False, "each": EACH}
    outputs = ("probabilities",)

    def wanted(self, sequences: Collection[str], settings: Mapping[str, Setting]) -> str:
        """See `Kind`."""
        where = f"float32[batch, {any_positions(sequences)}, LABELS]"
        return f"float32[batch, LABELS] or {where}, {self.sizes(settings)}"

    def sizes(self, settings: Mapping[str, Setting]) -> str:
        """What LABELS is, in words: the probability of a single label would always be 1."""
        return "where LABELS is a size" if settings["several"] else "where LABELS is a size of at least 2"

    def fits(self, type: Type, sequences: Collection[str], settings: Mapping[str, Setting]) -> bool:
        """See `Kind`."""
        return is_result(type, sequences, range(1, 2)) and (bool(settings["several"]) or type.axes[-1].size != 1)

    def target(self, type: Type, settings: Mapping[str, Setting]) -> Type:
        """See `Kind`."""
        return type if settings["several"] else Type("int64", type.axes[:-1])

    def loss(self, result: Declared, smoothing: float) -> Op:
        """See `Kind`."""
        return BinaryCrossEntropy() if result.settings["several"] else CrossEntropy(smoothing, IGNORE)

    def emit(self, onnx: OnnxEmitter, value: str, type: Type, settings: Mapping[str, Setting]) -> Outputs:
        """See `Kind`."""
        found = onnx.op("Sigmoid", value) if settings["several"] else onnx.op("Softmax", value, axis=-1)
        return [(found, type)]

    def expected(self, value: NDArray[Any], settings: Mapping[str, Setting]) -> tuple[NDArray[np.float32], ...]:
        """See `Kind`."""
        if settings["several"]:
            return (np.float32(0.5) * (1 + np.tanh(np.float32(0.5) * value)),)
        powers = np.exp(value - value.max(-1, keepdims=True))
        return (powers / powers.sum(-1, keepdims=True),)


register(Labels())
