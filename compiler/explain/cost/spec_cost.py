"""The cost of a spec by block: parameters, operations, bytes, states, complexity, path lengths."""

from collections import defaultdict
from dataclasses import dataclass, field
from math import prod

from xformc.compiler import compile_spec
from xformc.compiler.explain.cost.blocks import ELSEWHERE, Blocks
from xformc.compiler.explain.cost.complexity import CostOf, Symbols, position_axes, remembered, symbols
from xformc.compiler.explain.cost.paths import Path, longest_paths, path_formula
from xformc.compiler.explain.cost.run_sizes import Sizes, checked_length, find_program, run_sizes, step_sizes
from xformc.compiler.graph.axes import Type
from xformc.compiler.graph.cost import ONE, Cost, Reach, size_in_bytes, total
from xformc.compiler.graph.graph import Graph, Node
from xformc.compiler.graph.rules import cost_of
from xformc.compiler.ops.keys import PAST
from xformc.compiler.passes.step import Decoder
from xformc.compiler.results.kind import positions_of
from xformc.compiler.spec import Spec
from xformc.compiler.spec.model import Input, sequences_of

BACKWARD = 2
"""The cost of the backward pass in forward passes: each product has a gradient for each of its two operands."""


@dataclass(frozen=True)
class Usage:
    """Floating-point operations, the part of them in matrix products, and bytes moved."""

    flops: float
    products: float
    bytes: float


@dataclass(frozen=True)
class Mixing:
    """How a block mixes positions: a row of Table 1 of Vaswani et al. (2017)."""

    complexity: str
    sequential: str
    path: str


@dataclass(frozen=True)
class Block:
    """One block.

    `forward`: the forward pass in training, per unit. `step`: decoding one token. `state_growth`: bytes of states per
    decoded token. `state_fixed`: bytes of states of constant size. `mixing`: None if the block works on each position
    separately.
    """

    name: str
    parameters: int
    forward: Usage
    step: Usage | None
    state_growth: int
    state_fixed: int
    complexity: str
    mixing: Mixing | None


@dataclass(frozen=True)
class Training:
    """The number of training steps, the examples of a batch, the units per step, the cost of a unit in forward passes,
    and the operations of all steps."""

    steps: int
    examples: int
    units: int
    passes: int
    flops: float


@dataclass(frozen=True)
class Decoding:
    """The work done once before the first token, and the bytes of its results that all steps read."""

    once: Usage
    constants: int


@dataclass(frozen=True)
class Report:
    """The costs of a spec if every input has `length` positions (None: the spec fixes their sizes).

    `unit` is the unit of costs: a token, a position or an example. `refusal` is the reason why a task that decodes has
    no decoder.
    """

    name: str
    task: str
    unit: str
    length: int | None
    blocks: tuple[Block, ...]
    total: Block
    paths: tuple[Path, ...]
    training: Training
    decoding: Decoding | None
    refusal: str | None


