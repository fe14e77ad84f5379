"""Positions as keys, the axis that attention sums over. In a step, they become a cache of earlier positions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.cost import FREE, Cost, Reach, per_result
from xformc.compiler.graph.graph import Node, Op, Value
from xformc.compiler.graph.lengths import Length
from xformc.compiler.graph.primitives import Site, optional, primitive
from xformc.compiler.graph.rules import (
    OnnxEmitter,
    Stepper,
    TorchNamespace,
    cost,
    lengths,
    mixes,
    require,
    to_onnx,
    to_step,
    to_torch,
    types,
)
from xformc.compiler.ops.layout import aligner, emit_aligned

PAST = "past"
"""The prefix of the axis name of a growing cache, which is empty before the first step."""

ROOM = "room"
"""The axis of a fixed cache, which has the capacity for all positions from the start."""


@dataclass(frozen=True)
class AsKeys(Op):
    """Rename the axis `positions` to `keys`, so that every position may see every other."""

    kind: ClassVar[str] = "as_keys"
    positions: str
    keys: str
    window: int | None = None


@dataclass(frozen=True)
class Append(Op):
    """Append new positions to a cache: its axis `past` and the axis `new` become `seen`.

    Keeps only the last `window` positions, unless it is None.
    """

    kind: ClassVar[str] = "append"
    new: str
    past: str
    seen: str
    window: int | None = None


@dataclass(frozen=True)
class Write(Op):
    """Write `new` into a fixed cache, at the current position along its axis `room`.

    Inputs: the cache; the new value, with the axis `new` of size 1 instead, in any order; the positions of the entries,
    int64 [room]; the current position, int64, or that of each row, int64 [batch].
    """

    kind: ClassVar[str] = "write"
    new: str
    room: str


@dataclass(frozen=True)
class BeamKeys(Op):
    """The axes `room` and `beam` of a cache, which are neighbours, as one axis `keys`: each hypothesis may see the
    entries of all. A value without the axis beam is the same for all hypotheses.

    Inputs: the value; the beam indices 0, 1, .., int64 [beam].
    """

    kind: ClassVar[str] = "beam_keys"
    beam: str
    room: str
    keys: str


@dataclass(frozen=True)
class Grow(Op):
    """A state of each key so far, with zeros for the new keys: its axis `past` becomes `keys`.

    Inputs: the state; a value with the axis `new`, of which only the size counts.
    """

    kind: ClassVar[str] = "grow"
    past: str
    new: str
    keys: str


@dataclass(frozen=True)
class Places(Op):
    """The positions of the keys of a growing cache, after new ones were appended: int64 [keys].

    Input: the positions of the new ones, int64. The cache had all earlier ones, or the last `window` of these.
    """

    kind: ClassVar[str] = "places"
    keys: str
    window: int | None = None


@types.rule(AsKeys)
def _as_keys_types(op: AsKeys, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    (x,) = inputs
    require(op.positions in x.names, f"{x} has no axis {op.positions}")
    return (x.replaced(op.positions, Axis(op.keys, x.axis(op.positions).size)),)


@mixes.rule(AsKeys)
def _as_keys_mixes(op: AsKeys, node: Node) -> frozenset[str]:
    return frozenset({op.positions})


@lengths.rule(AsKeys)
def _as_keys_lengths(op: AsKeys, node: Node) -> Mapping[str, Length]:
    known = node.inputs[0].type.axis(op.positions).size is not None
    return {} if known else {op.keys: Length((op.positions,))}


@to_step.rule(AsKeys)
def _as_keys_step(op: AsKeys, node: Node, step: Stepper) -> tuple[Value, ...]:
    (new,) = node.inputs
    past = ROOM if step.fixed else PAST if op.window is None else f"{PAST}.{op.window}"
    name = node.outputs[0].name
    cache = step.state(f"{name}/cache", new.type.replaced(step.time, Axis(past)))
    if step.fixed:
        kept = step.emit(Write(step.time, past), (cache, step.value(new), step.places(), step.position()), name)
        step.carry(cache, kept)
        return (step.emit(AsKeys(past, op.keys), (kept,), f"{name}/keys"),)
    inputs, several = (cache, step.value(new)), step.several and op.window is not None
    # What several tokens see and what is kept for the next ones are not equally many, so their axes differ.
    kept = step.emit(Append(step.time, past, f"{past}.next" if several else op.keys, op.window), inputs, name)
    step.carry(cache, kept)
    return (step.emit(Append(step.time, past, op.keys), inputs, f"{name}/all"),) if several else (kept,)


@to_torch.rule(AsKeys)
def _as_keys_torch(op: AsKeys, node: Node, torch: TorchNamespace) -> Callable[[Any], Any]:
    return lambda x: x


@to_onnx.rule(AsKeys)
def _as_keys_onnx(op: AsKeys, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    return inputs


@types.rule(Append)
def _append_types(op: Append, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    cache, new = inputs
    renamed = tuple(op.new if name == op.past else name for name in cache.names)
    require(renamed == new.names, f"the cache {cache} and the new positions {new} must have the same order of axes")
    size = _grown(op, cache.axis(op.past).size, new.axis(op.new).size)
    return (cache.replaced(op.past, Axis(op.seen, size)),)


def _grown(op: Append, past: int | None, new: int | None) -> int | None:
    if past is not None and op.window is not None and past >= op.window:
        return op.window
    if past is None or new is None:
        return None
    return past + new if op.window is None else min(past + new, op.window)


@mixes.rule(Append)
def _append_mixes(op: Append, node: Node) -> frozenset[str]:
    return frozenset({op.past, op.new})


@to_torch.rule(Append)
def _append_torch(op: Append, node: Node, torch: TorchNamespace) -> Callable[[Any, Any], Any]:
    index = node.inputs[0].type.names.index(op.past)

    def apply(cache: Any, new: Any) -> Any:
        seen = torch.torch.cat((cache, new), index)
        extra = 0 if op.window is None else max(0, seen.shape[index] - op.window)
        return seen.narrow(index, extra, seen.shape[index] - extra) if extra else seen

    return apply


@to_onnx.rule(Append)
def _append_onnx(op: Append, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    index = node.inputs[0].type.names.index(op.past)
    seen = onnx.op("Concat", *inputs, axis=index)
    if op.window is None:
        return (seen,)
    return (onnx.op("Slice", seen, [-op.window], [2**31], [index]),)


@types.rule(Write)
def _write_types(op: Write, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    cache, new, places, position = inputs
    fits = set(new.axes) == set(_entry(op, cache).axes) and len(new.axes) == len(cache.axes)
    require(fits, f"the new position {new} must have the axes of the cache {cache}")
    require(places == Type("int64", (cache.axis(op.room),)), f"{places} must be the positions of the cache {cache}")
    fits = position.dtype == "int64" and position.names in ((), ("batch",)) and set(position.names) <= set(cache.names)
    require(fits, f"the position must be an int64 scalar, or int64 of each row of {cache}, found {position}")
    return (cache,)


def _entry(op: Write, cache: Type) -> Type:
    """What is written: the cache's type with one position."""
    return cache.replaced(op.room, Axis(op.new, 1))


