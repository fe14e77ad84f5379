"""Gives each row of a batch a position of its own, so that texts may join and leave a batch that is being decoded."""

from dataclasses import replace

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.graph import Node, Value, pruned
from xformc.compiler.graph.graph_builder import GraphBuilder, copy_node, rebuild
from xformc.compiler.graph.rules import RuleError
from xformc.compiler.ops.keys import PAST
from xformc.compiler.ops.layout import Expand
from xformc.compiler.ops.native import Attend
from xformc.compiler.ops.relative import Distance
from xformc.compiler.passes.lower import SLOTS
from xformc.compiler.passes.step import Decoder

FURTHEST = Value("step/furthest", Type("int64"))
"""An input of a step with positions by row, if it needs it: the largest of them."""


def with_rows(decoder: Decoder) -> Decoder:
    """The decoder with a step at a position for each row: its input `position` is int64 [batch].

    Distances to the keys of a growing cache are those of the row that is furthest: the last ones are those of any row.

    Raises: RuleError if a value that depends on the position is a state of all rows together.
    """
    rows = Type("int64", (Axis("batch"),))
    builder, values = rebuild(decoder.step, decoder.step.name, {decoder.position.name: rows})
    for node in decoder.step.nodes:
        if isinstance(node.op, Distance) and len(node.inputs) == 1:
            index = _furthest(builder, decoder.time, node)
            values[node.outputs[0].name] = builder.emit(node.op, (index,), node.outputs[0].name, node.place)
        else:
            copy_node(builder, values, node)
    for state in decoder.states:
        if state.past.type.names[:1] != ("batch",):
            raise RuleError(f"{state.past.name}: {state.past.type} is a state of all rows together")
    step = pruned(builder.finish(values[value.name] for value in decoder.step.outputs))
    states = (replace(state, new=values[state.new.name]) for state in decoder.states)
    return replace(decoder, step=step, position=values[decoder.position.name], states=tuple(states))


def by_row(decoder: Decoder) -> bool:
    """Whether each row has a position of its own."""
    return bool(decoder.position.type.axes)


def grows(decoder: Decoder) -> bool:
    """Whether a state has an axis that grows with each step, so that rows at different positions do not fit into it."""
    return any(axis.startswith(PAST) for state in decoder.states for axis in state.past.type.names)


def slots_hide(decoder: Decoder) -> bool:
    """Whether texts in slots may have sources of different lengths: what a lowered decoder keeps of their positions is
    read by attention alone, behind a mask."""
    attends = [
        node for node in decoder.step.nodes if isinstance(node.op, Attend) and node.op.slotted and node.op.masked
    ]
    masked = {value.name for node in attends for value in node.inputs[1:4]}
    given = [value for value in decoder.constants if value.name not in masked]
    open_axes = (axis for value in (*given, *(state.past for state in decoder.states)) for axis in value.type.axes)
    return decoder.positions is None and all(
        axis.size is not None or axis.name in ("batch", "beam", SLOTS) for axis in open_axes
    )


def _furthest(builder: GraphBuilder, time: str, node: Node) -> Value:
    known = next((value for value in builder.inputs if value == FURTHEST), None)
    furthest = known or builder.input(FURTHEST.name, FURTHEST.type)
    return builder.emit(Expand(time), (furthest,), f"{node.outputs[0].name}/furthest", node.place)
