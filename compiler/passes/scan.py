"""Replaces linear recurrences by parallel scans, which training computes at all positions at once.

A state is linear if its cell computes `factor * state + term`, elementwise, where neither depends on that state: as in
state space models, gated linear attention and minimal GRUs. They may depend on states that are linear themselves, in a
cell with several. The other nodes of the cell then run on the states of all positions.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from xformc.compiler.graph.graph import Graph, Node, Op, Value, pruned
from xformc.compiler.graph.graph_builder import GraphBuilder, copy_node, rebuild
from xformc.compiler.ops.elementwise import Add, Binary, Multiply, Scale, Shift
from xformc.compiler.ops.layout import Align
from xformc.compiler.ops.linear_scan import LinearScan, Previous
from xformc.compiler.ops.masks import Select
from xformc.compiler.ops.recurrence import Recurrence

_Term = Value | float
"""A value that is the same whatever the state is, or a number."""


@dataclass(frozen=True)
class _Linear:
    """`factor * state + term`; where the `mask` is false, the state itself."""

    factor: _Term
    term: _Term
    mask: Value | None = None


def scan(graph: Graph) -> Graph:
    """The graph with scans in place of its linear recurrences, after `hoist`; same values, same parameters."""
    builder, values = rebuild(graph, graph.name, {})
    for node in graph.nodes:
        parallel = _parallel(node, node.op) if isinstance(node.op, Recurrence) else None
        if parallel is None:
            copy_node(builder, values, node)
            continue
        inner = {given.name: values[value.name] for given, value in zip(parallel.inputs, node.inputs, strict=True)}
        for item in parallel.nodes:
            copy_node(builder, inner, item)
        values[node.outputs[0].name] = inner[parallel.outputs[0].name]
    return builder.finish(values[value.name] for value in graph.outputs)


def _parallel(node: Node, op: Recurrence) -> Graph | None:
    """The recurrence as a graph over all positions, or None if a state is not linear."""
    scanner = _Scanner(op, node)
    pending = dict(enumerate(op.body.outputs[1:]))
    while pending:
        solved = next((index for index, new in pending.items() if scanner.solve(index, new)), None)
        if solved is None:
            return None
        del pending[solved]
    return scanner.finish()


class _Scanner:
    """Writes the nodes of a cell for all positions, state by state."""

    def __init__(self, op: Recurrence, node: Node) -> None:
        self.op, self.place = op, node.place
        self.builder = GraphBuilder("scan")
        given = [self.builder.input(f"outer {index}", value.type) for index, value in enumerate(node.inputs)]
        self.start = tuple(given[op.sequences : op.sequences + op.started])
        inputs = op.body.inputs
        self.states = inputs[op.sequences : op.sequences + op.states]
        rest = zip(inputs[op.sequences + op.states :], given[op.sequences + op.started :], strict=True)
        known = (*zip(inputs[: op.sequences], given, strict=False), *rest)
        self.known = {inner.name: value for inner, value in known}
        self._write(op.body.nodes)

    def finish(self) -> Graph:
        """The graph; all states are solved."""
        return pruned(self.builder.finish([self.known[self.op.body.outputs[0].name]]))

    def solve(self, index: int, new: Value) -> bool:
        """Write the states of all positions and what follows from them, if the `new` state is linear."""
        old, start = self.states[index], self.start if index == 0 else ()
        states = self.known.get(new.name) or self._scan(old, new, start)
        if states is None:
            return False
        previous = Previous(self.op.positions, self.op.reverse, bool(start))
        before = self._emit(previous, (states, *start), f"{new.name}/before")
        self.known |= {new.name: states, old.name: before}
        self._write(self.op.body.nodes)
        return True

    def _scan(self, old: Value, new: Value, start: tuple[Value, ...]) -> Value | None:
        found = self._linear(old).get(new.name)
        if found is None or not isinstance(found.term, Value) or set(found.term.type.names) != set(old.type.names):
            return None
        term = found.term
        if term.type.names != old.type.names:
            term = self._emit(Align(old.type.names[1:]), (term,), new.name)
        given = (term, *(item for item in (found.factor, found.mask) if isinstance(item, Value)), *start)
        number = None if isinstance(found.factor, Value) else float(found.factor)
        op = LinearScan(self.op.positions, self.op.reverse, number, found.mask is not None, bool(start))
        return self._emit(op, given, new.name)

    def _write(self, nodes: Iterable[Node]) -> None:
        """Write the nodes that depend on no state that is still to be solved."""
        for node in nodes:
            if node.outputs[0].name not in self.known and all(value.name in self.known for value in node.inputs):
                copy_node(self.builder, self.known, node)

    def _linear(self, state: Value) -> dict[str, _Linear]:
        """The values of the cell that are linear in this state and depend on no other that is to be solved."""
        found = {state.name: _Linear(1.0, 0.0)}
        for node in self.op.body.nodes:
            name = node.outputs[0].name
            operands = [self.known.get(value.name) or found.get(value.name) for value in node.inputs]
            if name not in self.known and (result := self._combine(node.op, operands, name)) is not None:
                found[name] = result
        return found

    def _combine(self, op: Op, operands: list[Value | _Linear | None], name: str) -> _Linear | None:
        """The result of an op as a linear function of the state, or None."""
        match op, operands:
            case Align(), [_Linear() as x]:
                return x
            case Select(), [Value() as mask, (Value() | _Linear(mask=None)) as x, _Linear(1.0, 0.0, None)]:
                return replace(_Linear(0.0, x) if isinstance(x, Value) else x, mask=mask)
            case Binary("minus"), [x, (Value() | _Linear(mask=None)) as y]:
                return self._combine(Add(), [x, self._negative(y, name)], name)
            case (
                (Shift(by), [_Linear(mask=None) as x])
                | (Add(), [_Linear(mask=None) as x, (Value() | _Linear(mask=None)) as by])
                | (Add(), [Value() as by, _Linear(mask=None) as x])
            ):
                other = by if isinstance(by, _Linear) else _Linear(0.0, by)
                return _Linear(self._sum(x.factor, other.factor, name), self._sum(x.term, other.term, name))
            case (
                (Scale(by), [_Linear(mask=None) as x])
                | (Multiply(), [_Linear(mask=None) as x, Value() as by])
                | (Multiply(), [Value() as by, _Linear(mask=None) as x])
            ):
                return _Linear(self._product(x.factor, by, name), self._product(x.term, by, name))
            case _:
                return None

    def _negative(self, x: Value | _Linear, name: str) -> Value | _Linear:
        if isinstance(x, Value):
            return self._emit(Scale(-1.0), (x,), name)
        return _Linear(self._product(x.factor, -1.0, name), self._product(x.term, -1.0, name))

    def _sum(self, a: _Term, b: _Term, name: str) -> _Term:
        if not isinstance(a, Value):
            return self._sum(b, a, name) if isinstance(b, Value) else a + b
        if isinstance(b, Value):
            return self._emit(Add(), (a, b), name)
        return self._emit(Shift(b), (a,), name) if b else a

    def _product(self, a: _Term, b: _Term, name: str) -> _Term:
        if not isinstance(a, Value):
            return self._product(b, a, name) if isinstance(b, Value) else a * b
        if isinstance(b, Value):
            return self._emit(Multiply(), (a, b), name)
        return 0.0 if b == 0 else a if b == 1 else self._emit(Scale(b), (a,), name)

    def _emit(self, op: Op, inputs: tuple[Value, ...], name: str) -> Value:
        return self.builder.emit(op, inputs, name, self.place)
