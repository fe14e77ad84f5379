"""Numbers: regression, of a whole example or of each of its positions."""

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from xformc.compiler.graph.axes import Type
from xformc.compiler.graph.graph import Op
from xformc.compiler.graph.rules import OnnxEmitter
from xformc.compiler.ops.loss import Deviation
from xformc.compiler.results.kind import EACH, Allowed, Declared, Kind, Outputs, any_positions, is_result, register
from xformc.format.results import Setting


class Numbers(Kind):
    """One number or several; the engine returns them as they are."""

    name = "numbers"
    settings: ClassVar[Allowed] = {"each": EACH}
    raw = "_value"
    losses: ClassVar[Allowed] = {"error": ("squared", "absolute")}

    def wanted(self, sequences: Collection[str], settings: Mapping[str, Setting]) -> str:
        """See `Kind`."""
        where = any_positions(sequences)
        return f"float32[batch], float32[batch, SIZE], float32[batch, {where}] or float32[batch, {where}, SIZE]"

    def fits(self, type: Type, sequences: Collection[str], settings: Mapping[str, Setting]) -> bool:
        """See `Kind`."""
        return is_result(type, sequences, range(2))

    def target(self, type: Type, settings: Mapping[str, Setting]) -> Type:
        """See `Kind`."""
        return type

    def loss(self, result: Declared, smoothing: float) -> Op:
        """See `Kind`."""
        return Deviation(squared=result.loss["error"] == "squared")

    def emit(self, onnx: OnnxEmitter, value: str, type: Type, settings: Mapping[str, Setting]) -> Outputs:
        """See `Kind`."""
        return [(value, type)]

    def expected(self, value: NDArray[Any], settings: Mapping[str, Setting]) -> tuple[NDArray[np.float32], ...]:
        """See `Kind`."""
        return (value,)


register(Numbers())
