"""Recurrence: a cell with states, applied position by position. Its body is also its step in decoding."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.cost import ONE, Cost, Reach, count, total
from xformc.compiler.graph.graph import Graph, Node, Op, Value
from xformc.compiler.graph.primitives import Applied, Site, optional, primitive
from xformc.compiler.graph.rules import (
    OnnxEmitter,
    Stepper,
    TorchNamespace,
    cost,
    cost_of,
    mixed_axes,
    mixes,
    require,
    to_onnx,
    to_step,
    to_torch,
    types,
)
from xformc.compiler.ops.layout import Align, Expand, emit_aligned
from xformc.compiler.ops.masks import Select


@dataclass(frozen=True)
class Recurrence(Op):
    """`y[t], state = body(x[t], state)` for every position t in order, or from the last to the first.

    Inputs: `sequences` values with the axis `positions`; the initial values of the first `started` states; then the
    outer values that the body uses. The body takes one position of each sequence (the axis `positions` has size 1), the
    `states`, and the outer values; it returns y and the new states. Other states start as zero. With `ends`, the states
    after the last position are results too.
    """

    kind: ClassVar[str] = "recurrence"
    positions: str
    sequences: int
    states: int
    started: int
    reverse: bool
    body: Graph
    ends: bool = False

    def state_types(self) -> tuple[Type, ...]:
        """The types of the states: [batch, positions=1, ..]."""
        return tuple(value.type for value in self.body.inputs[self.sequences : self.sequences + self.states])

    def bind(self, sequences: Any, states: Any, rest: Any) -> dict[str, Any]:
        """The body's inputs by name."""
        names = (value.name for value in self.body.inputs)
        return dict(zip(names, (*sequences, *states, *rest), strict=True))


@types.rule(Recurrence)
def _recurrence_types(op: Recurrence, inputs: tuple[Type, ...]) -> tuple[Type, ...]:
    given = inputs[: op.sequences]
    length = next((axis for type in given for axis in type.axes if axis.name == op.positions), None)
    require(length is not None, f"{', '.join(map(str, given))} has no axis {op.positions}")
    assert length is not None
    expected = [value.type for value in op.body.inputs]
    found = [_narrow(type, op.positions) for type in given]
    first = op.sequences + op.started
    found += [*inputs[op.sequences : first], *op.state_types()[op.started :], *inputs[first:]]
    require(found == expected, f"the cell needs {', '.join(map(str, expected))}, found {', '.join(map(str, found))}")
    result = op.body.outputs[0].type
    whole = Type(result.dtype, tuple(length if axis.name == op.positions else axis for axis in result.axes))
    return (whole, *(op.state_types() if op.ends else ()))


def _narrow(type: Type, positions: str) -> Type:
    return type.replaced(positions, Axis(positions, 1))


@mixes.rule(Recurrence)
def _recurrence_mixes(op: Recurrence, node: Node) -> frozenset[str]:
    return frozenset({op.positions})


@to_step.rule(Recurrence)
def _recurrence_step(op: Recurrence, node: Node, step: Stepper) -> tuple[Value, ...]:
    if op.reverse:
        raise step.refuse("it goes from the last position to the first", "only a forward recurrence is causal")
    outside = node.inputs[op.sequences + op.started :]
    if any(step.carries_time(value) for value in outside):
        raise step.refuse("its cell sees positions other than its own")
    name = node.outputs[0].name
    states = [
        step.state(f"{name}/{index}", type, node.inputs[op.sequences] if op.started and index == 0 else None)
        for index, type in enumerate(op.state_types())
    ]
    given = [step.value(value) for value in node.inputs[: op.sequences]]
    if step.several:
        whole = replace(op, started=op.states, ends=True)
        result, *ends = step.emit_all(whole, (*given, *states, *(step.value(value) for value in outside)), name)
        for state, value in zip(states, ends, strict=True):
            step.carry(state, value)
        return (result,)
    values = op.bind(given, states, [step.value(value) for value in outside])
    for inner in op.body.nodes:
        inputs = tuple(values[value.name] for value in inner.inputs)
        (output,) = inner.outputs
        values[output.name] = step.emit(inner.op, inputs, output.name)
    result, *new = (values[value.name] for value in op.body.outputs)
    for state, value in zip(states, new, strict=True):
        step.carry(state, value)
    return (result,)


@to_torch.rule(Recurrence)
def _recurrence_torch(op: Recurrence, node: Node, torch: TorchNamespace) -> Callable[..., Any]:
    run = torch.function(op.body)
    axes = [value.type.names.index(op.positions) for value in node.inputs[: op.sequences]]
    result = op.body.outputs[0].type.names.index(op.positions)
    places = {
        axis.name: (at, index) for at, value in enumerate(node.inputs) for index, axis in enumerate(value.type.axes)
    }
    types = op.state_types()

    def apply(*inputs: Any) -> Any:
        sequences, rest = inputs[: op.sequences], inputs[op.sequences + op.started :]
        first = sequences[0]

        def size_of(axis: Axis) -> int:
            at, index = places[axis.name]
            return inputs[at].shape[index]

        shapes = [[size_of(axis) if axis.size is None else axis.size for axis in type.axes] for type in types]
        states: list[Any] = [first.new_zeros(shape) for shape in shapes]
        states[: op.started] = inputs[op.sequences : op.sequences + op.started]
        split = [value.split(1, axis) for value, axis in zip(sequences, axes, strict=True)]
        count, outputs = first.shape[axes[0]], list[Any]()
        for index in range(count - 1, -1, -1) if op.reverse else range(count):
            parts = [value[index] for value in split]
            output, *states = run(*parts, *states, *rest)
            outputs.append(output)
        whole = torch.torch.cat(outputs[::-1] if op.reverse else outputs, result)
        return (whole, *states) if op.ends else whole

    return apply


