"""Assigns the nodes of a graph to the blocks of a spec: their order, and the inputs and outputs of each block."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Union

from xformc.compiler.graph.graph import Graph, Node
from xformc.compiler.ops.contract import Contract


@dataclass(frozen=True)
class BlockPlan:
    """The plan of the block at `path`; the root's path is empty.

    It is called with `values`, then with `tied`, parameters of other blocks. It reads `parameters`, its own and those
    of inner blocks, runs the `steps` in order, and returns `outputs`, in reverse order of computation. Steps whose
    results are in `exact` are computed in float32 also where training is in bfloat16.
    """

    path: str
    values: tuple[str, ...] = ()
    tied: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()
    steps: tuple[Union[Node, "BlockPlan"], ...] = ()
    outputs: tuple[str, ...] = ()
    exact: frozenset[str] = frozenset()

    @property
    def inputs(self) -> tuple[str, ...]:
        """The inputs of a call."""
        return self.values + self.tied

    @property
    def nodes(self) -> Iterator[Node]:
        """The nodes that the block runs itself."""
        return (step for step in self.steps if isinstance(step, Node))

    @property
    def all_nodes(self) -> Iterator[Node]:
        """The nodes of this block and of all inside it, in order."""
        for step in self.steps:
            yield from (step,) if isinstance(step, Node) else step.all_nodes

    @property
    def all_blocks(self) -> Iterator["BlockPlan"]:
        """The blocks that it calls, and all that are called inside them."""
        for inner in self.blocks:
            yield inner
            yield from inner.all_blocks

    @property
    def blocks(self) -> Iterator["BlockPlan"]:
        """The blocks that it calls."""
        return (step for step in self.steps if isinstance(step, BlockPlan))


def plan_blocks(graph: Graph) -> BlockPlan:
    """The root's plan. Its results are bitwise equal to those of the nodes in the graph's order.

    A node is run by the block of its output's path; a node with tied parameters is a block itself. Nodes with integer
    or boolean results, such as masks, may run earlier than in the graph: they have no gradient and draw no random
    numbers. If the nodes of a block alternate with others in a way that this cannot resolve, the block is not called,
    and the block around it runs its nodes.
    """
    return _Planner(graph).root()


def before_parameters(graph: Graph) -> frozenset[str]:
    """The products of values that depend on no parameter, such as the spectrum of a wave.

    Their inputs are numbers as they were measured, of a wide range, and no training adapts to their rounding.
    """
    learned = {parameter.name for parameter in graph.parameters}
    found: set[str] = set()
    for node in graph.nodes:
        if any(value.name in learned for value in node.inputs):
            learned.update(value.name for value in node.outputs)
        elif isinstance(node.op, Contract):
            found.add(node.outputs[0].name)
    return frozenset(found)


def parents(path: str) -> Iterator[str]:
    """The blocks around a path, the outermost first: `a` and `a/b` for `a/b/c`."""
    return accumulate(path.split("/")[:-1], "{}/{}".format)


@dataclass
class _Unit:
    """Consecutive nodes of one block, or one node of the block around it (`owner` is None)."""

    owner: str | None
    nodes: list[Node]

    def makes(self, names: set[str]) -> bool:
        return any(value.name in names for node in self.nodes for value in node.outputs)


class _Planner:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.parameters = dict.fromkeys(parameter.name for parameter in graph.parameters)
        named = [*self.parameters, *(node.outputs[0].name for node in graph.nodes if _is_float(node))]
        self.paths = {path for name in named for path in parents(name)}
        self.paths |= {node.outputs[0].name for node in graph.nodes if self.is_tied(node)}
        self.users = _users(graph)
        self.exact = before_parameters(graph)

    def root(self) -> BlockPlan:
        steps = self.steps("", self.graph.nodes)
        inputs, outputs = (tuple(v.name for v in values) for values in (self.graph.inputs, self.graph.outputs))
        return BlockPlan("", inputs, (), self.read("", steps), steps, outputs, self.exact)

    def block(self, path: str, nodes: Sequence[Node]) -> BlockPlan:
        """The plan of a block that runs exactly these nodes."""
        steps = self.steps(path, nodes)
        inside = {id(node) for node in nodes}
        made = dict.fromkeys(value.name for node in nodes for value in node.outputs)
        used = dict.fromkeys(value.name for node in nodes for value in node.inputs)
        taken = [name for name in used if name not in made and not self.owns(path, name)]
        values = tuple(name for name in taken if name not in self.parameters)
        tied = tuple(name for name in taken if name in self.parameters)
        outputs = [name for name in made if self.users[name] - inside]
        return BlockPlan(path, values, tied, self.read(path, steps), steps, tuple(reversed(outputs)), self.exact)

    def steps(self, path: str, nodes: Sequence[Node]) -> tuple[Node | BlockPlan, ...]:
        steps: list[Node | BlockPlan] = []
        for unit in self.units(path, nodes):
            steps.extend(unit.nodes if unit.owner is None else [self.block(unit.owner, unit.nodes)])
        return tuple(steps)

    def units(self, path: str, nodes: Sequence[Node]) -> list[_Unit]:
        """The nodes grouped by the inner block that runs them; a block that needs more than one call runs none."""
        open_blocks = set[str]()
        while True:
            units, torn = self.grouped(path, nodes, open_blocks)
            if torn is None:
                return units
            open_blocks.add(torn)

    def grouped(self, path: str, nodes: Sequence[Node], open_blocks: set[str]) -> tuple[list[_Unit], str | None]:
        """The units, and the first block with nodes in two of them."""
        units: list[_Unit] = []
        for node in nodes:
            owner = self.child(path, node.outputs[0].name)
            if owner is None or owner in open_blocks:
                place = len(units) if _is_float(node) else _earliest(units, node)
                units.insert(place, _Unit(None, [node]))
            elif units and units[-1].owner == owner:
                units[-1].nodes.append(node)
            elif any(unit.owner == owner for unit in units):
                return units, owner
            else:
                units.append(_Unit(owner, [node]))
        return units, None

    def child(self, path: str, name: str) -> str | None:
        """The block directly inside `path` that this value belongs to; None if it belongs to `path` itself."""
        around = [*parents(name), name]
        depth = path.count("/") + 1 if path else 0
        return around[depth] if depth < len(around) and around[depth] in self.paths else None

    def read(self, path: str, steps: Iterable[Node | BlockPlan]) -> tuple[str, ...]:
        """The parameters below `path` that its steps use, in the graph's order."""
        given: set[str] = set()
        for step in steps:
            given.update(step.inputs if isinstance(step, BlockPlan) else _names(step))
        return tuple(name for name in self.parameters if name in given and self.owns(path, name))

    def is_tied(self, node: Node) -> bool:
        """Whether it uses parameters from outside the block around it."""
        around = node.outputs[0].name.rpartition("/")[0]
        return any(not around or not self.owns(around, name) for name in self.parameters.keys() & _names(node))

    def owns(self, path: str, name: str) -> bool:
        return name in self.parameters and (not path or name.startswith(f"{path}/"))


def _users(graph: Graph) -> Mapping[str, set[int]]:
    """The nodes that use each computed value, and -1 for the graph's results."""
    users: dict[str, set[int]] = {value.name: set() for node in graph.nodes for value in node.outputs}
    for node in graph.nodes:
        for value in node.inputs:
            users.get(value.name, set()).add(id(node))
    for value in graph.outputs:
        users.get(value.name, set()).add(-1)
    return users


def _names(node: Node) -> set[str]:
    return {value.name for value in node.inputs}


def _is_float(node: Node) -> bool:
    return any(value.type.dtype.startswith("float") for value in node.outputs)


def _earliest(units: Sequence[_Unit], node: Node) -> int:
    """The index after the last unit that computes an input of the node."""
    needed = _names(node)
    return max((index + 1 for index, unit in enumerate(units) if unit.makes(needed)), default=0)
