"""Architectures that the language must express in YAML alone, with their parameter counts."""

import pytest

from xformc.compiler import compile_spec
from xformc.compiler.graph.graph import Graph
from xformc.compiler.ops.fused_attention import Attention
from xformc.compiler.ops.positions import Positions
from xformc.compiler.spec import load_spec
from xformc.specs import SHIPPED

from .conftest import Build

E = "extends: transformer_base\n"

BASE_PARAMETERS = """\
encoder/embed/embedding/weight[vocabulary=37000, d_model=512]
encoder/N/self_attention/query/weight[heads=8, d_k=64, d_model=512]
encoder/N/self_attention/query/bias[heads=8, d_k=64]
encoder/N/self_attention/key/weight[heads=8, d_k=64, d_model=512]
encoder/N/self_attention/key/bias[heads=8, d_k=64]
encoder/N/self_attention/value/weight[heads=8, d_v=64, d_model=512]
encoder/N/self_attention/value/bias[heads=8, d_v=64]
encoder/N/self_attention/output/weight[d_model=512, heads=8, d_v=64]
encoder/N/self_attention/output/bias[d_model=512]
encoder/N/self_attention/layer_norm/gain[d_model=512]
encoder/N/self_attention/layer_norm/bias[d_model=512]
encoder/N/feed_forward/inner/weight[d_ff=2048, d_model=512]
encoder/N/feed_forward/inner/bias[d_ff=2048]
encoder/N/feed_forward/output/weight[d_model=512, d_ff=2048]
encoder/N/feed_forward/output/bias[d_model=512]
encoder/N/feed_forward/layer_norm/gain[d_model=512]
encoder/N/feed_forward/layer_norm/bias[d_model=512]
decoder/N/causal_self_attention/query/weight[heads=8, d_k=64, d_model=512]
decoder/N/causal_self_attention/query/bias[heads=8, d_k=64]
decoder/N/causal_self_attention/key/weight[heads=8, d_k=64, d_model=512]
decoder/N/causal_self_attention/key/bias[heads=8, d_k=64]
decoder/N/causal_self_attention/value/weight[heads=8, d_v=64, d_model=512]
decoder/N/causal_self_attention/value/bias[heads=8, d_v=64]
decoder/N/causal_self_attention/output/weight[d_model=512, heads=8, d_v=64]
decoder/N/causal_self_attention/output/bias[d_model=512]
decoder/N/causal_self_attention/layer_norm/gain[d_model=512]
decoder/N/causal_self_attention/layer_norm/bias[d_model=512]
decoder/N/cross_attention/query/weight[heads=8, d_k=64, d_model=512]
decoder/N/cross_attention/query/bias[heads=8, d_k=64]
decoder/N/cross_attention/key/weight[heads=8, d_k=64, d_model=512]
decoder/N/cross_attention/key/bias[heads=8, d_k=64]
decoder/N/cross_attention/value/weight[heads=8, d_v=64, d_model=512]
decoder/N/cross_attention/value/bias[heads=8, d_v=64]
decoder/N/cross_attention/output/weight[d_model=512, heads=8, d_v=64]
decoder/N/cross_attention/output/bias[d_model=512]
decoder/N/cross_attention/layer_norm/gain[d_model=512]
decoder/N/cross_attention/layer_norm/bias[d_model=512]
decoder/N/feed_forward/inner/weight[d_ff=2048, d_model=512]
decoder/N/feed_forward/inner/bias[d_ff=2048]
decoder/N/feed_forward/output/weight[d_model=512, d_ff=2048]
decoder/N/feed_forward/output/bias[d_model=512]
decoder/N/feed_forward/layer_norm/gain[d_model=512]
decoder/N/feed_forward/layer_norm/bias[d_model=512]
"""


def shipped(name: str) -> Graph:
    return compile_spec(load_spec(SHIPPED / f"{name}.yaml"))