@to_onnx.rule(Recurrence)
def _recurrence_onnx(op: Recurrence, node: Node, onnx: OnnxEmitter, inputs: tuple[str, ...]) -> tuple[str, ...]:
    first = node.inputs[0].type
    count = onnx.op("Squeeze", onnx.merged((first.axis(op.positions),)))
    rest = inputs[op.sequences + op.started :]
    types = op.state_types()
    states = [onnx.op("Expand", 0.0, onnx.shape(type.axes)) for type in types[op.started :]]
    states = [*inputs[op.sequences : op.sequences + op.started], *states]
    axes = [value.type.names.index(op.positions) for value in node.inputs[: op.sequences]]

    def body(scope: OnnxEmitter, index: str, carried: list[str]) -> tuple[str, list[str], list[tuple[Type, str]]]:
        at = scope.op("Sub", scope.op("Sub", count, 1), index) if op.reverse else index
        place = scope.op("Unsqueeze", at, [0])
        parts = [scope.op("Gather", name, place, axis=axis) for name, axis in zip(inputs, axes, strict=False)]
        output, *new = scope.graph(op.body, op.bind(parts, carried, rest))
        return scope.op("Identity", True), new, [(op.body.outputs[0].type, output)]

    kept = frozenset({"batch", *(axis.name for type in types for axis in type.axes if axis.size is None)})
    results = onnx.loop(count, list(zip(types, states, strict=True)), body, kept)
    result = op.body.outputs[0].type
    at = result.names.index(op.positions)
    stacked = onnx.op("Squeeze", results[-1], [at + 1])
    if op.reverse:
        stacked = onnx.op("Slice", stacked, [-1], [-(2**31)], [0], [-1])
    order = (result.axes[at], *(axis for axis in result.axes if axis.name != op.positions))
    wanted = node.outputs[0].type
    whole = emit_aligned(onnx, stacked, Type(result.dtype, order), wanted)
    return (whole, *(results[: op.states] if op.ends else ()))


@cost.rule(Recurrence)
def _recurrence_cost(op: Recurrence, node: Node) -> Cost:
    """The cost of its cell per position, one position after another."""
    length = next(value.type.axis(op.positions) for value in node.inputs if op.positions in value.type.names)
    cell = replace(total(cost_of(inner) for inner in op.body.nodes), sequential=ONE)
    return replace(cell.times(count((length,))), reach=Reach(op.positions, "serial", not op.reverse, op.reverse))


@primitive("recurrence", state="states", cell="block", start=optional("value"), reverse=optional("flag"))
def _recurrence(
    site: Site,
    x: Value,
    state: Mapping[str, tuple[Axis, ...]],
    cell: Applied,
    start: Value | None = None,
    reverse: bool = False,
) -> Value:
    """The result of a cell at each position, in order. In the cell, `x` is the input at that position, and each state
    has a name; the step with a state's name computes its new value. States start at 0, the first one at `start`. They
    may have the positions or keys of another input, such as what a decoder has read of its source."""
    positions = site.positions(x)
    if wrong := [name for name, axes in state.items() if positions in [axis.name for axis in axes]]:
        raise site.refuse(f"the state '{wrong[0]}' has the axis {positions}, of which the cell sees one position")
    mask = site.mask(positions) if reverse else None
    sequences = (x,) if mask is None else (x, mask)
    batch = [axis for axis in sequences[-1].type.axes if axis.name == "batch"]
    held = {name: Type("float32", (*batch, Axis(positions, 1), *axes)) for name, axes in state.items()}
    inputs = {f"{value.name}/now": _narrow(value.type, positions) for value in sequences}

    def trace(values: tuple[Value, ...]) -> tuple[Value, ...]:
        olds = dict(zip(held, values[len(sequences) :], strict=True))
        result, names = cell.named(values[0], olds)
        news = [_new_state(site, name, old, names[name]) for name, old in olds.items()]
        if mask is not None:
            news = [site.emit(Select(), values[1], new, old) for new, old in zip(news, olds.values(), strict=True)]
        return (result, *news)

    body, captured = site.trace({**inputs, **{f"state/{name}": type for name, type in held.items()}}, trace)
    if any(positions in mixed_axes(node) for node in body.nodes):
        raise site.refuse(f"the cell sees one position of {positions} at a time", "mix positions outside the cell")
    if positions not in body.outputs[0].type.names:
        raise site.refuse("the cell's result does not depend on its position or its states")
    begin = () if start is None else (_start(site, start, positions, next(iter(held.values()))),)
    op = Recurrence(positions, len(sequences), len(held), int(start is not None), reverse, body)
    return site.emit(op, *sequences, *begin, *captured)


def _new_state(site: Site, name: str, old: Value, new: Value) -> Value:
    if new is old:
        raise site.refuse(f"the cell never updates its state '{name}'", f"name a step of the cell '{name}'")
    if set(new.type.axes) != set(old.type.axes):
        raise site.refuse(f"the state '{name}' is {old.type}, but the cell sets it to {new.type}")
    if new.type.axes == old.type.axes:
        return new
    return site.emit(Align(old.type.names[1:]), new, name=f"{name}/state")


def _start(site: Site, start: Value, positions: str, wanted: Type) -> Value:
    value = site.emit(Expand(positions), start, name="start")
    if set(value.type.axes) != set(wanted.axes):
        raise site.refuse(f"the first state is {wanted}, but 'start' is {start.type}")
    if value.type.axes == wanted.axes:
        return value
    return site.emit(Align(wanted.names[1:]), value, name="begin")
