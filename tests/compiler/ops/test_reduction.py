"""Reductions over unpadded positions or another axis, and cumulative sums."""

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
from xformc.compiler.graph.rules import Hidden, RuleError, hidden
from xformc.compiler.ops.reduction import FUNCTIONS, CumulativeSum, Reduce
from xformc.compiler.passes.step import derive_step
from xformc.compiler.spec import SpecError, load_spec

MASKED_CASE = (("a", "t", "h"), ("a", "t"))
CASES = {
    **{f"{name} of all": Case(Reduce(name, "b"), (("a", "b", "h"),)) for name in FUNCTIONS},
    **{
        f"{name} of what the mask shows": Case(Reduce(name, "t"), MASKED_CASE, dtypes=("float32", "bool"))
        for name in FUNCTIONS
    },
    "sum, the mask without the leading axis": Case(
        Reduce("last", "t"), (("a", "b", "t"), ("t", "b")), dtypes=("float32", "bool")
    ),
    **{f"ordered {name} of all": Case(Reduce(name, "b", ordered=True), (("a", "b", "h"),)) for name in ("sum", "mean")},
    **{
        f"ordered {name} of what the mask shows": Case(
            Reduce(name, "t", ordered=True), (("a", "b", "t"), ("a", "t")), dtypes=("float32", "bool")
        )
        for name in ("sum", "mean")
    },
    "cumulative_sum": Case(CumulativeSum("t"), (("a", "t", "h"),)),
    "cumulative_sum from the end": Case(CumulativeSum("t", reverse=True), (("a", "t", "h"),)),
}


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_op_is_the_same_in_torch_and_onnx(name: str, data: st.DataObject, tmp_path_factory) -> None:
    assert_same_everywhere(CASES[name], data, tmp_path_factory.mktemp("op"))


EXPECTED = {"sum": [3.0, 0.0], "mean": [1.5, 0.0], "max": [2.0, -1e9], "first": [1.0, 5.0], "last": [2.0, 0.0]}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_reduction_is_of_what_the_mask_shows(name: str) -> None:
    case = Case(Reduce(name, "t"), (("a", "t"), ("a", "t")), dtypes=("float32", "bool"))
    x = torch.tensor([[1.0, 2.0, 9.0], [5.0, 6.0, 7.0]])
    mask = torch.tensor([[True, True, False], [False, False, False]])
    found = TorchModule(one_op(case, {"a": 2, "t": 3}))(x, mask)
    np.testing.assert_allclose(found, EXPECTED[name])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_padding_does_not_matter(tmp_path: Path, name: str) -> None:
    graph = tagging_graph(tmp_path, f"[{name}]", task="classification")
    assert str(graph.outputs[0].type) == "float32[batch, labels=3]"
    assert_padding_does_not_matter(graph, tmp_path)


def test_sums_from_the_end_begin_before_padding(tmp_path: Path) -> None:
    assert_padding_does_not_matter(tagging_graph(tmp_path, "[cumulative_sum: {reverse: true}]"), tmp_path)
    module = TorchModule(one_op(Case(CumulativeSum("t", reverse=True), (("a", "t"),)), {"a": 1, "t": 3}))
    np.testing.assert_array_equal(module(torch.tensor([[1.0, 2.0, 4.0]])), [[7.0, 6.0, 4.0]])
    with pytest.raises(RuleError, match="every position sees the ones after it"):
        derive_step(language_graph(tmp_path, "[cumulative_sum: {reverse: true}]"), "text")


def test_reduction_over_a_named_axis_needs_no_mask(tmp_path: Path) -> None:
    steps = "{heads: {linear: {to: [heads, d_k]}}, best: {max: heads}, back: {linear: {to: d_model}}}"
    graph = language_graph(tmp_path, steps, "heads: 2, d_k: 3")
    (reduce,) = (node for node in graph.nodes if isinstance(node.op, Reduce))
    assert reduce.op == Reduce("max", "heads") and len(reduce.inputs) == 1
    assert_steps_are_the_training_form(graph, tmp_path)


def test_running_sum_carries_the_sum(tmp_path: Path) -> None:
    decoder = assert_steps_are_the_training_form(language_graph(tmp_path, "[cumulative_sum]"), tmp_path)
    (state,) = decoder.states
    assert str(state.past.type) == "float32[batch, text=1, d_model=6]"


