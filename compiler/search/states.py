"""What a decoder's states are before the first step, as ONNX operators."""

from collections.abc import Mapping

from xformc.compiler.graph.axes import DType
from xformc.compiler.graph.rules import OnnxEmitter, Operand
from xformc.compiler.ops.keys import PAST
from xformc.compiler.passes.step import Decoder, State

_ZERO: dict[DType, bool | int | float] = {"float32": 0.0, "int64": 0, "bool": False}


def emit_states(
    onnx: OnnxEmitter, decoder: Decoder, sizes: Mapping[str, Operand], prepared: Mapping[str, str]
) -> list[str]:
    """Write the states before the first step, in their order.

    `sizes` has a vector with the size of each axis that only the run knows (`batch`, and `beam` if there is one);
    `prepared` names the outputs of `prepare` by the values of `Decoder.prepared`.
    """
    return [_emit_state(onnx, state, sizes, prepared) for state in decoder.states]


def emit_positions(onnx: OnnxEmitter, decoder: Decoder, count: Operand) -> dict[str, str]:
    """Write the positions before `count`, a number, if `prepare` needs them, and name them by its input."""
    return {} if decoder.positions is None else {decoder.positions.name: onnx.op("Range", 0, count, 1)}


def _emit_state(onnx: OnnxEmitter, state: State, sizes: Mapping[str, Operand], prepared: Mapping[str, str]) -> str:
    type = state.past.type
    parts = [_size(axis.name, axis.size, sizes) for axis in type.axes]
    shape = onnx.op("Concat", *parts, axis=0)
    if state.initial is None:
        return onnx.op("Expand", _ZERO[type.dtype], shape)
    initial = prepared[state.initial.name]
    new = [index for index, name in enumerate(type.names) if name not in state.initial.type.names]
    return onnx.op("Expand", onnx.op("Unsqueeze", initial, new) if new else initial, shape)


def _size(name: str, size: int | None, sizes: Mapping[str, Operand]) -> Operand:
    if size is not None:
        return [size]
    return [0] if name.startswith(PAST) else sizes[name]
