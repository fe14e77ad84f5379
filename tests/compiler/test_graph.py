"""The graph: its text form reads back, and the verifier rejects illegal graphs."""

from dataclasses import replace
from pathlib import Path

import pytest

from xformc.compiler import compile_spec
from xformc.compiler.graph import text
from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.graph import Graph, Initial, Value
from xformc.compiler.graph.graph_builder import GraphBuilder
from xformc.compiler.graph.verify import GraphError, verify
from xformc.compiler.ops.elementwise import Scale
from xformc.compiler.ops.linear import Linear
from xformc.compiler.ops.normalization import LayerNorm
from xformc.compiler.passes.inference import inference
from xformc.compiler.passes.step import derive_step, with_beam
from xformc.compiler.spec import load_spec

GOLDEN = """\
graph small
input x: float32[batch, d=3]
parameter a/weight: float32[o=2, d=3] uniform(0.5)
parameter n/gain: float32[o=2] constant(1.0)
parameter n/bias: float32[o=2] constant(0.0)
a: float32[batch, o:2] = linear{"over": ["d"]}(x, a/weight) at small.yaml:3:5
n: float32[batch, o:2] = layer_norm{"epsilon": 1e-06, "axes": 1}(a, n/gain, n/bias)
output n
"""


def small() -> Graph:
    builder = GraphBuilder("small")
    o = Axis("o", 2)
    x = builder.input("x", Type("float32", (Axis("batch"), Axis("d", 3))))
    weight = builder.parameter("a/weight", Type("float32", (o, Axis("d", 3))), Initial("uniform", 0.5))
    gain = builder.parameter("n/gain", Type("float32", (o,)), Initial("constant", 1.0))
    bias = builder.parameter("n/bias", Type("float32", (o,)), Initial("constant", 0.0))
    a = builder.emit(Linear(("d",)), [x, weight], "a", "small.yaml:3:5")
    return builder.finish([builder.emit(LayerNorm(1e-6), [a, gain, bias], "n")])


def test_text_is_readable() -> None:
    assert text.format(small()) == GOLDEN


def test_text_reads_back() -> None:
    assert text.parse(GOLDEN) == small()


@pytest.mark.parametrize("name", ["transformer_base", "transformer_big", "transformer_pre_norm", "numbers", "multi30k"])
def test_text_of_every_spec_and_pass_reads_back(name: str) -> None:
    graph = compile_spec(load_spec(Path(f"specs/{name}.yaml")))
    decoder = derive_step(inference(graph))
    for each in (graph, inference(graph), decoder.prepare, decoder.step, with_beam(decoder).step):
        assert text.parse(text.format(verify(each))) == each


@pytest.mark.parametrize(
    "line", ["nonsense", "a = linear(x)", "input x: float64[batch]", "parameter p: float32[a=1] guess(1.0)"]
)
def test_text_that_is_no_graph_is_refused_with_its_line(line: str) -> None:
    with pytest.raises(text.TextError, match="line 2"):
        text.parse(f"graph g\n{line}\n")


def test_verify_passes_what_the_builder_makes() -> None:
    graph = small()
    assert verify(graph) is graph


def test_verify_refuses_use_before_making() -> None:
    graph = small()
    with pytest.raises(GraphError, match="a is used before it is made"):
        verify(replace(graph, nodes=graph.nodes[::-1]))


def test_verify_refuses_a_type_that_the_rule_does_not_give() -> None:
    graph = small()
    wrong = replace(graph.nodes[0], outputs=(Value("a", Type("float32", (Axis("o", 2),))),))
    with pytest.raises(GraphError, match="the rule infers"):
        verify(replace(graph, nodes=(wrong, *graph.nodes[1:])))


def test_verify_refuses_two_makers() -> None:
    graph = small()
    with pytest.raises(GraphError, match="a is made twice"):
        verify(replace(graph, nodes=(graph.nodes[0], graph.nodes[0], graph.nodes[1])))


def test_verify_refuses_an_unknown_output() -> None:
    with pytest.raises(GraphError, match="output: z is used before it is made"):
        verify(replace(small(), outputs=(Value("z", Type("float32")),)))


def test_parameter_of_one_path_is_shared() -> None:
    builder = GraphBuilder("tied")
    kind = Type("float32", (Axis("a", 2),))
    first = builder.parameter("p", kind, Initial("constant", 0.0))
    assert builder.parameter("p", kind, Initial("constant", 1.0)) is first
    with pytest.raises(ValueError, match="cannot also be"):
        builder.parameter("p", Type("float32", (Axis("a", 3),)), Initial("constant", 0.0))


def test_names_are_made_unique_in_a_time_that_grows_with_the_values_alone() -> None:
    class Counting(set[str]):
        lookups = 0

        def __contains__(self, item: object) -> bool:
            self.lookups += 1
            return super().__contains__(item)

    names = Counting({"x~3"})
    builder = GraphBuilder("many", names=names)
    x = builder.input("x", Type("float32", (Axis("batch"),)))
    made = [builder.emit(Scale(2.0), [x], "x").name for _ in range(100)]
    assert made == [f"x~{number}" for number in (2, *range(4, 103))]
    assert names.lookups < 4 * len(made)
