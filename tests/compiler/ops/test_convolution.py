"""Convolution along positions: centred or causal, dilated, per channel."""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from one_op import Case, assert_same_everywhere, one_op
from steps import assert_padding_does_not_matter, assert_steps_are_the_training_form, language_graph, tagging_graph

from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.graph.rules import RuleError
from xformc.compiler.ops.convolution import Convolution
from xformc.compiler.passes.step import derive_step
from xformc.compiler.spec import SpecError

CASES = {
    "around each position": Case(Convolution("t", 1, 1, 1, False), (("a", "t", "d"),), (("o", "d", "k"), ("o",))),
    "up to each position, dilated": Case(Convolution("t", 2, 4, 0, False), (("a", "t", "d"),), (("o", "d", "k"),)),
    "of each channel": Case(Convolution("t", 1, 2, 0, True), (("a", "t", "d"),), (("d", "k"), ("d",))),
    "with heads between": Case(Convolution("t", 1, 1, 1, False), (("a", "t", "b", "d"),), (("o", "d", "k"), ("o",))),
    "with heads before": Case(Convolution("t", 1, 2, 0, True), (("a", "b", "t", "d"),), (("d", "k"),)),
    "of vectors alone": Case(Convolution("t", 1, 1, 1, False), (("t", "d"),), (("o", "d", "k"),)),
}
WIDTH = {"k": 3}


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_op_is_the_same_in_torch_and_onnx(name: str, data: st.DataObject, tmp_path_factory) -> None:
    assert_same_everywhere(CASES[name], data, tmp_path_factory.mktemp("op"), WIDTH)


def test_convolution_is_the_formula() -> None:
    case = Case(Convolution("t", 2, 4, 0, False), (("t", "d"),), (("o", "d", "k"), ("o",)))
    module = TorchModule(one_op(case, {"t": 1, "d": 2, "o": 3, **WIDTH}))
    weight, bias = module.state_dict().values()
    x = torch.randn(6, 2, generator=torch.Generator().manual_seed(0))
    position = 4
    expected = weight[:, :, 0] @ x[0] + weight[:, :, 1] @ x[2] + weight[:, :, 2] @ x[4] + bias
    torch.testing.assert_close(module(x)[position], expected)


STEPS = {
    "width 3": ("[convolution: {width: 3, causal: true}]", ""),
    "width 1": ("[convolution: 1]", ""),
    "width 2, dilated": ("[convolution: {width: 2, dilation: 3, causal: true}]", ""),
    "depthwise": ("[convolution: {width: 3, causal: true, depthwise: true, bias: false}]", ""),
    "to another axis and on": (
        "{up: {convolution: {to: wide, width: 3, causal: true}}, act: relu, "
        "down: {convolution: {width: 2, causal: true}}}",
        "wide: 10",
    ),
    "gated": (
        "{a: {residual: [convolution: {width: 2, causal: true}]}, "
        "gate: {convolution: {width: 2, causal: true}}, open: sigmoid, result: {times: a}}",
        "",
    ),
    "of heads": (
        "{all: {linear: {to: [heads, d_k]}}, mixed: {convolution: {width: 2, causal: true}}, "
        "last: {linear: {over: [heads, d_k], to: d_model}}}",
        "heads: 3, d_k: 2",
    ),
}


@pytest.mark.parametrize("name", STEPS)
def test_steps_are_the_training_form(tmp_path: Path, name: str) -> None:
    decoder = assert_steps_are_the_training_form(language_graph(tmp_path, *STEPS[name]), tmp_path)
    assert all(state.past.type.names[1].startswith("recent.") for state in decoder.states)


def test_state_is_what_the_convolution_sees(tmp_path: Path) -> None:
    decoder = derive_step(language_graph(tmp_path, "[convolution: {width: 3, dilation: 2, causal: true}]"), "text")
    (state,) = decoder.states
    assert str(state.past.type) == "float32[batch, recent.5=5, d_model=6]"


@pytest.mark.parametrize("arguments", ["width: 3", "width: 3, dilation: 2", "width: 5, depthwise: true"])
def test_padding_does_not_matter(tmp_path: Path, arguments: str) -> None:
    graph = tagging_graph(
        tmp_path, f"{{first: {{convolution: {{{arguments}}}}}, second: {{convolution: {{{arguments}}}}}}}"
    )
    assert_padding_does_not_matter(graph, tmp_path)


def test_step_refuses_a_convolution_that_sees_what_comes_after(tmp_path: Path) -> None:
    with pytest.raises(RuleError) as error:
        derive_step(language_graph(tmp_path, "[convolution: 3]"), "text")
    assert error.value.message == "body cannot be decoded step by step: a convolution sees the positions after its own"
    assert error.value.hint == "write causal: true"
    assert str(error.value.place).endswith("model.yaml:6:28")


REFUSED = {
    "[convolution: 4]": "the width of a centered convolution must be odd, found 4",
    "[convolution: {width: 0, causal: true}]": "the width of a convolution must be a positive whole number, found 0",
    "[convolution: 2.5]": "the width of a convolution must be a positive whole number, found 2.5",
    "[convolution: {width: 3, dilation: 0}]": "the dilation must be a positive whole number, found 0",
    "[convolution: {width: 3, dilation: 100000}]": "it would see 200,000 positions besides its own; the limit is "
    "65,536",
    "[convolution: {width: 3, to: vocabulary, depthwise: true}]": "a depthwise convolution keeps d_model=6, so 'to' "
    "cannot be vocabulary=20",
    "{total: {sum: d_model}, mixed: {convolution: 3}}": "needs a last axis of channels after the positions, found "
    "body/total: float32[batch, text]",
}


@pytest.mark.parametrize("steps", REFUSED)
def test_wrong_convolution_is_refused(tmp_path: Path, steps: str) -> None:
    with pytest.raises(SpecError) as error:
        language_graph(tmp_path, steps)
    (problem,) = error.value.problems
    assert problem.message == REFUSED[steps]


def test_separable_convolution_has_few_parameters(tmp_path: Path) -> None:
    steps = "{each: {convolution: {width: 5, causal: true, depthwise: true}}, mixed: {linear: {to: d_model}}}"
    counts = {p.name: p.count for p in language_graph(tmp_path, steps).parameters if p.name.startswith("body")}
    assert counts == {"body/each/weight": 30, "body/each/bias": 6, "body/mixed/weight": 36, "body/mixed/bias": 6}