LINEAR_ATTENTION = """{
  key: {linear: {from: x, to: [heads, d_k]}}, key_elu: elu, key_feature: {shift: 1},
  query: {linear: {from: x, to: [heads, d_k]}}, query_elu: elu, query_feature: {shift: 1},
  value: {linear: {from: x, to: [heads, d_v]}},
  pairs: {times: {from: key_feature, by: value}}, memory: cumulative_sum,
  mixed: {contract: {from: query_feature, by: memory, over: d_k}},
  total: {cumulative_sum: {from: key_feature}},
  norm: {contract: {from: query_feature, by: total, over: d_k}},
  ratio: {divide: {from: mixed, by: norm}},
  output: {linear: {over: [heads, d_v], to: d_model}}}""".replace("\n", "")


def test_linear_attention_carries_sums_instead_of_a_cache(tmp_path: Path) -> None:
    decoder = assert_steps_are_the_training_form(
        language_graph(tmp_path, LINEAR_ATTENTION, "heads: 2, d_k: 3, d_v: 4"), tmp_path
    )
    assert [state.past.type.names for state in decoder.states] == [
        ("batch", "text", "heads", "d_k", "d_v"),
        ("batch", "text", "heads", "d_k"),
    ]


def test_step_refuses_a_mean_of_what_is_not_known_yet(tmp_path: Path) -> None:
    steps = "{mean: mean, sum: {plus: x}}"
    with pytest.raises(RuleError) as error:
        derive_step(language_graph(tmp_path, steps), "text")
    assert "body/mean cannot be decoded step by step" in error.value.message
    assert "its mean is over all positions of 'text'" in error.value.message
    assert error.value.hint == "cumulative_sum is the sum of the positions so far"
    assert str(error.value.place).endswith("model.yaml:6:34")


def test_axis_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as error:
        language_graph(tmp_path, "[mean: heads]")
    (problem,) = error.value.problems
    assert problem.message == "start: float32[batch, text, d_model=6] has no axis 'heads'"


def test_hidden_keys_count_for_nothing_in_a_sum_of_zeros() -> None:
    builder = GraphBuilder("hidden")
    x = builder.input("x", Type("float32", (Axis("q"), Axis("k"), Axis("d", 2))))
    cases: list[tuple[Reduce, Hidden, Hidden]] = [
        (Reduce("sum", "k"), "zero", "zero"),
        (Reduce("max", "k"), "masked", "masked"),
        (Reduce("mean", "k"), "zero", "open"),
        (Reduce("max", "k"), "zero", "open"),
        (Reduce("mean", "d"), "zero", "zero"),
        (Reduce("sum", "d"), "masked", "low"),
        (Reduce("sum", "d"), "low", "large"),
        (Reduce("max", "d"), "masked", "masked"),
    ]
    for op, held, expected in cases:
        builder.emit(op, [x], "y")
        assert hidden.of(op)(op, builder.nodes[-1], (held,), frozenset({"k"})) == expected


def test_mask_of_another_axis_is_refused() -> None:
    case = Case(Reduce("sum", "t"), (("a", "t"), ("a",)), dtypes=("float32", "bool"))
    with pytest.raises(RuleError, match=r"the mask bool\[a\] must be bool, with the axis t"):
        one_op(case, {"a": 1, "t": 1})


SHARED = """
task: classification
sizes: {features: 2, labels: 2}
inputs: {frames: {vectors: features}}
model:
  label:
    from: frames
    do:
      place: {position: {from: x}}
      found: STEP
      ones: {constant: {axes: labels, value: 1}}
      label: {times: {from: ones, by: found}}
train: {schedule: {kind: constant, peak: 0.1}}
"""


@pytest.mark.parametrize(
    ("step", "expected"), [("max", [3, 1]), ("mean", [1.5, 0.5]), ("last", [3, 1]), ("[softmax: positions, max]", None)]
)
def test_what_examples_share_has_the_padding_of_each(tmp_path: Path, step: str, expected: list[float] | None) -> None:
    (tmp_path / "model.yaml").write_text(SHARED.replace("STEP", step))
    module = TorchModule(load_spec(tmp_path / "model.yaml").graph())
    real = torch.tensor([[True] * 4, [True, True, False, False]])
    found = module(torch.zeros(2, 4, 2), real)
    if expected is None:  # the largest weight of softmax over 0, 1, .., n - 1
        expected = [float(torch.arange(n, dtype=torch.float32).softmax(0).max()) for n in (4, 2)]
    np.testing.assert_allclose(found, np.repeat(np.array(expected)[:, None], 2, 1), rtol=1e-6)