def paths(graph: Graph) -> set[str]:
    return {parameter.name for parameter in graph.parameters}


def test_base_has_these_parameters_in_this_order() -> None:
    found = []
    for parameter in shipped("transformer_base").parameters:
        layer = parameter.name.split("/")[1]
        axes = ", ".join(map(str, parameter.type.axes))
        name = parameter.name.replace(f"/{layer}/", "/N/", 1) if layer.isdecimal() else parameter.name
        if layer in ("0", "embed"):
            found.append(f"{name}[{axes}]")
    assert "\n".join(found) + "\n" == BASE_PARAMETERS


def test_dropout_of_zero_makes_no_node(build: Build) -> None:
    kinds = {node.op.kind for node in build(E + "sizes: {dropout: 0.0}\n").nodes}
    assert "dropout" not in kinds and "layer_norm" in kinds


def test_big_has_as_many_parameters_as_its_sizes_say() -> None:
    assert shipped("transformer_big").parameter_count() == 214_245_376


def test_pre_norm_normalises_before_each_sublayer_and_at_the_end() -> None:
    graph = shipped("transformer_pre_norm")
    assert paths(graph) - paths(shipped("transformer_base")) == {
        f"{stage}/final_norm/{name}" for stage in ("encoder", "decoder") for name in ("gain", "bias")
    }
    first = next(node for node in graph.nodes if node.op.kind == "layer_norm")
    assert first.outputs[0].name == "encoder/0/self_attention/layer_norm"
    assert first.inputs[0].name == "encoder/embed/dropout"


def test_learned_positions_have_one_table_a_side_and_a_limit(build: Build) -> None:
    graph = build(E + "choices: {positions: learned}\nsizes: {max_positions: 300}\n")
    tables = [parameter for parameter in graph.parameters if "add_positions" in parameter.name]
    assert [str(table.type) for table in tables] == ["float32[max_positions=300, d_model=512]"] * 2
    positions = [node.op for node in graph.nodes if isinstance(node.op, Positions)]
    assert positions == [Positions("source", 300), Positions("target", 300)]


def test_no_positions_have_no_node(build: Build) -> None:
    assert "positions" not in {node.op.kind for node in build(E + "choices: {positions: none}\n").nodes}


@pytest.mark.parametrize(
    ("tie", "tables"),
    [
        ("[[encoder/embed/embedding/weight, decoder/embed/embedding/weight, logits/weight]]", 1),
        ("[[decoder/embed/embedding/weight, logits/weight]]", 2),
        ("[]", 3),
    ],
    ids=["three-way", "decoder", "none"],
)
def test_tying_is_one_line(build: Build, tie: str, tables: int) -> None:
    graph = build(f"{E}tie: {tie}\n")
    assert graph.parameter_count() == 63_082_496 + (tables - 1) * 37000 * 512


def test_tied_parameter_is_named_and_drawn_as_the_first_of_its_group(build: Build) -> None:
    graph = build(E + "tie: [[logits/weight, encoder/embed/embedding/weight, decoder/embed/embedding/weight]]\n")
    table = next(parameter for parameter in graph.parameters if parameter.name == "logits/weight")
    assert table.initial.kind == "uniform" and "encoder/embed/embedding/weight" not in paths(graph)
    assert shipped("transformer_base").parameters[0].initial.kind == "normal"


def test_separate_vocabularies_of_different_size(build: Build) -> None:
    graph = build(
        E
        + """\
sizes: {source_vocabulary: 8000, target_vocabulary: 9000}
inputs: {source: {tokens: source_vocabulary}, target: {tokens: target_vocabulary}}
model: {logits: {do: [linear: {to: target_vocabulary, bias: false}]}}
tie: [[decoder/embed/embedding/weight, logits/weight]]
train: {tokenizer: {shared: false}}
"""
    )
    assert graph.parameter_count() == 63_082_496 + (8000 + 9000 - 37000) * 512
    assert str(graph.outputs[0].type) == "float32[batch, target, target_vocabulary=9000]"


