"""Which nodes of a graph each block of a spec runs, in which order, and what goes in and out."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Union

from xformc.compiler.graph.graph import Graph, Node


@dataclass(frozen=True)
class BlockPlan:
    """What the block at `path` does; the root's path is empty.

    It is called with `values`, then with `tied`: parameters of other blocks. It reads `parameters`, which are its own
    or those of blocks inside it, takes the `steps` in order, and gives `outputs`, the last made first.
    """

    path: str
    values: tuple[str, ...] = ()
    tied: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()
    steps: tuple[Union[Node, "BlockPlan"], ...] = ()
    outputs: tuple[str, ...] = ()

    @property
    def inputs(self) -> tuple[str, ...]:
        """What it is called with."""
        return self.values + self.tied

    @property
    def nodes(self) -> Iterator[Node]:
        """The nodes that the block runs itself."""
        return (step for step in self.steps if isinstance(step, Node))

    @property
    def blocks(self) -> Iterator["BlockPlan"]:
        """The blocks that it calls."""
        return (step for step in self.steps if isinstance(step, BlockPlan))


def plan_blocks(graph: Graph) -> BlockPlan:
    """The root's plan. Running it gives what the nodes give in the graph's order, to the bit.

    A node is run by the block of its output's path; one that is given tied parameters is a block itself. Nodes that
    give integers or booleans, such as masks, may run earlier than in the graph: no gradient passes them and they draw
    no random numbers. Where nodes of a block alternate with others in a way that no such move resolves, the block is
    not called: the one around it runs its nodes.
    """
    return _Planner(graph).root()


def parents(path: str) -> Iterator[str]:
    """The blocks around a path, the outermost first: of `a/b/c` these are `a` and `a/b`."""
    return accumulate(path.split("/")[:-1], "{}/{}".format)


@dataclass
class _Unit:
    """Neighbouring nodes of one block, or one node of the block around it (`owner` is None)."""

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

    def root(self) -> BlockPlan:
        steps = self.steps("", self.graph.nodes)
        inputs, outputs = (tuple(v.name for v in values) for values in (self.graph.inputs, self.graph.outputs))
        return BlockPlan("", inputs, (), self.read("", steps), steps, outputs)

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
        return BlockPlan(path, values, tied, self.read(path, steps), steps, tuple(reversed(outputs)))

    def steps(self, path: str, nodes: Sequence[Node]) -> tuple[Node | BlockPlan, ...]:
        steps: list[Node | BlockPlan] = []
        for unit in self.units(path, nodes):
            steps.extend(unit.nodes if unit.owner is None else [self.block(unit.owner, unit.nodes)])
        return tuple(steps)

    def units(self, path: str, nodes: Sequence[Node]) -> list[_Unit]:
        """The nodes by the block inside `path` that runs them; a block that cannot run its nodes at once runs none."""
        open_blocks = set[str]()
        while True:
            units, torn = self.grouped(path, nodes, open_blocks)
            if torn is None:
                return units
            open_blocks.add(torn)

    def grouped(self, path: str, nodes: Sequence[Node], open_blocks: set[str]) -> tuple[list[_Unit], str | None]:
        """The units, and the first block whose nodes are in two of them."""
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
        """The block directly inside `path` that this value is of; None if it is of `path` itself."""
        around = [*parents(name), name]
        depth = path.count("/") + 1 if path else 0
        return around[depth] if depth < len(around) and around[depth] in self.paths else None

    def read(self, path: str, steps: Iterable[Node | BlockPlan]) -> tuple[str, ...]:
        """The parameters below `path` that its steps are given, in the graph's order."""
        given: set[str] = set()
        for step in steps:
            given.update(step.inputs if isinstance(step, BlockPlan) else _names(step))
        return tuple(name for name in self.parameters if name in given and self.owns(path, name))

    def is_tied(self, node: Node) -> bool:
        """Whether it is given parameters that are not of the block around it."""
        around = node.outputs[0].name.rpartition("/")[0]
        return any(not around or not self.owns(around, name) for name in self.parameters.keys() & _names(node))

    def owns(self, path: str, name: str) -> bool:
        return name in self.parameters and (not path or name.startswith(f"{path}/"))


def _users(graph: Graph) -> Mapping[str, set[int]]:
    """The nodes that use each value that is made, and -1 for the graph's result."""
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
    """Behind the last unit that makes what the node needs."""
    needed = _names(node)
    return max((index + 1 for index, unit in enumerate(units) if unit.makes(needed)), default=0)
