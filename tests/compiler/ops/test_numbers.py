"""Positions and distances as numbers: their values, their steps, and biases made of them, which are fused."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from one_op import Case, assert_same_everywhere, one_op
from steps import assert_padding_does_not_matter, assert_steps_are_the_training_form, language_graph, tagging_graph

from tests.runtime.kernel_session import kernel_library
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.build import build_engine
from xformc.compiler.graph.graph import Graph
from xformc.compiler.ops.fused_attention import Attention
from xformc.compiler.ops.native import Attend, AttendCached
from xformc.compiler.ops.numbers import Number, ToIndex
from xformc.compiler.passes.lower import lower_decoder
from xformc.compiler.passes.tabulate import tabulate
from xformc.compiler.pipeline import compile_engine
from xformc.compiler.spec import SpecError, load_spec

CASES = {
    "number": Case(Number(), (("a", "t"),), dtypes=("int64",)),
    "negated number": Case(Number(negated=True), (("t",),), dtypes=("int64",)),
    "to_index": Case(ToIndex(3), (("a", "t"),)),
}


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_op_is_the_same_in_torch_and_onnx(name: str, data: st.DataObject, tmp_path_factory) -> None:
    assert_same_everywhere(CASES[name], data, tmp_path_factory.mktemp("op"))


ATTEND = """query: {{linear: [heads, d_k]}}, key: {{linear: {{from: x, to: [heads, d_k]}}}},
  keys: {{as_keys: {{from: key{window}}}}}, values: {{as_keys: {{from: key{window}}}}},
  scores: {{contract: {{from: query, by: keys, over: d_k}}}}, far: distance, {bias}
  seen: {{mask: {{causal: {causal}}}}}, weights: {{softmax: keys}},
  mixed: {{contract: {{by: values, over: keys}}}}, output: {{linear: {{over: [heads, d_k], to: d_model}}}}"""
BIASES = {
    "of distances": "near: {scale: -0.5}, biased: {plus: {from: scores, by: near}},",
    "of heads and distances": """slope: {weight: {from: x, axes: heads}}, near: {times: {from: far, by: slope}},
      biased: {plus: {from: scores, by: near}},""",
    "of both": """slope: {weight: {from: x, axes: heads}}, near: {times: {from: far, by: slope}},
      biased: {plus: {from: scores, by: near}}, far_too: {scale: {from: far, factor: -0.1}},
      more: {plus: {from: biased, by: far_too}},""",
    "of each query": """place: {position: x}, by_place: {times: {from: far, by: place}}, small: {scale: -0.01},
      biased: {plus: {from: scores, by: small}},""",
}
SIZES = "heads: 2, d_k: 4"


def attend(bias: str, *, causal: bool = True, window: str = "") -> str:
    """The steps of an attention with this bias, on one line."""
    given = {"bias": BIASES[bias], "causal": str(causal).lower(), "window": window and f", window: {window}"}
    return "{" + " ".join(ATTEND.format(**given).split()).replace("{position: x}", "{position: {from: x}}") + "}"


def values_of(graph: Graph, name: str) -> np.ndarray:
    """A value of the graph for five tokens."""
    return TorchModule(graph).all_values(torch.tensor([[4, 5, 6, 7, 8]]))[name].numpy()


def test_numbers_are_rounded_down_to_indices() -> None:
    module = TorchModule(one_op(Case(ToIndex(3), (("t",),)), {"t": 7}))
    numbers = torch.tensor([-0.5, 0.0, 0.99, 1.0, 2.5, 1e30, float("nan")])
    np.testing.assert_array_equal(module(numbers), [0, 0, 0, 1, 2, 2, 0])


CONTEXTUAL = """{keys: as_keys, scores: {contract: {from: x, by: keys, over: d_model}}, seen: {mask: {causal: true}},
  gates: sigmoid, place: {cumulative_sum: {over: keys, reverse: true}}, floor: floor, below: {to_index: places},
  next: {shift: {from: floor, by: 1}}, above: {to_index: places},
  part: {minus: {from: place, by: floor}}, vectors: {weight: {from: x, axes: [places, d_model]}},
  each: {contract: {from: x, by: vectors, over: d_model}}, low: {take: {by: below, over: places}},
  high: {take: {from: each, by: above, over: places}}, step: {minus: low}, moved: {times: part}, bias: {plus: low},
  scored: {plus: scores}, again: {mask: {causal: true}}, weights: {softmax: keys},
  output: {contract: {by: keys, over: keys}}}"""


def test_contextual_positions_are_decoded(tmp_path: Path) -> None:
    """Golovneva et al. (2024): a learned vector between those of the two nearest places, which gates count."""
    assert_steps_are_the_training_form(language_graph(tmp_path, " ".join(CONTEXTUAL.split()), "places: 4"), tmp_path)


def test_position_and_distance_are_numbers(tmp_path: Path) -> None:
    graph = language_graph(tmp_path, attend("of each query"), SIZES)
    count = np.arange(5, dtype=np.float32)
    np.testing.assert_array_equal(values_of(graph, "body/place"), count)
    np.testing.assert_array_equal(values_of(graph, "body/far"), count[:, None] - count)


def test_no_distance_is_a_zero_without_a_sign(tmp_path: Path) -> None:
    found = values_of(language_graph(tmp_path, attend("of distances"), SIZES), "body/far")
    assert not np.signbit(found.diagonal()).any()


@pytest.mark.parametrize("window", ["", "3"])
@pytest.mark.parametrize("name", BIASES)
def test_steps_with_a_bias_are_the_training_form(tmp_path: Path, name: str, window: str) -> None:
    graph = language_graph(tmp_path, attend(name, window=window), SIZES)
    assert [node.op.kind for node in graph.nodes if isinstance(node.op, Attention)] == ["attention"]
    assert_steps_are_the_training_form(graph, tmp_path)


def test_distances_without_attention_are_their_own_step(tmp_path: Path) -> None:
    """Weights that depend on the distance alone: one over the distance, for earlier keys."""
    steps = """{values: as_keys, scores: {contract: {from: x, by: values, over: d_model}}, far: distance,
      more: {shift: 1}, nothing: {scale: {from: scores, factor: 0}}, ones: {shift: 1}, near: {divide: {by: more}},
      seen: {mask: {causal: true}}, weights: relu, mixed: {contract: {by: values, over: keys}},
      place: {position: {from: x}}, part: {scale: 0.1}, output: {times: {by: mixed}}}"""
    assert_steps_are_the_training_form(language_graph(tmp_path, " ".join(steps.split())), tmp_path)


def test_padding_does_not_matter(tmp_path: Path) -> None:
    assert_padding_does_not_matter(tagging_graph(tmp_path, attend("of both", causal=False), SIZES), tmp_path)


def spec(folder: Path, bias: str) -> Path:
    """A language model with this bias."""
    path = folder / "model.yaml"
    path.write_text(
        f"""\
