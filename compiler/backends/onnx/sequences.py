"""Joins nodes that follow one another into one node, a Sequence, which ONNX Runtime calls once.

Each call of a node costs ONNX Runtime time: a step of a small model is tens of nodes, and a search has some hundred
small ones around its steps. Kernels and the operators of ONNX that `STANDARD` lists can be in a Sequence. The body of a
loop of such nodes alone becomes a While, which takes many turns in a call.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType

import onnx
from onnx import helper

from xformc.compiler.backends.onnx.graphs import (
    inner_graphs,
    is_fixed,
    lift,
    made_names,
    merge,
    needed_names,
    set_nodes,
    taken_names,
)
from xformc.compiler.backends.onnx.standard import STANDARD
from xformc.compiler.backends.onnx.types_of import KERNELS, types_of
from xformc.format.operators import DOMAIN

SEQUENCE, WHILE = "Sequence", "While"
_JOINED = frozenset({SEQUENCE, WHILE})
_NONE = -1
"""The number of an input that is left out."""
MOST_KERNELS = 8
"""Outside of loops, whose turns are short: an encoder may read many texts, and what is too long can be stopped."""
_STANDARD = "onnx."
"""What the names of ONNX's own operators begin with in a Sequence."""


def join(graph: onnx.GraphProto, weights: Mapping[str, int] = MappingProxyType({})) -> None:
    """Join the nodes of a model, and of the graphs inside it. The types of all values that need it are recorded.

    `weights` are the types of those that are added later.
    """
    merge(graph, STANDARD)
    constants = frozenset(taken_names(graph) - made_names(graph))  # what nothing makes are weights
    lift(graph, constants)
    _join(graph, weights, constants)


def _join(
    graph: onnx.GraphProto, outer: Mapping[str, int | None], fixed: frozenset[str], around: onnx.NodeProto | None = None
) -> None:
    """Join the nodes of a graph, which is inside the node `around`, unless it is the outermost.

    `outer` has the types of values outside it, and `fixed` are those that are the same in each call: ONNX Runtime
    computes nodes of them alone when it loads the model.
    """
    known = {**outer, **{tensor.name: tensor.data_type for tensor in graph.initializer}}
    known |= {value.name: value.type.tensor_type.elem_type for value in graph.input}
    for node in graph.node:
        if is_fixed(node, fixed):
            fixed |= set(node.output)
        for inner in inner_graphs(node):
            _join(inner, known, fixed, node)
        known |= dict(zip(node.output, types_of(node, known), strict=True))
    nodes, results = list(graph.node), [value.name for value in graph.output]
    can = [_can_join(node, known, fixed) for node in nodes]
    endless = around is not None and around.op_type == "Loop" and not around.input[0]
    collects = around is not None and len(graph.output) != len(graph.input) - 1
    loop = _loop(graph, nodes) if endless and not collects and all(can) and nodes else None
    joined = loop or _sequences(nodes, can, results, MOST_KERNELS if around is None else None)
    set_nodes(graph, joined)
    named = {value.name for value in (*graph.value_info, *graph.output)}
    typed = [name for node in joined if node.op_type in (SEQUENCE, WHILE) for name in node.output]
    infos = [helper.make_tensor_value_info(name, known[name] or 0, None) for name in typed if name not in named]
    graph.value_info.extend(infos)


def _loop(graph: onnx.GraphProto, nodes: Sequence[onnx.NodeProto]) -> list[onnx.NodeProto] | None:
    """The body of a loop without a number of turns as one node, unless it needs the number of its turn."""
    inputs, results = [value.name for value in graph.input], [value.name for value in graph.output]
    made = {name for node in nodes for name in node.output}
    if not made.issuperset(results) or any(needed_names(node) & set(inputs[:2]) for node in nodes):
        return None
    node = _joined(WHILE, nodes, results)
    places = {name: place for place, name in enumerate(node.input)}
    carried = [places.get(name, _NONE) for name in inputs[2:]]
    node.attribute.append(helper.make_attribute("carried", carried, attr_type=onnx.AttributeProto.INTS))
    return [node]


def _sequences(
    nodes: Sequence[onnx.NodeProto], can: Sequence[bool], results: Collection[str], most: int | None
) -> list[onnx.NodeProto]:
    """The nodes of a scope, those that follow one another as one; at most so many of these are kernels."""
    runs = _runs(nodes, can, most)
    needs = [set[str]().union(*map(needed_names, run)) for run in runs]
    joined = list[onnx.NodeProto]()
    inexact = {node.output[0] for node, joins in zip(nodes, can, strict=True) if joins and not _is_exact(node)}
    for index, run in enumerate(runs):
        if len(run) == 1 and run[0].output[0] not in inexact:
            joined += run
            continue
        elsewhere = set(results).union(*needs[:index], *needs[index + 1 :])
        outputs = [name for node in run for name in node.output if name in elsewhere]
        # The results of nodes that only write to caches may be needed by none.
        joined.append(_joined(SEQUENCE, run, outputs or run[-1].output[:1]))
    return joined


