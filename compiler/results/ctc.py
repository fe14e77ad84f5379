"""CTC: the tokens that the positions of an example write, in their order (Graves et al. 2006)."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.graph import Op, Value
from xformc.compiler.graph.rules import OnnxEmitter
from xformc.compiler.ops.ctc import BlankPadding, CtcLoss
from xformc.compiler.results.best_path import emit_best_path
from xformc.compiler.results.kind import Allowed, Declared, Kind, Outputs, any_positions, register
from xformc.compiler.results.prefix_search import emit_prefix_search
from xformc.format.results import Setting

MAX_BEAM = 1024


class Ctc(Kind):
    """Logits of the token that each position writes; token 0 is the blank, which writes nothing.

    The engine returns the best path's tokens or, with a `beam_size` above 1, those of a prefix beam search.
    """

    name = "ctc"
    settings: ClassVar[Allowed] = {"beam_size": 1}
    outputs = ("tokens", "lengths", "scores")
    decoded = True
    tokenized = True

    def refused(self, name: str, inputs: Collection[str], settings: Mapping[str, Setting]) -> str | None:
        """See `Kind`."""
        if name in inputs:
            return f"a result of CTC has tokens of its own, and '{name}' is an input"
        width = int(settings["beam_size"])
        return f"beam_size must be at most {MAX_BEAM:,}, found {width:,}" if width > MAX_BEAM else None

    def wanted(self, sequences: Collection[str], settings: Mapping[str, Setting]) -> str:
        """See `Kind`."""
        return f"float32[batch, {any_positions(sequences)}, VOCABULARY], where VOCABULARY is a size"

    def fits(self, type: Type, sequences: Collection[str], settings: Mapping[str, Setting]) -> bool:
        """See `Kind`."""
        shaped = type.dtype == "float32" and type.names[:1] == ("batch",) and len(type.axes) == 3
        return shaped and (type.axes[-1].size or 0) > 1

    def complete(
        self, value: Value, mask: Callable[[], Value | None], emit: Callable[[Op, tuple[Value, ...]], Value]
    ) -> Value:
        """See `Kind`."""
        real = mask()
        return value if real is None else emit(BlankPadding(), (value, real))

    def positions(self, type: Type, sequences: Collection[str]) -> None:
        """See `Kind`: the tokens are those of the whole example."""
        return None

    def target(self, type: Type, settings: Mapping[str, Setting]) -> Type:
        """See `Kind`."""
        return Type("int64", (type.axes[0], Axis(f"{type.names[1]}_tokens")))

    def loss(self, result: Declared, smoothing: float) -> Op:
        """See `Kind`."""
        return CtcLoss()

    def emit(self, onnx: OnnxEmitter, value: str, type: Type, settings: Mapping[str, Setting]) -> Outputs:
        """See `Kind`."""
        width = int(settings["beam_size"])
        found = emit_best_path(onnx, value) if width == 1 else emit_prefix_search(onnx, value, width)
        rows = (Axis("batch"), Axis("n_best", width))
        types = Type("int64", (*rows, Axis("length"))), Type("int64", rows), Type("float32", rows)
        return list(zip(found, types, strict=True))

    def expected(self, value: NDArray[Any], settings: Mapping[str, Setting]) -> tuple[NDArray[np.float32], ...]:
        """See `Kind`."""
        raise AssertionError("texts of CTC are compared with a reference search")


register(Ctc())