task: language_model
sizes: {{d_model: 8, {SIZES}, vocabulary: 20}}
inputs: {{text: {{tokens: vocabulary}}}}
model:
  start: {{from: text, do: [embedding: d_model]}}
  body: {{from: start, do: {attend(bias)}}}
  logits: {{from: body, do: [linear: vocabulary]}}
train: {{max_length: 32}}
""",
        encoding="utf-8",
    )
    return path


@pytest.mark.parametrize("name", BIASES)
def test_a_bias_is_added_by_the_kernels(tmp_path: Path, name: str) -> None:
    decoder = compile_engine(load_spec(spec(tmp_path, name)), "native").decoder
    lowered = lower_decoder(tabulate(decoder), lambda _: "float32")
    attentions = [node.op for node in lowered.step.nodes if isinstance(node.op, Attend | AttendCached)]
    assert [op.biased for op in attentions] == [True]
    assert "softmax" not in {node.op.kind for node in lowered.step.nodes}


@pytest.mark.processor
@pytest.mark.parametrize("name", ["of distances", "of both"])
def test_a_native_engine_passes_its_certificate(tmp_path: Path, name: str) -> None:
    kernel_library()
    assert build_engine(load_spec(spec(tmp_path, name)), None, None, "native", tmp_path / "engine").passed


@pytest.mark.processor
def test_a_native_engine_adds_a_bias_to_groups_of_heads(tmp_path: Path) -> None:
    kernel_library()
    (tmp_path / "model.yaml").write_text(
        """\
extends: llama
sizes: {layers: 1, d_model: 16, d_ff: 16, groups: 2, group_heads: 2, vocabulary: 20}
blocks:
  bias:
    takes: {causal: flag, relation: word}
    do: {far: distance, near: {scale: -0.5}, biased: {plus: {from: x, by: near}}}
train: {max_length: 32}
""",
        encoding="utf-8",
    )
    assert build_engine(load_spec(tmp_path / "model.yaml"), None, None, "native", tmp_path / "engine").passed


REFUSED = {
    "[distance]": "needs a value with one axis of keys, found start: float32[batch, text, d_model=6]",
    "{k: as_keys, d: distance}": "float32[batch, text_keys, d_model=6] has no queries at text, the positions of its "
    "keys",
    "{total: {sum: text}, p: position}": "needs a value with one axis of positions, found body/total: "
    "float32[batch, d_model=6]",
}


@pytest.mark.parametrize("steps", REFUSED)
def test_values_without_positions_are_refused(tmp_path: Path, steps: str) -> None:
    with pytest.raises(SpecError) as error:
        language_graph(tmp_path, steps)
    (problem,) = error.value.problems
    assert problem.message == REFUSED[steps]
