"""The graph: values, nodes and parameters, all frozen; a pass returns a new graph."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from xformc.compiler.graph.axes import Type


@dataclass(frozen=True)
class Op:
    """The operation of a node. Subclasses register under their `kind`; attributes are dataclass fields."""

    kind: ClassVar[str]
    kept: ClassVar[bool] = False
    """Whether its nodes stay although no output needs them."""

    registry: ClassVar[dict[str, type["Op"]]] = {}

    def __init_subclass__(cls) -> None:
        """Register the subclass under its `kind`, so that the text form can be read back."""
        Op.registry[cls.kind] = cls


@dataclass(frozen=True)
class Value:
    """A named, typed result."""

    name: str
    type: Type


@dataclass(frozen=True)
class Node:
    """One application of an op. `place` is `file:line:column` of the step in the spec."""

    op: Op
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    place: str | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Initial:
    """How a parameter is initialized: `constant(value)`, `normal(deviation)` or `uniform(bound)`.

    `identity(factor)` and `orthogonal(factor)` see it as a matrix with `rows` rows; they are 0 otherwise.
    """

    kind: Literal["constant", "normal", "uniform", "identity", "orthogonal"]
    value: float
    rows: int = 0

    @property
    def random(self) -> bool:
        """Whether it draws random numbers."""
        return self.kind in ("normal", "uniform", "orthogonal")


@dataclass(frozen=True)
class Parameter:
    """A value that is learned, or initialized once and kept. Nodes that use the same path share it: tied weights.

    `outputs` is the number of its first axes that are the outputs of its matrix product; the others are the inputs.
    """

    value: Value
    initial: Initial
    trained: bool = True
    outputs: int = field(default=0, compare=False)

    @property
    def name(self) -> str:
        """The path, such as `encoder/3/self_attention/query/weight`."""
        return self.value.name

    @property
    def type(self) -> Type:
        """The type; every size is an integer."""
        return self.value.type

    @property
    def count(self) -> int:
        """The number of elements."""
        count = 1
        for size in self.type.sizes():
            count *= size
        return count


@dataclass(frozen=True)
class Graph:
    """Nodes in topological order: every value is made before it is used."""

    name: str
    inputs: tuple[Value, ...]
    parameters: tuple[Parameter, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Value, ...]

    def parameter_count(self) -> int:
        """The number of trained elements in all parameters."""
        return sum(parameter.count for parameter in self.parameters if parameter.trained)

    def producers(self) -> dict[str, Node]:
        """The node that makes each value, by the value's name; inputs and parameters have none."""
        return {output.name: node for node in self.nodes for output in node.outputs}


def pruned(graph: Graph) -> Graph:
    """Remove the nodes and parameters that no output and no kept node needs."""
    needed = {value.name for value in graph.outputs}
    nodes: list[Node] = []
    for node in reversed(graph.nodes):
        if node.op.kept or any(value.name in needed for value in node.outputs):
            needed.update(value.name for value in node.inputs)
            nodes.append(node)
    parameters = tuple(parameter for parameter in graph.parameters if parameter.name in needed)
    return Graph(graph.name, graph.inputs, parameters, tuple(reversed(nodes)), graph.outputs)


def all_nodes(nodes: Iterable[Node]) -> Iterator[Node]:
    """The nodes, and the nodes in the bodies of their ops."""
    for node in nodes:
        yield node
        for inner in vars(node.op).values():
            if isinstance(inner, Graph):
                yield from all_nodes(inner.nodes)
