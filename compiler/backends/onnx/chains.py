"""Joins nodes of the kernels that follow one another into one node, a Chain, which ONNX Runtime calls once.

Each call of a node costs ONNX Runtime time, and a step of a small model is tens of nodes. The body of a loop of such
nodes alone becomes a Repeat, which takes many turns in a call.
"""

from collections.abc import Callable, Collection, Iterator, Sequence

import onnx
from onnx import helper

from xformc.compiler.backends.onnx.graphs import inner_graphs, needed_names
from xformc.format.operators import DOMAIN

CHAIN, REPEAT = "Chain", "Repeat"
_FLOATS = frozenset(
    {"Project", "Embed", "Attend", "AttendCached", "ExtendCached", "Normalize", "Rotate", "Add", "Multiply", "RowAt"}
)
"""The operators that a chain may have. All their results are float32, as those of a chain must be."""
_SEARCH = frozenset({"Last", "Candidates", "ProjectCandidates", "ScreenCandidates", "ShortlistCandidates", "Advance"})
"""Those that a Repeat may have as well. Its results are those of its last node, an Advance."""
_NONE = -1
"""The number of an input that is left out."""
LONGEST_CHAIN = 8
"""Outside of loops, whose turns are short: an encoder may read many texts, and what is too long can be stopped."""


def chained(
    nodes: Sequence[onnx.NodeProto], results: Collection[str], fresh: Callable[[str], str], longest: int | None = None
) -> list[onnx.NodeProto]:
    """The nodes of a scope, some of them in chains; `results` are its outputs, and `fresh` makes new names.

    longest: the most nodes of a chain. A call is stopped between two nodes of the model, so not within one.
    """
    runs = _runs(nodes, longest)
    needs = [set[str]().union(*map(needed_names, run)) for run in runs]
    joined = list[onnx.NodeProto]()
    for index, run in enumerate(runs):
        if len(run) == 1:
            joined += run
            continue
        elsewhere = set(results).union(*needs[:index], *needs[index + 1 :])
        outputs = [name for node in run for name in node.output if name in elsewhere]
        # The results of nodes that only write to caches may be needed by none.
        joined.append(_joined(CHAIN, run, outputs or run[-1].output[:1], fresh(CHAIN)))
    return joined


def repeated(
    nodes: Sequence[onnx.NodeProto], inputs: Sequence[str], results: Sequence[str], fresh: Callable[[str], str]
) -> list[onnx.NodeProto] | None:
    """The body of a loop without a number of turns as one node of many turns, or None if other nodes are in it.

    `inputs` are those of the body, or none if it is of no such loop: the turn's number and whether it is taken, which a
    Repeat does not know, and the values that a turn begins with. `results` are whether there is another turn, and the
    values that it begins with.
    """
    unknown, carried = set(inputs[:2]), inputs[2:]
    if not nodes or not carried or list(nodes[-1].output) != list(results):
        return None
    if any(unknown & needed_names(node) for node in nodes):
        return None
    if any(node.domain != DOMAIN or node.op_type not in _FLOATS | _SEARCH for node in nodes):
        return None
    node = _joined(REPEAT, nodes, results, fresh(REPEAT))
    places = {name: place for place, name in enumerate(node.input)}
    node.attribute.append(helper.make_attribute("carried", [places.get(name, _NONE) for name in carried]))
    return [node]


def _runs(nodes: Sequence[onnx.NodeProto], longest: int | None) -> list[list[onnx.NodeProto]]:
    """The nodes in an order in which they can run, those of a chain together, others alone.

    A node joins the chain before it unless it needs the result of another node that needs the chain.
    """
    runs, chain, after = list[list[onnx.NodeProto]](), list[onnx.NodeProto](), list[list[onnx.NodeProto]]()
    made, late = set[str](), set[str]()
    for node in nodes:
        needs, links = needed_names(node), node.domain == DOMAIN and node.op_type in _FLOATS
        if links and (needs & late or len(chain) == longest):
            runs += [chain, *after]
            chain, after, made, late = [], [], set[str](), set[str]()
        if links:
            chain.append(node)
            made.update(node.output)
        elif needs & (made | late):
            after.append([node])
            late.update(node.output)
        else:
            runs.append([node])
    return [run for run in (*runs, chain, *after) if run]


def _joined(kind: str, nodes: Sequence[onnx.NodeProto], outputs: Sequence[str], name: str) -> onnx.NodeProto:
    """The chain of these nodes with these outputs."""
    made = {name: None for node in nodes for name in node.output}
    given = {name: None for node in nodes for name in node.input if name and name not in made}
    numbers = {name: number for number, name in enumerate([*given, *made])} | {"": _NONE}
    chain = helper.make_node(
        kind,
        [*given],
        outputs,
        name=f"{nodes[-1].name}:{name}",
        domain=DOMAIN,
        given=len(given),
        kinds=" ".join(node.op_type for node in nodes),
        operand_counts=[len(node.input) for node in nodes],
        operands=[numbers[name] for node in nodes for name in node.input],
        output_counts=[len(node.output) for node in nodes],
        results=[numbers[name] for name in outputs],
    )
    for index, node in enumerate(nodes):
        for attribute in node.attribute:
            chain.attribute.append(_renamed(attribute, _prefix(index) + attribute.name))
    return chain


def _prefix(index: int) -> str:
    return f"node{index}_"


def _renamed(attribute: onnx.AttributeProto, name: str) -> onnx.AttributeProto:
    copy = onnx.AttributeProto()
    copy.CopyFrom(attribute)
    copy.name = name
    return copy


def unchain(graph: onnx.GraphProto) -> None:
    """Replace the chains in a graph, and in the graphs inside it, by their nodes."""
    nodes = [one for node in graph.node for one in (_links(node) if node.op_type in (CHAIN, REPEAT) else (node,))]
    del graph.node[:]
    graph.node.extend(nodes)
    for node in graph.node:
        for inner in inner_graphs(node):
            unchain(inner)


def _links(chain: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    """The nodes of a chain. What is no result of it gets a name of its own."""
    given = {attribute.name: helper.get_attribute_value(attribute) for attribute in chain.attribute}
    names = {_NONE: ""} | dict(enumerate(chain.input)) | dict(zip(given["results"], chain.output, strict=True))
    inputs, number = iter(given["operands"]), len(chain.input)
    counts = zip(given["kinds"].decode().split(), given["operand_counts"], given["output_counts"], strict=True)
    for index, (kind, taken, made) in enumerate(counts):
        outputs = [names.setdefault(one, f"{chain.name}/{one}") for one in range(number, number + made)]
        number += made
        operands = [names[next(inputs)] for _ in range(taken)]
        node = helper.make_node(kind, operands, outputs, f"{chain.name}/{index}", domain=DOMAIN)
        own = (one for one in chain.attribute if one.name.startswith(_prefix(index)))
        node.attribute.extend(_renamed(one, one.name.removeprefix(_prefix(index))) for one in own)
        yield node