def _joined(kind: str, nodes: Sequence[onnx.NodeProto], outputs: Sequence[str]) -> onnx.NodeProto:
    """One node of these nodes with these outputs."""
    made = {name: None for node in nodes for name in node.output}
    given = {name: None for node in nodes for name in node.input if name and name not in made}
    numbers = {name: number for number, name in enumerate([*given, *made])} | {"": _NONE}
    node = helper.make_node(
        kind,
        [*given],
        outputs,
        name=f"{nodes[-1].name or nodes[-1].output[0]}:{kind}",
        domain=DOMAIN,
        given=len(given),
        kinds=" ".join(("" if node.domain == DOMAIN else _STANDARD) + node.op_type for node in nodes),
        output_counts=[len(node.output) for node in nodes],
        results=[numbers[name] for name in outputs],
    )
    operands = [numbers[name] for node in nodes for name in node.input]
    for name, values in (("operand_counts", [len(node.input) for node in nodes]), ("operands", operands)):
        node.attribute.append(helper.make_attribute(name, values, attr_type=onnx.AttributeProto.INTS))
    for index, one in enumerate(nodes):
        for attribute in one.attribute:
            node.attribute.append(_renamed(attribute, _prefix(index) + attribute.name))
    return node


def _can_join(node: onnx.NodeProto, known: Mapping[str, int | None], fixed: frozenset[str]) -> bool:
    """Whether the node can be in a Sequence."""
    if node.domain == DOMAIN:
        return node.op_type in KERNELS
    if node.op_type not in STANDARD or node.domain or fixed.issuperset(node.output):
        return False
    return STANDARD[node.op_type].fits(node, [known.get(name) for name in node.input if name])


def _is_exact(node: onnx.NodeProto) -> bool:
    """Whether ONNX Runtime would compute the same bits."""
    return bool(node.domain) or STANDARD[node.op_type].exact


def _runs(nodes: Sequence[onnx.NodeProto], can: Sequence[bool], most: int | None) -> list[list[onnx.NodeProto]]:
    """The nodes in an order in which they can run, those of a Sequence together, others alone.

    A node joins the run before it unless it needs the result of another node that needs the run.
    """
    runs, run, after = list[list[onnx.NodeProto]](), list[onnx.NodeProto](), list[list[onnx.NodeProto]]()
    made, late, kernels = set[str](), set[str](), 0
    for node, joins in zip(nodes, can, strict=True):
        needs, is_kernel = needed_names(node), node.domain == DOMAIN
        if joins and (needs & late or (is_kernel and kernels == most)):
            runs += [run, *after]
            run, after, made, late, kernels = [], [], set[str](), set[str](), 0
        if joins:
            run.append(node)
            made.update(node.output)
            kernels += is_kernel
        elif needs & (made | late):
            after.append([node])
            late.update(node.output)
        else:
            runs.append([node])
    return [one for one in (*runs, run, *after) if one]


def _prefix(index: int) -> str:
    return f"node{index}_"


def _renamed(attribute: onnx.AttributeProto, name: str) -> onnx.AttributeProto:
    copy = onnx.AttributeProto()
    copy.CopyFrom(attribute)
    copy.name = name
    return copy


def split(graph: onnx.GraphProto) -> None:
    """Replace the joined nodes in a graph, and in the graphs inside it, by what they were joined of."""
    nodes = [one for node in graph.node for one in (_parts(node) if node.op_type in _JOINED else (node,))]
    set_nodes(graph, nodes)
    for node in graph.node:
        for inner in inner_graphs(node):
            split(inner)


def _parts(joined: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    """The nodes of a Sequence or a While. What is no result of it gets a name of its own."""
    given = {attribute.name: helper.get_attribute_value(attribute) for attribute in joined.attribute}
    names = {_NONE: ""} | dict(enumerate(joined.input)) | dict(zip(given["results"], joined.output, strict=True))
    inputs, number = iter(given["operands"]), len(joined.input)
    counts = zip(given["kinds"].decode().split(), given["operand_counts"], given["output_counts"], strict=True)
    for index, (kind, taken, made) in enumerate(counts):
        outputs = [names.setdefault(one, f"{joined.name}/{one}") for one in range(number, number + made)]
        number += made
        operands = [names[next(inputs)] for _ in range(taken)]
        domain = "" if kind.startswith(_STANDARD) else DOMAIN
        name = f"{joined.name}/{index}"
        node = helper.make_node(kind.removeprefix(_STANDARD), operands, outputs, name, domain=domain)
        own = (one for one in joined.attribute if one.name.startswith(_prefix(index)))
        node.attribute.extend(_renamed(one, one.name.removeprefix(_prefix(index))) for one in own)
        yield node
