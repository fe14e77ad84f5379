"""A decoder in a search, as ONNX operators: prepare, the initial states, and a step.

Values are keyed by their names in the decoder.
"""

from collections.abc import Mapping

from xformc.compiler.graph.axes import DType, Type
from xformc.compiler.graph.graph import Value
from xformc.compiler.graph.rules import OnnxEmitter, Operand
from xformc.compiler.ops.keys import PAST, ROOM
from xformc.compiler.ops.native import DOMAIN
from xformc.compiler.passes.step import Decoder, Resident, State
from xformc.compiler.search.loops import Names, bind_fields

_CACHES: Mapping[DType, str] = {"float32": "Cache", "float16": "CacheNarrow", "int8": "CacheInt8"}
"""The operator that makes a cache, by the type in which it stores keys and values."""
_NUMBERS: Mapping[DType, int] = {"float32": 1, "int64": 7, "bool": 9, "float16": 10}
"""ONNX's numbers of types."""
_ZERO: dict[DType, bool | int | float] = {"float32": 0.0, "int64": 0, "bool": False}


def emit_prepare(onnx: OnnxEmitter, decoder: Decoder, given: Names) -> dict[str, str]:
    """Write `prepare` with these inputs; return the names of `Decoder.prepared`."""
    return dict(zip((value.name for value in decoder.prepared), onnx.graph(decoder.prepare, given), strict=True))


def emit_positions(onnx: OnnxEmitter, decoder: Decoder, count: Operand) -> dict[str, str]:
    """Write the positions 0 to `count` - 1 if `prepare` needs them, keyed by its input; `count` is a scalar."""
    return {} if decoder.positions is None else {decoder.positions.name: onnx.op("Range", 0, count, 1)}


def emit_begin(onnx: OnnxEmitter, decoder: Decoder, tokens: Value, name: str) -> tuple[dict[str, str], dict[str, str]]:
    """Write what comes before the steps on these tokens [batch, time], without a beam; return what the steps know, and
    the first states. The model's inputs have the names that they have in the decoder."""
    onnx.bind(tokens, name)
    room, batch = onnx.shape(tokens.type.axes[1:]), onnx.merged(tokens.type.axes[:1])
    names = {value.name: value.name for value in decoder.given}
    known = emit_prepare(onnx, decoder, names | emit_positions(onnx, decoder, onnx.op("Squeeze", room)))
    bind_fields(onnx, {value.name: value.type for value in decoder.prepared}, known)
    states = emit_states(onnx, decoder, {"batch": batch, ROOM: room}, known)
    return known | emit_resident(onnx, decoder.resident, batch, room), states


def state_types(decoder: Decoder) -> dict[str, Type]:
    """The types of the states, in order."""
    return {state.past.name: state.past.type for state in decoder.states}


def moving(types: Mapping[str, Type], states: Names) -> dict[str, str]:
    """The states that move with their rows and hypotheses; those without the axis batch are the same for all."""
    return {name: value for name, value in states.items() if "batch" in types[name].names}


def emit_states(
    onnx: OnnxEmitter, decoder: Decoder, sizes: Mapping[str, Operand], prepared: Names, zero: Operand = 0
) -> dict[str, str]:
    """Write the initial states, in order.

    `sizes` has the run-time size of each axis as a vector (`batch`, and `beam` if there is one), but for those of the
    constants among `prepared`; `zero` is an int64 scalar that is 0, for a value that no optimizer of ONNX models may
    compute in advance.
    """
    open_axes = {axis.name for state in decoder.states for axis in state.past.type.axes if axis.size is None}
    others = [name for name in sorted(open_axes - sizes.keys()) if not name.startswith(PAST)]
    known = {**sizes, **{name: _size_of(onnx, decoder, prepared, name) for name in others}}
    return {state.past.name: _emit_state(onnx, state, known, prepared, zero) for state in decoder.states}


def _size_of(onnx: OnnxEmitter, decoder: Decoder, prepared: Names, axis: str) -> str:
    """Write the size of an axis of another input, from a prepared value that has it."""
    value = next(value for value in decoder.prepared if axis in value.type.names)
    index = value.type.names.index(axis)
    return onnx.op("Shape", prepared[value.name], start=index, end=index + 1)


def step_inputs(decoder: Decoder, token: str, position: str, known: Names) -> dict[str, str]:
    """The inputs of a step; `known` are its constants, states and resident inputs."""
    return {**known, decoder.token.name: token, decoder.position.name: position}


def emit_step(
    onnx: OnnxEmitter, decoder: Decoder, token: str, position: str, known: Names
) -> tuple[str, dict[str, str]]:
    """Write a step; return its logits and the new states. For `known` see `step_inputs`."""
    logits, *states = onnx.graph(decoder.step, step_inputs(decoder, token, position, known))
    return logits, {state.past.name: name for state, name in zip(decoder.states, states, strict=True)}


def emit_resident(
    onnx: OnnxEmitter, resident: Resident | None, batch: str, capacity: Operand, *, named: bool = False
) -> dict[str, str]:
    """Write the resident inputs of a step without a beam.

    `batch` and `capacity`, the maximum number of positions, are vectors with one element.
    """
    if resident is None:
        return {}
    caches = emit_caches(onnx, resident, batch, capacity, [1], named=named)
    return {**caches, resident.slots.name: onnx.op("Range", 0, onnx.op("Squeeze", batch), 1)}


def emit_caches(
    onnx: OnnxEmitter, resident: Resident, slots: Operand, capacity: Operand, beam: Operand, *, named: bool = False
) -> dict[str, str]:
    """Write the buffers of a step's caches; `slots`, `capacity` and `beam` are vectors with one element.

    `named`: they have the names of their values, so that they can be outputs. A copy would not be what is written.
    """
    return {
        value.name: onnx.op(
            _CACHES[value.type.dtype],
            onnx.op("Concat", slots, capacity, beam, [value.type.axes[-1].size or 1], axis=0),
            domain=DOMAIN,
            label=value.name,
            name=value.name if named else None,
        )
        for value in resident.caches
    }


def _emit_state(onnx: OnnxEmitter, state: State, sizes: Mapping[str, Operand], prepared: Names, zero: Operand) -> str:
    type, own = state.past.type, () if state.initial is None else state.initial.type.names
    known = {**{name: [1] for name in own}, **sizes}  # an axis of the initial state has its size there
    parts = [_size(axis.name, axis.size, known) for axis in type.axes]
    shape = onnx.op("Concat", *parts, axis=0)
    if state.initial is None:
        return onnx.op("Expand", _zero(onnx, type.dtype, zero), shape)
    initial = prepared[state.initial.name]
    new = [index for index, name in enumerate(type.names) if name not in state.initial.type.names]
    return onnx.op("Expand", onnx.op("Unsqueeze", initial, new) if new else initial, shape)


def _zero(onnx: OnnxEmitter, dtype: DType, zero: Operand) -> Operand:
    if isinstance(zero, int) and dtype in _ZERO:
        return _ZERO[dtype]
    return onnx.once(f"zero {dtype}", lambda: onnx.op("Cast", zero, to=_NUMBERS[dtype]))


def _size(name: str, size: int | None, sizes: Mapping[str, Operand]) -> Operand:
    if size is not None:
        return [size]
    return [0] if name.startswith(PAST) else sizes[name]
