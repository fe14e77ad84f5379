"""The stages of an engine whose matrix products quantize their inputs (docs/precision.md).

If sums are taken in another order, a number between two quantized values may be rounded to either, and the difference
grows through a deep model. So whole models are not compared with the bounds of float32. Instead, each matrix product is
compared separately, and the engine's results may differ by as much as quantization itself changes them.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.certify.forward import kept_logits
from xformc.compiler.certify.probes import make_probes
from xformc.compiler.certify.subject import Subject
from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.graph import Graph, Initial, Node, Value
from xformc.compiler.graph.graph_builder import GraphBuilder
from xformc.compiler.ops.linear import Linear
from xformc.compiler.ops.recurrence import Recurrence
from xformc.compiler.quantize.formats import FORMATS
from xformc.compiler.quantize.number_format import ProductStage
from xformc.format.certificate import Measured, Stage

BOUND = 1e-4
"""The bound of a matrix product, relative to its largest number if that is above 1."""

NOISE = 4.0
"""The engine's results may differ by this multiple of the quantization error, plus BOUND."""

ROWS = 48
"""The maximum number of rows to test a matrix product on."""

_ANY = Initial("constant", 0.0)


def noise_bound(rounded: NDArray[Any], exact: NDArray[Any]) -> float:
    """The allowed difference between an engine and the definition, whose numbers are `rounded`."""
    return BOUND + NOISE * float(np.abs(rounded - exact).max(initial=0))


def product_stages(subject: Subject) -> Iterator[Stage]:
    """Compare each matrix product with quantized inputs separately, as its number format defines."""
    found = defaultdict[str, list[_Product]](list)
    for product in _products(subject):
        found[product.stage.name].append(product)
    order = dict.fromkeys(format.product_stage(subject.program.traits).name for format in FORMATS.values())
    for name in order:
        if products := found[name]:
            stage = products[0].stage
            bound = BOUND if stage.reach is None else 1.0
            yield Stage(name, f"{len(products)} {stage.what}", max(_error(item) for item in products), bound)


def agreement(subject: Subject, original: TorchModule) -> Measured:
    """How often the engine's best token or label is the same as with the weights before quantization.

    Of a model whose first result is neither, how far that result is from the one before.
    """
    probes, (first, *_) = make_probes(subject.program), subject.program.spec.results
    wanted = replace(subject, module=original).results(probes.feeds)[0]
    found = kept_logits(subject, probes) if subject.memories else subject.forward(probes.feeds)[0]
    if first.kind not in ("text", "labels"):
        worst = float(np.abs(found[probes.real] - wanted[probes.real]).max())
        return Measured("differs", f"at most, from {first.name} of random examples in float32", worst)
    same = found[probes.real].argmax(-1) == wanted[probes.real].argmax(-1)
    what = f"of {same.size} best tokens or labels of random examples agree with float32"
    return Measured("agrees", what, float(same.mean()))


@dataclass(frozen=True)
class _Product:
    """The matrix product with one weight: the result of the engine's operators [rows, new], and the expected results.

    `reach`: the error bound of each result, if its stage has one.
    """

    stage: ProductStage
    found: NDArray[np.float32]
    rounded: NDArray[np.float32]
    exact: NDArray[np.float32]
    reach: NDArray[np.float32] | None


def _error(item: _Product) -> float:
    """The error of a matrix product; if it has a reach, as a fraction of the reach plus float32 rounding."""
    wanted = item.exact if item.stage.exact else item.rounded
    if item.reach is None:
        worst = np.abs(item.found - wanted).max(initial=0) / np.abs(wanted).max(initial=1)
        return float(worst) if np.isfinite(worst) else float("inf")
    rounding = BOUND * max(1.0, float(np.abs(item.exact).max(initial=0)))
    return float((np.abs(item.found - wanted) / (item.reach + rounding)).max(initial=0))


def _products(subject: Subject) -> Iterator[_Product]:
    probes = make_probes(subject.program)
    values = subject.rounding.training_values(probes.feeds)
    random = np.random.default_rng(2)
    nodes = {node.inputs[1].name: node for node in _linear(subject.program.graph)}
    chosen = [node for name, node in nodes.items() if name in subject.approximate]
    rows = {node.outputs[0].name: _rows(node, values.get(node.inputs[0].name), random) for node in chosen}
    graph = _alone(subject.program.graph, chosen)
    results = subject.run(graph, {value.name: rows[value.name] for value in graph.inputs}) if chosen else []
    for node, found in zip(chosen, results, strict=True):
        x = torch.tensor(rows[node.outputs[0].name]).flatten(1)
        weight, *bias = (torch.tensor(values[value.name]) for value in _parameters(subject.program.graph, node))
        matrix = weight.reshape(-1, x.shape[1])
        offset = bias[0].flatten() if bias else None
        stage = FORMATS[subject.approximate[node.inputs[1].name]].product_stage(subject.program.traits)
        yield _Product(
            stage,
            found.reshape(len(x), -1),
            subject.rounding_map(node.inputs[1].name)(x, matrix, offset).numpy(),
            torch.nn.functional.linear(x, matrix, offset).numpy(),
            None if stage.reach is None else stage.reach(torch, x, matrix).numpy(),
        )


def _linear(graph: Graph) -> Iterator[Node]:
    """The linear maps of a graph and of its cells."""
    for node in graph.nodes:
        if isinstance(node.op, Linear):
            yield node
        elif isinstance(node.op, Recurrence):
            yield from _linear(node.op.body)


def _rows(node: Node, value: NDArray[Any] | None, random: np.random.Generator) -> NDArray[np.float32]:
    """The inputs of the linear map in the model, [rows, the axes of `over`]; random numbers inside a recurrence."""
    assert isinstance(node.op, Linear)
    x = node.inputs[0].type
    sizes = [x.axis(name).size or 1 for name in node.op.over]
    if value is None:
        return random.standard_normal((4, *sizes), np.float32)
    kept = [x.names.index(axis.name) for axis in x.without(node.op.over)]
    order = (*kept, *(x.names.index(name) for name in node.op.over))
    rows = np.transpose(value, order).reshape(-1, *sizes)
    return np.ascontiguousarray(rows[:: max(1, -(-len(rows) // ROWS))])


def _parameters(graph: Graph, node: Node) -> list[Value]:
    """The weight of a linear map, and its bias if it is also a parameter."""
    known = {parameter.name for parameter in graph.parameters}
    return [value for value in node.inputs[1:] if value.name in known]


def _alone(whole: Graph, nodes: list[Node]) -> Graph:
    """A graph of these linear maps, each with its own input of the same name."""
    builder, results = GraphBuilder("products"), list[Value]()
    for index, node in enumerate(nodes):
        assert isinstance(node.op, Linear)
        over = tuple(node.inputs[0].type.axis(name) for name in node.op.over)
        x = builder.input(node.outputs[0].name, Type("float32", (Axis(f"rows_{index}"), *over)))
        weights = [builder.parameter(value.name, value.type, _ANY) for value in _parameters(whole, node)]
        results.append(builder.emit(node.op, (x, *weights), f"product/{index}"))
    return builder.finish(results)
