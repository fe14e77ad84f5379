"""Precomputes the values of a step that depend only on the position, as tables that each step reads."""

from dataclasses import replace

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.graph import Graph, Node, Value, pruned
from xformc.compiler.graph.graph_builder import copy_node, rebuild
from xformc.compiler.ops.embedding import Embedding
from xformc.compiler.ops.layout import Expand
from xformc.compiler.ops.positions import At
from xformc.compiler.passes.step import Decoder


def tabulate(decoder: Decoder) -> Decoder:
    """The decoder with these tables as constants; `prepare` computes them from its input `positions`, int64 [time]."""
    alone = _of_position(decoder)
    used = {value.name for node in decoder.step.nodes if node not in alone for value in node.inputs}
    used.update(value.name for value in decoder.step.outputs)
    read = _read(decoder, alone)
    made = [value for node in alone if node not in read for value in node.outputs if value.name in used]
    if not made:
        return decoder
    prepare, positions, tables = _tables(decoder, alone, made)
    step, rows = _looked_up(decoder, [node for node in alone if node not in read], made, tables)
    constants = (*decoder.constants, *rows)
    return replace(decoder, prepare=prepare, step=step, constants=constants, positions=positions)


def _of_position(decoder: Decoder) -> list[Node]:
    """The nodes of the step that need only its position and parameters, and whose sizes are known."""
    parameters = {parameter.name for parameter in decoder.step.parameters}
    known, alone = set[str](), list[Node]()
    for node in decoder.step.nodes:
        first = isinstance(node.op, Expand) and node.op.axis == decoder.time and node.inputs[0] == decoder.position
        inner = any(value.name in known for value in node.inputs) and all(
            value.name in known | parameters for value in node.inputs
        )
        sized = all(axis.size is not None for value in node.outputs for axis in value.type.axes)
        timed = all(decoder.time in value.type.names for value in node.outputs)
        if (first or inner) and sized and timed:
            known.update(value.name for value in node.outputs)
            alone.append(node)
    return alone


def _read(decoder: Decoder, alone: list[Node]) -> list[Node]:
    """The nodes that compute nothing: the position itself, and the rows at it of tables that are weights."""
    places = [node for node in alone if isinstance(node.op, Expand) and node.inputs[0] == decoder.position]
    known = {value for node in places for value in node.outputs}
    return [*places, *(node for node in alone if isinstance(node.op, Embedding) and node.inputs[0] in known)]


def _tables(decoder: Decoder, alone: list[Node], made: list[Value]) -> tuple[Graph, Value, list[Value]]:
    """`prepare` with these nodes for all positions, its new input, and their results, placed after its constants."""
    builder, values = rebuild(decoder.prepare, decoder.prepare.name, {})
    for node in decoder.prepare.nodes:
        copy_node(builder, values, node)
    outputs = (values[value.name] for value in decoder.prepare.outputs)
    known = dict(zip(decoder.prepared, outputs, strict=True))
    values |= builder.take_parameters(decoder.step)
    positions = builder.input("positions", Type("int64", (Axis(decoder.time),)), renamed=True)
    for node in alone:
        if isinstance(node.op, Expand) and node.inputs[0] == decoder.position:
            values[node.outputs[0].name] = positions
        else:
            copy_node(builder, values, node)
    tables = [values[value.name] for value in made]
    constants, others = ([known[value] for value in group] for group in (decoder.constants, decoder.prepared))
    return pruned(builder.finish([*constants, *tables, *others[len(constants) :]])), positions, tables


def _looked_up(
    decoder: Decoder, alone: list[Node], made: list[Value], tables: list[Value]
) -> tuple[Graph, tuple[Value, ...]]:
    """The step with these nodes replaced by rows of the tables, and the tables, placed after its constants."""
    builder, values = rebuild(decoder.step, decoder.step.name, {})
    rows = tuple(builder.input(f"{value.name}/table", table.type) for value, table in zip(made, tables, strict=True))
    pasts = (state.past for state in decoder.states)
    builder.inputs = [decoder.token, decoder.position, *decoder.constants, *rows, *pasts]
    for value, row in zip(made, rows, strict=True):
        values[value.name] = builder.emit(At(decoder.time), (row, decoder.position), value.name)
    for node in decoder.step.nodes:
        if node not in alone:
            copy_node(builder, values, node)
    return pruned(builder.finish(values[value.name] for value in decoder.step.outputs)), rows
