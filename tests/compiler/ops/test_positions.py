"""Positions: sinusoids, rotation, and biases by the distance of query and key."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from one_op import Case, assert_same_everywhere, one_op
from steps import assert_padding_does_not_matter, assert_steps_are_the_training_form, language_graph, tagging_graph

from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.graph_builder import GraphBuilder
from xformc.compiler.graph.rules import RuleError
from xformc.compiler.ops.buckets import Buckets, SignedBuckets
from xformc.compiler.ops.fused_attention import Attention
from xformc.compiler.ops.positions import Positions, Sinusoid
from xformc.compiler.ops.relative import Distance, Slopes
from xformc.compiler.spec import SpecError

INTEGERS = ("int64",)
CASES = {
    "sinusoid": Case(Sinusoid("e", 6), (("a", "t"),), dtypes=INTEGERS),
    "sinusoid of sines": Case(Sinusoid("e", 5, "sin"), (("t",),), dtypes=INTEGERS),
    "sinusoid of cosines": Case(Sinusoid("e", 4, "cos"), (("t",),), dtypes=INTEGERS),
    "sinusoid in halves": Case(
        Sinusoid("e", 6, base=50.0, offset=2, halves=True, endpoint=True), (("t",),), dtypes=INTEGERS
    ),
    "distance": Case(Distance("t", "s"), (("t",),), dtypes=INTEGERS),
    "buckets": Case(Buckets(8, 9, bidirectional=True), (("t", "u"),), dtypes=INTEGERS),
    "buckets before": Case(Buckets(6, 9, bidirectional=False), (("t", "u"),), dtypes=INTEGERS),
    "signed buckets": Case(SignedBuckets(8, 9), (("t", "u"),), dtypes=INTEGERS),
    "signed buckets of one distance": Case(SignedBuckets(4), (("t", "u"),), dtypes=INTEGERS),
    "slopes": Case(Slopes("h", 3), (("t", "u"),), dtypes=INTEGERS),
}


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_op_is_the_same_in_torch_and_onnx(name: str, data: st.DataObject, tmp_path_factory) -> None:
    assert_same_everywhere(CASES[name], data, tmp_path_factory.mktemp("op"))


@pytest.mark.parametrize("window", [None, 3])
def test_distance_of_a_step_is_the_last_row_of_all(window: int | None) -> None:
    def distance(index: list[int], *, newest: bool) -> list[int]:
        module = TorchModule(one_op(Case(Distance("t", "s", window, newest), (("t",),), dtypes=INTEGERS), {"t": 1}))
        return module(torch.tensor(index))[-1].tolist()

    for position in range(6):
        expected = distance(list(range(position + 1)), newest=False)
        assert distance([position], newest=True) == expected[-(window or 99) :]


@pytest.mark.parametrize("functions", ["sin", "cos"])
def test_one_function_fills_the_pairs_of_both(functions: str) -> None:
    def encoding(op: Sinusoid) -> np.ndarray:
        return TorchModule(one_op(Case(op, (("t",),), dtypes=INTEGERS), {"t": 1}))(torch.arange(9)).numpy()

    alone, both = encoding(Sinusoid("e", 6, functions)), encoding(Sinusoid("e", 6))
    which = ("sin", "cos").index(functions)
    np.testing.assert_array_equal(alone, both[:, which::2].repeat(2, 1))


HALVES = {
    "of the paper": (Sinusoid("e", 8, halves=True), -np.arange(4) / 4, 0),
    "of tensor2tensor": (Sinusoid("e", 8, halves=True, endpoint=True), -np.arange(4) / 3, 0),
    "of fairseq": (Sinusoid("e", 8, offset=2, halves=True, endpoint=True), -np.arange(4) / 3, 2),
    "of one pair": (Sinusoid("e", 2, halves=True, endpoint=True), np.zeros(1), 0),
}


@pytest.mark.parametrize("name", HALVES)
def test_sines_before_cosines_are_their_formulas(name: str) -> None:
    op, exponents, offset = HALVES[name]
    found = TorchModule(one_op(Case(op, (("t",),), dtypes=INTEGERS), {"t": 1}))(torch.arange(9)).numpy()
    angles = np.outer(np.arange(9) + offset, 10000.0**exponents)
    np.testing.assert_allclose(found, np.concatenate((np.sin(angles), np.cos(angles)), -1), atol=1e-6)


def test_slopes_are_the_papers() -> None:
    assert Slopes("heads", 8).slopes() == [2**-n for n in range(1, 9)]
    assert Slopes("heads", 12).slopes()[8:] == [2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5]
    assert Slopes("heads", 1).slopes() == [2**-8]


def test_buckets_are_exact_and_then_grow() -> None:
    op = Buckets(32, 128, bidirectional=True)
    table = dict(zip(range(-128, 129), op.table(), strict=True))
    assert [table[-n] for n in range(9)] == list(range(9))
    assert [table[n] for n in (1, 7, 8, 16, 32, 64, 127, 128)] == [17, 23, 24, 26, 28, 30, 31, 31]
    before = Buckets(32, 128, bidirectional=False).table()
    assert before[128:] == [0] * 129 and before[:2] == [31, 31] and before[127 - 15] == 16


def test_signed_buckets_are_those_of_the_published_code() -> None:
    made = pytest.importorskip("transformers.models.deberta_v2.modeling_deberta_v2").make_log_bucket_position
    for buckets, farthest in ((256, 512), (32, 128), (5, 64)):
        distance = torch.arange(farthest, -farthest - 1, -1)
        expected = (made(distance, buckets, farthest) + buckets).long().clamp(0, 2 * buckets - 1)
        assert SignedBuckets(2 * buckets, farthest).table() == expected.tolist()
    assert SignedBuckets(6).table() == [5, 5, 4, 3, 2, 1, 0]


ATTEND = """{{query: {{linear: {{from: x, to: [heads, d_k]}}}}, key: {{linear: {{from: x, to: [heads, d_k]}}}},
  value: {{linear: {{from: x, to: [heads, d_v]}}}}, {before}keys: {{as_keys: {{from: {key}{window}}}}},
  values: {{as_keys: {{from: value{window}}}}}, scores: {{contract: {{from: {query}, by: keys, over: d_k}}}},
  scaled: {{scale: 0.5}}, {bias}seen: {{mask: {{causal: {causal}}}}}, weights: {{softmax: keys}},
  mixed: {{contract: {{by: values, over: keys}}}}, output: {{linear: {{over: [heads, d_v], to: d_model}}}}}}"""
BIASES = {
    "alibi": ("near: {alibi: heads}, ", ""),
    "relative_bias": ("near: {relative_bias: {heads: heads, buckets: buckets, max_distance: 5}}, ", ", buckets: 6"),
    "one-sided": (
        "near: {relative_bias: {heads: heads, buckets: buckets, max_distance: 5, causal: true}}, ",
        ", buckets: 6",
    ),
}


def attend(bias: str = "", *, causal: bool, window: str = "", rope: bool = False) -> str:
    before = "turned: {rope: {from: query}}, turned_key: {rope: {from: key}}, " if rope else ""
    query, key = ("turned", "turned_key") if rope else ("query", "key")
    text = ATTEND.format(
        before=before,
        bias=bias,
        causal=str(causal).lower(),
        query=query,
        key=key,
        window=window and f", window: {window}",
    )
    return " ".join(text.split())


SIZES = "heads: 3, d_k: 4, d_v: 2"


@pytest.mark.parametrize("window", ["", "3"])
@pytest.mark.parametrize("name", BIASES)
def test_steps_with_a_bias_are_the_training_form(tmp_path: Path, name: str, window: str) -> None:
    bias, sizes = BIASES[name]
    graph = language_graph(tmp_path, attend(bias, causal=True, window=window), SIZES + sizes)
    assert_steps_are_the_training_form(graph, tmp_path)


@pytest.mark.parametrize("name", BIASES)
def test_bias_becomes_part_of_fused_attention(tmp_path: Path, name: str) -> None:
    bias, sizes = BIASES[name]
    graph = tagging_graph(tmp_path, attend(bias, causal=False), SIZES + sizes)
    ((attention, inputs),) = ((node.op, node.inputs) for node in graph.nodes if isinstance(node.op, Attention))
    assert attention.masks == 1 and len(inputs) == 5
    assert not {"softmax", "contract"} & {node.op.kind for node in graph.nodes}
    assert_padding_does_not_matter(graph, tmp_path)


def test_rotated_attention_is_its_step_and_is_fused(tmp_path: Path) -> None:
    graph = language_graph(tmp_path, attend(causal=True, rope=True), SIZES)
    assert [node.op.kind for node in graph.nodes].count("attention") == 1
    assert_steps_are_the_training_form(graph, tmp_path)


def test_sinusoid_of_one_function_is_its_step(tmp_path: Path) -> None:
    assert_steps_are_the_training_form(language_graph(tmp_path, "[add: {sinusoid: sin}]"), tmp_path)


def test_sinusoid_from_an_offset_is_its_step(tmp_path: Path) -> None:
    steps = "[add: {sinusoid: {offset: 2, halves: true, endpoint: true}}]"
    assert_steps_are_the_training_form(language_graph(tmp_path, steps), tmp_path)


def test_position_and_distance_are_computed_once_for_all_layers(tmp_path: Path) -> None:
    layer = attend(BIASES["alibi"][0], causal=True, rope=True)
    graph = language_graph(tmp_path, f"{{first: {{do: {layer}}}, second: {{do: {layer}}}}}", SIZES)
    kinds = [node.op.kind for node in graph.nodes]
    assert (kinds.count("attention"), kinds.count("positions"), kinds.count("slopes")) == (2, 1, 1)
    (positions,) = (node for node in graph.nodes if isinstance(node.op, Positions))
    assert positions.inputs == graph.inputs


REFUSED = {
    "[sinusoid: tan]": ("'functions' must be both, sin or cos, found 'tan'", None),
    "[sinusoid: {functions: sin, halves: true}]": ("halves has no effect on sin alone", "remove halves or functions"),
    "[sinusoid: {base: 1}]": ("the base must be greater than 1 and at most 1e+15, found 1", None),
    "[sinusoid: {offset: 0.5}]": ("the offset must be a whole number from 0 to 16777215, found 0.5", None),
    "{wide: {linear: {to: odd}}, turned: rope}": ("pairs are rotated, so odd=5 must be even", None),
    "[alibi: heads]": (
        "needs a value with one axis of keys, found start: float32[batch, text, d_model=6]",
        "as_keys turns positions into keys",
    ),
    "{k: as_keys, s: {contract: {from: x, by: k, over: d_model}}, b: {alibi: heads}}": (
        "the scores float32[batch, text, text_keys] have no axis heads=3",
        None,
    ),
    "{k: as_keys, b: {alibi: heads}}": (
        "float32[batch, text_keys, d_model=6] has no queries at text, the positions of its keys",
        None,
    ),
    "{q: {linear: {to: [heads, odd]}}, k: as_keys, s: {contract: {from: q, by: k, over: odd}}, "
    "b: {relative_bias: {heads: heads, buckets: odd}}}": (
        "distances need an even number of buckets, at least 4, found 5",
        None,
    ),
    "{q: {linear: {to: [heads, odd]}}, k: as_keys, s: {contract: {from: q, by: k, over: odd}}, "
    "b: {relative_bias: {heads: heads, buckets: odd, max_distance: 2, causal: true}}}": (
        "max_distance must be a whole number of positions, more than 2 and at most 65,536, found 2",
        None,
    ),
    "{k: as_keys, s: {contract: {from: x, by: k, over: d_model}}, b: {distance_buckets: odd}}": (
        "distances need an even number of buckets, at least 4, found 5",
        None,
    ),
    "{k: as_keys, s: {contract: {from: x, by: k, over: d_model}}, b: {distance_buckets: {buckets: d_model, "
    "max_distance: 2}}}": (
        "max_distance must be a whole number of positions, more than 2 and at most 65,536, found 2",
        None,
    ),
}


@pytest.mark.parametrize("steps", REFUSED)
def test_wrong_positions_are_refused(tmp_path: Path, steps: str) -> None:
    with pytest.raises(SpecError) as error:
        language_graph(tmp_path, steps, "heads: 3, odd: 5")
    (problem,) = error.value.problems
    assert (problem.message, problem.hint) == REFUSED[steps]


def test_odd_width_of_both_functions_is_refused() -> None:
    builder = GraphBuilder("odd")
    index = builder.input("index", Type("int64", (Axis("t"),)))
    with pytest.raises(RuleError, match="sines and cosines come in pairs, so e must be even, found 5"):
        builder.emit(Sinusoid("e", 5), [index], "y")
