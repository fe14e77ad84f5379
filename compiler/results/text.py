"""Text that is written token by token: the tokens of an input, each predicted from those before it."""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xformc.compiler.graph.axes import Type
from xformc.compiler.graph.graph import Op
from xformc.compiler.graph.rules import OnnxEmitter
from xformc.compiler.ops.loss import CrossEntropy
from xformc.compiler.results.kind import Declared, Kind, Outputs, any_positions, register
from xformc.format.results import Setting


class Text(Kind):
    """Logits of the next token. The result is named after the input of tokens that is written.

    The engine decodes it: its outputs are those of a search (`compiler.search`), not of `emit`.
    """

    name = "text"
    smoothed = True
    outputs = ("tokens", "lengths", "scores")
    decoded = True

    def wanted(self, sequences: Collection[str], settings: Mapping[str, Setting]) -> str:
        """See `Kind`."""
        where = any_positions(sequences)
        return f"float32[batch, {where}, VOCABULARY], the vocabulary of {where}"

    def fits(self, type: Type, sequences: Collection[str], settings: Mapping[str, Setting]) -> bool:
        """See `Kind`."""
        return type.dtype == "float32" and type.names[:1] == ("batch",) and type.names[1:2] == tuple(sequences)

    def target(self, type: Type, settings: Mapping[str, Setting]) -> Type:
        """See `Kind`."""
        return Type("int64", type.axes[:-1])

    def loss(self, result: Declared, smoothing: float) -> Op:
        """See `Kind`."""
        return CrossEntropy(smoothing, result.ignore)

    def emit(self, onnx: OnnxEmitter, value: str, type: Type, settings: Mapping[str, Setting]) -> Outputs:
        """See `Kind`."""
        raise AssertionError("text is decoded by a search")

    def expected(self, value: NDArray[Any], settings: Mapping[str, Setting]) -> tuple[NDArray[np.float32], ...]:
        """See `Kind`."""
        raise AssertionError("text is decoded by a search")


register(Text())
