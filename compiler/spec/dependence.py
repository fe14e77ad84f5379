"""The values that the results of a graph depend on, followed through the cells of recurrences."""

from collections.abc import Iterable, Iterator

from xformc.compiler.graph.graph import Graph, Node, Value
from xformc.compiler.ops.positions import Positions
from xformc.compiler.ops.recurrence import Recurrence


def needed_values(graph: Graph, outputs: Iterable[Value]) -> frozenset[str]:
    """The names of the values that the outputs depend on; a value of which only the size counts is not one."""
    needed = {value.name for value in outputs}
    for node in reversed(graph.nodes):
        if any(value.name in needed for value in node.outputs):
            needed.update(value.name for value in _read(node))
    return frozenset(needed)


def readers(graph: Graph, parameter: str) -> Iterator[Node]:
    """The nodes that read this parameter, those of cells first."""
    for node in graph.nodes:
        if isinstance(node.op, Recurrence):
            yield from readers(node.op.body, parameter)
        if any(value.name == parameter for value in node.inputs):
            yield node


def _read(node: Node) -> tuple[Value, ...]:
    if isinstance(node.op, Positions):
        return ()
    return _read_by_cell(node, node.op) if isinstance(node.op, Recurrence) else node.inputs


def _read_by_cell(node: Node, op: Recurrence) -> tuple[Value, ...]:
    """The inputs that the result of the cell depends on, at once or through its states."""
    first, body = op.sequences, op.body
    pasts = body.inputs[first : first + op.states]
    used, needed = [body.outputs[0]], frozenset[str]()
    for _ in range(op.states + 1):
        needed = needed_values(body, used)
        news = zip(pasts, body.outputs[1:], strict=True)
        used = [body.outputs[0], *(new for past, new in news if past.name in needed)]
    starting = node.inputs[first : first + op.started]
    outside = zip(body.inputs[first + op.states :], node.inputs[first + op.started :], strict=True)
    return (
        *(value for inner, value in zip(body.inputs[:first], node.inputs, strict=False) if inner.name in needed),
        *(value for past, value in zip(pasts, starting, strict=False) if past.name in needed),
        *(value for inner, value in outside if inner.name in needed),
    )