def test_encoder_attention_has_the_padding_mask_and_causal_attention_needs_none() -> None:
    nodes = shipped("transformer_base").nodes
    found = [(node.op, node.inputs) for node in nodes if isinstance(node.op, Attention)]
    assert {(op.queries, op.keys, op.causal, len(inputs)) for op, inputs in found} == {
        ("source", "source_keys", False, 4),
        ("target", "target_keys", True, 3),
        ("target", "source_keys", False, 4),
    }
    assert {inputs[3].name for _, inputs in found if len(inputs) == 4} == {"source_keys/mask"}


def test_nodes_say_which_line_of_the_spec_asked_for_them(build: Build) -> None:
    graph = build((SHIPPED / "transformer_base.yaml").read_text())
    places = {node.outputs[0].name: node.place for node in graph.nodes}
    assert places["decoder/3/cross_attention/mixed/mixed"] == "model.yaml:41:24"
    assert places["logits"] == "model.yaml:47:9"


def test_an_argument_stands_for_several_axes_in_a_list(build: Build) -> None:
    graph = build(
        E
        + """\
model:
  logits: {do: [normal_linear: {rows: [heads, d_k]}, linear: {to: vocabulary, over: [heads, d_k], bias: false}]}
tie: []
blocks:
  normal_linear:
    doc: A linear map whose rows have length 1.
    takes: {rows: axes}
    do:
      weight: {weight: {axes: [rows, d_model]}}
      scaled: {layer_norm: {over: [rows, d_model]}}
      result: {contract: {from: x, by: scaled, over: d_model}}
"""
    )
    found = {item.name: str(item.type) for item in graph.parameters if item.name.startswith("logits/normal_linear")}
    assert found["logits/normal_linear/weight/weight"] == "float32[heads=8, d_k=64, d_model=512]"
    assert found["logits/normal_linear/scaled/gain"] == "float32[heads=8, d_k=64, d_model=512]"


def test_own_blocks_take_arguments_of_every_kind(build: Build) -> None:
    graph = build(
        E
        + """\
sizes: {rank: 16}
model:
  logits:
    do:
      - gated: {inner: {squeeze: {width: rank}}, gate: x, act: tanh}
      - gated: {inner: [relu], gate: decoder, twice: true}
      - linear: {to: vocabulary, bias: false}
tie: []
blocks:
  gated:
    doc: Every kind of argument, given, passed on, and by default.
    takes: {inner: block, gate: value, twice: false, act: {word: none}, rate: 0.25, over: {axis: d_model}}
    do:
      first: inner
      second: {choose_act: {act: act}}
      third: {residual: {from: gate, body: [dropout: rate]}}
      last: {linear: {from: second, to: over, bias: twice}}
      sum: {joined: {other: third}}
  choose_act:
    takes: {act: word}
    choose: act
    none: []
    tanh: [tanh]
  joined:
    takes: {other: value}
    do: [add: {from: other, do: [{repeat: 2, do: [scale: 0.5]}]}]
  squeeze:
    takes: {width: axis, back: {axis: d_model}}
    do: {down: {linear: {to: width}}, up: {linear: {to: back}}}
"""
    )
    own = {item.name: ", ".join(map(str, item.type.axes)) for item in graph.parameters}
    assert {name: axes for name, axes in own.items() if name.startswith("logits")} == {
        "logits/squeeze/first/down/weight": "rank=16, d_model=512",
        "logits/squeeze/first/down/bias": "rank=16",
        "logits/squeeze/first/up/weight": "d_model=512, rank=16",
        "logits/squeeze/first/up/bias": "d_model=512",
        "logits/squeeze/last/weight": "d_model=512, d_model=512",
        "logits/gated/last/weight": "d_model=512, d_model=512",
        "logits/gated/last/bias": "d_model=512",
        "logits/linear/weight": "vocabulary=37000, d_model=512",
    }
