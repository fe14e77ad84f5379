"""Common subexpressions are computed once, with the same result."""

from pathlib import Path

import pytest
import torch
from steps import language_graph

from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.graph import Graph, Op
from xformc.compiler.graph.graph_builder import GraphBuilder
from xformc.compiler.graph.text import format
from xformc.compiler.graph.verify import verify
from xformc.compiler.ops.elementwise import Add, Dropout, Scale
from xformc.compiler.ops.functions import Unary
from xformc.compiler.ops.positions import Positions
from xformc.compiler.passes.share import share

SHARED = """\
graph twice
input x: float32[batch, text, d=2]
first: float32[batch, text, d:2] = unary{"function": "relu"}(x)
third: float32[batch, text, d:2] = scale{"factor": 2.0}(first)
index: int64[text] = positions{"axis": "text", "limit": null}(x)
sum: float32[batch, text, d:2] = add(third, third)
output sum, index, index
"""


def twice(op: Op) -> Graph:
    builder = GraphBuilder("twice")
    x = builder.input("x", Type("float32", (Axis("batch"), Axis("text"), Axis("d", 2))))
    first, second = (builder.emit(op, [x], name) for name in ("first", "second"))
    third, fourth = (builder.emit(Scale(2.0), [value], name) for value, name in ((first, "third"), (second, "fourth")))
    places = [builder.emit(Positions("text"), [value], "index") for value in (third, x)]
    return builder.finish([builder.emit(Add(), [third, fourth], "sum"), *places])


def test_nodes_alike_become_one() -> None:
    graph = verify(share(twice(Unary("relu"))))
    assert format(graph) == SHARED
    x = torch.randn(1, 3, 2, generator=torch.Generator().manual_seed(0))
    for found, expected in zip(TorchModule(graph)(x), TorchModule(twice(Unary("relu")))(x), strict=True):
        assert torch.equal(found, expected)


def test_dropout_is_drawn_again_each_time() -> None:
    graph = share(twice(Dropout(0.5)))
    assert [node.op.kind for node in graph.nodes].count("dropout") == 2


@pytest.mark.parametrize(
    ("step", "kind"), [("linear: {from: x, to: d_model}", "linear"), ("rnn: {from: x}", "recurrence")]
)
def test_layers_with_weights_of_their_own_stay(tmp_path: Path, step: str, kind: str) -> None:
    graph = language_graph(tmp_path, f"{{a: {{{step}}}, b: {{{step}}}, sum: {{plus: a}}}}")
    assert [node.op.kind for node in graph.nodes if node.outputs[0].name.startswith("body/")].count(kind) >= 2