def report(spec: Spec, length: int | None, depth: int) -> Report:
    """Count the costs of a spec at `length` positions; see `checked_length`.

    Raises: SpecError; UserError for a length that the model does not support; RuleError for an op without a cost.
    """
    graph = compile_spec(spec)
    length = checked_length(spec, graph, length)
    program, refusal = find_program(spec)
    decoder = None if program is None else program.decoder
    examples = max(1, spec.train.batch_tokens // max(_width(item, length) for item in spec.inputs.values()))
    units = examples * ((length or 1) if _unit(spec, graph) != _WHOLE else 1)
    names = Blocks(spec.model.stages, depth)
    groups = _groups(graph, decoder, names)
    batch = run_sizes(graph, length) | {"batch": examples}
    step = None if decoder is None else step_sizes(decoder, length)
    costs = remembered()
    positions = position_axes(graph, costs)
    count = _Counting(costs, symbols(graph, positions), batch, units, step)
    blocks = [count.block(names.label(key), group) for key, group in groups.items()]
    paths = tuple(longest_paths(graph, length or 1, positions, costs))
    whole = count.block("total", _everything(graph, decoder))
    passes = (1 + BACKWARD) * spec.train.copies
    flops = passes * whole.forward.flops * units * spec.train.accumulate * spec.train.steps
    return Report(
        spec.name,
        spec.task,
        _unit(spec, graph),
        length,
        tuple(blocks),
        whole,
        paths,
        Training(spec.train.steps, examples, units * spec.train.accumulate, passes, flops),
        None if decoder is None else _decoding(decoder, length),
        refusal,
    )


_WHOLE = "example"


def _width(item: Input, length: int | None) -> int:
    """The positions of an example in a batch, along one input; of values all elements but those of the last axis."""
    return prod(axis.size or 1 for axis in item.axes[:-1]) if item.kind == "values" else length or 1


def _unit(spec: Spec, graph: Graph) -> str:
    """What a spec has a result for: the first of its results."""
    if spec.written is not None:
        return f"token of {spec.written}"
    return _WHOLE if positions_of(graph.outputs[0].type, sequences_of(spec.inputs)) is None else "position"


@dataclass
class _Group:
    """The contents of a block: its nodes in training and in a step, its states, and its parameters."""

    parameters: int = 0
    nodes: list[Node] = field(default_factory=list[Node])
    steps: list[Node] = field(default_factory=list[Node])
    states: list[Type] = field(default_factory=list[Type])


def _everything(graph: Graph, decoder: Decoder | None) -> _Group:
    group = _Group(graph.parameter_count(), list(graph.nodes))
    if decoder is not None:
        group.steps, group.states = list(decoder.step.nodes), [state.past.type for state in decoder.states]
    return group


def _groups(graph: Graph, decoder: Decoder | None, names: Blocks) -> dict[str, _Group]:
    """The blocks by key, in the order of the model; masks come last."""
    groups: defaultdict[str, _Group] = defaultdict(_Group)
    for node in graph.nodes:
        groups[names.of(node.outputs[0].name)].nodes.append(node)
    users = {value.name: node.outputs[0].name for node in reversed(graph.nodes) for value in node.inputs}
    for parameter in graph.parameters:
        key = names.of(parameter.name.rpartition("/")[0])
        key = key if key in groups else names.of(users[parameter.name])  # shared turns have no block of that name
        groups[key].parameters += parameter.count if parameter.trained else 0
    for node in () if decoder is None else decoder.step.nodes:
        groups[names.of(node.outputs[0].name)].steps.append(node)
    for state in () if decoder is None else decoder.states:
        groups[names.of(state.past.name)].states.append(state.past.type)
    return dict(sorted(groups.items(), key=lambda item: item[0] == ELSEWHERE))


@dataclass(frozen=True)
class _Counting:
    """Counts the costs of groups. `sizes` and `units` are those of a training batch, `step` the sizes of a step."""

    costs: CostOf
    symbols: Symbols
    sizes: Sizes
    units: int
    step: Sizes | None

    def block(self, name: str, group: _Group) -> Block:
        forward = total(self.costs(node) for node in group.nodes)
        growing = [type for type in group.states if PAST in type.names]
        fixed = [type for type in group.states if PAST not in type.names]
        return Block(
            name,
            group.parameters,
            _usage(forward, self.sizes, self.units),
            self.stepping(group.steps),
            self.bytes(growing, {PAST: 1}),
            self.bytes(fixed, {}),
            self.symbols.order(forward.flops),
            self.mixing(group.nodes),
        )

    def stepping(self, nodes: list[Node]) -> Usage | None:
        return _usage(total(self.costs(node) for node in nodes), self.step, 1) if self.step and nodes else None

    def bytes(self, types: list[Type], sizes: Sizes) -> int:
        return sum(size_in_bytes(type).at({**(self.step or {}), **sizes}) for type in types)

    def mixing(self, nodes: list[Node]) -> Mixing | None:
        """The mixing of a block: its nodes that mix positions, and those between them, which have an axis of keys."""
        reaches = [reach for node in nodes if (reach := self.reach(node)) is not None]
        path = path_formula(reaches)
        if path is None:
            return None
        cost = total(self.costs(node) for node in nodes if self.reach(node) is not None or self.sees_keys(node))
        return Mixing(self.symbols.order(cost.flops), self.symbols.order(cost.sequential + ONE), path)

    def reach(self, node: Node) -> Reach | None:
        reach = None if node.outputs[0].type.dtype == "bool" else self.costs(node).reach
        return reach if reach is not None and reach.axis in self.symbols.positions else None

    def sees_keys(self, node: Node) -> bool:
        return any(name in self.symbols.keys for value in (*node.inputs, *node.outputs) for name in value.type.names)


def _usage(cost: Cost, sizes: Sizes, units: int) -> Usage:
    flops, products, moved = (item.at(sizes) / units for item in (cost.flops, cost.products, cost.bytes))
    return Usage(flops, products, moved)


def _decoding(decoder: Decoder, length: int | None) -> Decoding:
    sizes = run_sizes(decoder.prepare, length)
    once = _usage(total(cost_of(node) for node in decoder.prepare.nodes), sizes, 1)
    return Decoding(once, sum(size_in_bytes(value.type).at(sizes) for value in decoder.prepared))
