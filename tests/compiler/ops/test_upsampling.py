"""Transposed convolutions and repeated positions: the formula, in PyTorch and ONNX Runtime, beside padding too."""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from one_op import Case, assert_same_everywhere, one_op
from steps import assert_padding_does_not_matter, language_graph, tagging_graph

from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.graph.rules import RuleError
from xformc.compiler.ops.positions import longest
from xformc.compiler.ops.transposed_convolution import TransposedConvolution
from xformc.compiler.ops.upsampling import Fit, Stretch
from xformc.compiler.passes.inference import inference
from xformc.compiler.passes.step import derive_step
from xformc.compiler.spec import SpecError

TWICE = TransposedConvolution(("t",), ("z",), (2,), (1,))
PLANE = TransposedConvolution(("t", "v"), ("z", "w"), (1, 2), (1, 0))
CASES = {
    "twice as many": Case(TWICE, (("a", "t", "d"),), (("o", "d", "k"), ("o",))),
    "with heads between": Case(TWICE, (("a", "t", "b", "d"),), (("o", "d", "k"),)),
    "of vectors alone": Case(TWICE, (("t", "d"),), (("o", "d", "k"), ("o",))),
    "of a plane": Case(PLANE, (("a", "t", "v", "d"),), (("o", "d", "k", "k2"), ("o",))),
    "stretched": Case(Stretch("t", "z", 3), (("a", "t", "d"),)),
    "stretched mask": Case(Stretch("t", "z", 2), (("a", "t"),), dtypes=("bool",)),
    "fitted": Case(Fit("t", "u"), (("a", "t", "d"), ("a", "u"))),
}
WIDTH = {"k": 3, "k2": 2, "d": 4, "o": 5, "v": 3}


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_op_is_the_same_in_torch_and_onnx(name: str, data: st.DataObject, tmp_path_factory) -> None:
    assert_same_everywhere(CASES[name], data, tmp_path_factory.mktemp("op"), WIDTH)


def test_transposed_convolution_is_the_formula() -> None:
    module = TorchModule(one_op(Case(TWICE, (("t", "d"),), (("o", "d", "k"), ("o",))), {"t": 1, **WIDTH}))
    weight, bias = module.state_dict().values()
    x = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))
    expected = bias.repeat(8, 1)
    for position in range(4):
        for index in range(3):
            if 0 <= (place := 2 * position + index - 1) < 8:
                expected[place] += weight[:, :, index] @ x[position]
    torch.testing.assert_close(module(x), expected)


def up(width: int, stride: int) -> str:
    return f"{{transposed_convolution: {{width: {width}, stride: {stride}}}}}"


def down(stride: int) -> str:
    return f"{{convolution: {{width: 3, stride: {stride}}}}}"


MORE = {
    "more positions": f"{{more: {up(4, 2)}, mean: mean}}",
    "and more": f"{{more: {up(3, 3)}, again: {up(3, 2)}, mean: mean}}",
    "attention to more": f"{{more: {up(2, 2)}, keys: as_keys, "
    "scores: {contract: {from: x, by: keys, over: d_model}}, seen: mask, weights: {softmax: keys}, "
    "result: {contract: {by: keys, over: keys}}, mean: {mean: {over: text}}}",
    "stretched": "{more: {stretch: 3}, mixed: {convolution: {width: 3}}, mean: mean}",
}
RESTORED = {
    "as before": f"{{short: {down(2)}, long: {up(4, 2)}, sum: {{plus: x}}}}",
    "in two steps": f"{{half: {down(2)}, quarter: {down(2)}, again: {up(3, 2)}, both: {{plus: half}}, "
    f"long: {up(4, 2)}, sum: {{plus: x}}}}",
    "by half": f"{{quarter: {down(4)}, half: {up(3, 2)}, long: {{stretch: 2}}, sum: {{plus: x}}}}",
}


@pytest.mark.parametrize("name", MORE)
def test_padding_does_not_matter(tmp_path: Path, name: str) -> None:
    assert_padding_does_not_matter(tagging_graph(tmp_path, MORE[name], task="classification"), tmp_path)


@pytest.mark.parametrize("name", RESTORED)
def test_positions_left_out_are_restored(tmp_path: Path, name: str) -> None:
    assert_padding_does_not_matter(tagging_graph(tmp_path, RESTORED[name]), tmp_path)


@pytest.mark.parametrize("step", [up(2, 2), "{stretch: 2}", "{stretch: {by: 2, to_positions: more}}"])
def test_more_positions_are_not_decoded(tmp_path: Path, step: str) -> None:
    graph = inference(language_graph(tmp_path, f"{{more: {step}, mean: mean, sum: {{plus: x}}}}"))
    with pytest.raises(RuleError, match="makes other positions than text, one for each token") as error:
        derive_step(graph, "text")
    assert error.value.place is not None


def test_the_largest_length_follows_from_learned_positions(tmp_path: Path) -> None:
    steps = "{more: {stretch: 3}, placed: {add: {learned_positions: limit}}, mean: mean}"
    graph = tagging_graph(tmp_path, steps, "limit: 800", task="classification")
    assert longest(graph, "text") == 266


MISTAKES = {
    up(2, 3): "the width of a transposed convolution must be from the stride to 65,536, found 2",
    "{transposed_convolution: {width: 3, stride: 1.5}}": "the stride must be a positive whole number, found 1.5",
    "{transposed_convolution: {width: 3, stride: 2, over: d_model}}": "needs a last axis of channels besides d_model, "
    "found start: float32[batch, text, d_model=6]",
    "{transposed_convolution: {width: [3, 3], stride: 2}}": "'width' has 2 numbers, but the windows move along 1 axes",
    "{stretch: 0}": "'by' must be a positive whole number, found 0",
    "{stretch: {by: 2, to_positions: text}}": "there is already an axis text",
}


@pytest.mark.parametrize("step", MISTAKES)
def test_mistakes_are_refused_with_their_place(tmp_path: Path, step: str) -> None:
    with pytest.raises(SpecError) as error:
        tagging_graph(tmp_path, f"{{more: {step}, mean: mean}}", task="classification")
    (problem,) = error.value.problems
    assert (problem.message, problem.span.line) == (MISTAKES[step], 6)