def _written_type(node: Node) -> Type:
    """The type of whether an entry of the cache is written."""
    _, _, places, position = (value.type for value in node.inputs)
    return Type("bool", (*position.axes, *places.axes))


@mixes.rule(Write)
def _write_mixes(op: Write, node: Node) -> frozenset[str]:
    return frozenset({op.room, op.new})


@to_torch.rule(Write)
def _write_torch(op: Write, node: Node, torch: TorchNamespace) -> Callable[..., Any]:
    cache = node.inputs[0].type
    align, entry = (
        aligner(_written_type(node), Type("bool", cache.axes)),
        aligner(node.inputs[1].type, _entry(op, cache)),
    )

    def apply(cache: Any, new: Any, places: Any, position: Any) -> Any:
        return torch.torch.where(align(places == position.unsqueeze(-1)), entry(new), cache)

    return apply


@to_onnx.rule(Write)
def _write_onnx(op: Write, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    cache, new, places, position = inputs
    entry = _entry(op, node.inputs[0].type)
    new = emit_aligned(onnx, new, node.inputs[1].type, entry)
    if onnx.scatters:
        return (onnx.op("ScatterElements", cache, _index(node, onnx, entry), new, axis=entry.names.index(op.new)),)

    def make() -> str:
        rows = onnx.op("Unsqueeze", position, [-1]) if node.inputs[3].type.axes else position
        return onnx.op("Equal", places, rows)

    here = onnx.once(f"written {places} {position}", make)
    aligned = emit_aligned(onnx, here, _written_type(node), Type("bool", node.inputs[0].type.axes))
    if node.inputs[0].type.dtype != "bool":
        return (onnx.op("Where", aligned, new, cache),)
    kept = onnx.op("And", onnx.op("Not", aligned), cache)  # ONNX Runtime's Where has no bool
    return (onnx.op("Or", onnx.op("And", aligned, new), kept),)


def _index(node: Node, onnx: OnnxEmitter, entry: Type) -> str:
    """Write the position of each number of an entry, along the axis of positions."""
    position, name = node.inputs[3], onnx.name_of(node.inputs[3])

    def make() -> str:
        aligned = emit_aligned(onnx, name, position.type, entry) if position.type.axes else name
        return onnx.op("Expand", aligned, onnx.shape(entry.axes))

    return onnx.once(f"{name} over {entry.axes}", make)


@types.rule(BeamKeys)
def _beam_keys_types(op: BeamKeys, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    x, ranks = inputs
    require(ranks.dtype == "int64" and ranks.names == (op.beam,), f"{ranks} must be the indices of {op.beam}")
    whole = _beside(op, x, ranks).names
    require(whole.index(op.room) + 1 == whole.index(op.beam), f"{op.room} and {op.beam} must be neighbours in {x}")
    axes = tuple(Axis(op.keys) if axis.name == op.room else axis for axis in x.axes if axis.name != op.beam)
    return (Type(x.dtype, axes),)


def _beside(op: BeamKeys, x: Type, ranks: Type) -> Type:
    """The type with the axis beam behind the room."""
    if op.beam in x.names:
        return x
    index = x.names.index(op.room) + 1
    return Type(x.dtype, (*x.axes[:index], *ranks.axes, *x.axes[index:]))


@mixes.rule(BeamKeys)
def _beam_keys_mixes(op: BeamKeys, node: Node) -> frozenset[str]:
    return frozenset({op.beam, op.room})


@to_torch.rule(BeamKeys)
def _beam_keys_torch(op: BeamKeys, node: Node, torch: TorchNamespace) -> Callable[[Any, Any], Any]:
    x, ranks = (value.type for value in node.inputs)
    index = _beside(op, x, ranks).names.index(op.beam)

    def apply(x: Any, ranks: Any) -> Any:
        if op.beam not in node.inputs[0].type.names:
            x = x.unsqueeze(index).expand(*x.shape[:index], len(ranks), *x.shape[index:])
        return x.flatten(index - 1, index)

    return apply


@to_onnx.rule(BeamKeys)
def _beam_keys_onnx(op: BeamKeys, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    x, ranks = (value.type for value in node.inputs)
    whole = _beside(op, x, ranks)
    index = whole.names.index(op.beam)

    def make() -> str:
        name = inputs[0]
        if x != whole:
            name = onnx.op("Expand", onnx.op("Unsqueeze", name, [index]), onnx.shape(whole.axes))
        axes = whole.axes
        before, after = ([(axis,) for axis in part] for part in (axes[: index - 1], axes[index + 1 :]))
        return onnx.op("Reshape", name, onnx.merged(*before, axes[index - 1 : index + 1], *after))

    return (onnx.once(f"keys of {inputs[0]} over {whole}", make),)


@cost.rule(AsKeys)
def _as_keys_cost(op: AsKeys, node: Node) -> Cost:
    if op.window is None:
        return replace(FREE, reach=Reach(op.positions, "all"))
    return replace(FREE, reach=Reach(op.positions, "local", op.window - 1, op.window - 1, Axis("r", op.window)))


@types.rule(Grow)
def _grow_types(op: Grow, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    state, new = inputs
    require(op.past in state.names and op.new in new.names, f"{state} and {new} have no axes {op.past} and {op.new}")
    return (state.replaced(op.past, Axis(op.keys)),)


@mixes.rule(Grow)
def _grow_mixes(op: Grow, node: Node) -> frozenset[str]:
    return frozenset({op.past, op.new})


@to_torch.rule(Grow)
def _grow_torch(op: Grow, node: Node, torch: TorchNamespace) -> Callable[[Any, Any], Any]:
    state, new = (value.type for value in node.inputs)
    pads = [0, 0] * (len(state.axes) - state.names.index(op.past))
    return lambda x, y: torch.functional.pad(x, (*pads[:-1], y.shape[new.names.index(op.new)]))


@to_onnx.rule(Grow)
def _grow_onnx(op: Grow, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    state, new = (value.type for value in node.inputs)
    index, at = state.names.index(op.past), new.names.index(op.new)
    count = onnx.op("Shape", inputs[1], start=at, end=at + 1)
    pads = onnx.op("Concat", [0] * (len(state.axes) + index), count, [0] * (len(state.axes) - index - 1), axis=0)
    return (onnx.op("Pad", inputs[0], pads),)


@types.rule(Places)
def _places_types(op: Places, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    (index,) = inputs
    require(index.dtype == "int64" and len(index.axes) == 1, f"the positions must be an int64 vector, found {index}")
    return (Type("int64", (Axis(op.keys),)),)


@mixes.rule(Places)
def _places_mixes(op: Places, node: Node) -> frozenset[str]:
    return frozenset({op.keys, *node.inputs[0].type.names})


@to_torch.rule(Places)
def _places_torch(op: Places, node: Node, torch: TorchNamespace) -> Callable[[Any], Any]:
    def apply(index: Any) -> Any:
        first = 0 if op.window is None else max(0, int(index[0]) - op.window)
        return torch.torch.arange(first, int(index[-1]) + 1, device=index.device)

    return apply


@to_onnx.rule(Places)
def _places_onnx(op: Places, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    (index,) = inputs

    def make() -> str:
        first: str | int = 0
        if op.window is not None:
            first = onnx.op("Max", onnx.op("Sub", onnx.op("Gather", index, 0, axis=0), op.window), 0)
        last = onnx.op("Squeeze", onnx.op("Slice", index, [-1], [2**31], [0]), [0])
        return onnx.op("Range", first, onnx.op("Add", last, 1), 1)

    return (onnx.once(f"places {index} {op.window}", make),)


cost.rule(Places)(per_result(0))
cost.rule(Append)(per_result(0))
cost.rule(Write)(per_result(0))
cost.rule(BeamKeys)(per_result(0))
cost.rule(Grow)(per_result(0))


@primitive("as_keys", on=None, window=optional("number"))
def _as_keys(site: Site, x: Value, window: float | None = None) -> Value:
    """The positions of `x` as keys, for queries to attend to: those less than `window` away (default: all)."""
    if window is not None and (window != int(window) or window < 1):
        raise site.refuse_number("window", window, "the window must be a positive whole number")
    keys = site.make_keys(site.positions(x), None if window is None else int(window))
    return site.emit(AsKeys(keys.positions, keys.name, keys.window), x)
