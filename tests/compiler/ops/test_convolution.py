"""Convolution along positions: centred or causal, dilated, per channel."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from one_op import Case, assert_same_everywhere, one_op
from steps import assert_padding_does_not_matter, assert_steps_are_the_training_form, language_graph, tagging_graph

from xformc.compiler import compile_spec
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.graph.rules import RuleError
from xformc.compiler.ops.convolution import Convolution
from xformc.compiler.passes.step import derive_step
from xformc.compiler.spec import SpecError, load_spec


def along(axis: str, dilation: int, before: int, after: int, groups: int = 1) -> Convolution:
    """A convolution along one axis, which keeps it."""
    return Convolution((axis,), (axis,), (1,), (dilation,), (before,), (after,), groups)


STRIDED = Convolution(("t",), ("u",), (2,), (1,), (1,), (1,), 1)
PLANE = Convolution(("t", "v"), ("u", "w"), (2, 1), (1, 2), (1, 0), (1, 0), 1)
CASES = {
    "around each position": Case(along("t", 1, 1, 1), (("a", "t", "d"),), (("o", "d", "k"), ("o",))),
    "up to each position, dilated": Case(along("t", 2, 4, 0), (("a", "t", "d"),), (("o", "d", "k"),)),
    "of each channel": Case(along("t", 1, 2, 0, 4), (("a", "t", "d"),), (("d", "k"), ("d",))),
    "with heads between": Case(along("t", 1, 1, 1), (("a", "t", "b", "d"),), (("o", "d", "k"), ("o",))),
    "with heads before": Case(along("t", 1, 2, 0, 4), (("a", "b", "t", "d"),), (("d", "k"),)),
    "at every second position": Case(STRIDED, (("a", "t", "d"),), (("o", "d", "k"),)),
    "at every second position, with heads": Case(STRIDED, (("a", "t", "b", "d"),), (("o", "d", "k"),)),
    "in groups": Case(along("t", 1, 1, 1, 2), (("a", "t", "d"),), (("o", "h", "k"), ("o",))),
    "of a plane": Case(PLANE, (("a", "t", "v", "d"),), (("o", "d", "k", "k2"), ("o",))),
    "of a plane, each channel": Case(
        replace(PLANE, groups=4), (("t", "a", "b", "v", "d"),), (("d", "k", "k2"), ("d",))
    ),
    "of vectors alone": Case(along("t", 1, 1, 1), (("t", "d"),), (("o", "d", "k"),)),
}
WIDTH = {"k": 3, "k2": 2, "d": 4, "o": 6, "h": 2, "v": 7}


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_op_is_the_same_in_torch_and_onnx(name: str, data: st.DataObject, tmp_path_factory) -> None:
    assert_same_everywhere(CASES[name], data, tmp_path_factory.mktemp("op"), WIDTH)


def test_convolution_is_the_formula() -> None:
    case = Case(along("t", 2, 4, 0), (("t", "d"),), (("o", "d", "k"), ("o",)))
    module = TorchModule(one_op(case, {"t": 1, **WIDTH, "d": 2, "o": 3}))
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


STRIDED_STEPS = {
    "one": "{short: {convolution: {width: 3, stride: 2}}}",
    "two": "{one: {convolution: {width: 3, stride: 2}}, two: {convolution: {width: 3, stride: 2, padding: none}}}",
    "whole windows": "{short: {convolution: {width: 2, stride: 3, padding: none, to_positions: windows}}}",
    "causal": "{short: {convolution: {width: 2, stride: 2, causal: true, depthwise: true}}}",
    "of a plane": "{plane: {convolution: {width: [3, 5], stride: [2, 3], over: [positions, d_model], to: channels}}, "
    "flat: {linear: {over: [d_model_by_3, channels], to: d_model}}}",
}
READ = {
    "the mean": "mean: mean",
    "attention": "memory: {sinusoid: both}, sum: {plus: short}, keys: {as_keys: {from: sum}}, "
    "scores: {contract: {from: x, by: keys, over: d_model}}, seen: mask, weights: {softmax: keys}, "
    "result: {contract: {by: keys, over: keys}}, mean: {mean: {over: text}}",
}


@pytest.mark.parametrize("name", STRIDED_STEPS)
@pytest.mark.parametrize("read", READ)
def test_padding_does_not_matter_with_a_stride(tmp_path: Path, name: str, read: str) -> None:
    steps = f"{{short: {{do: {STRIDED_STEPS[name]}}}, {READ[read]}}}"
    sizes = "channels: 2, d_model_by_3: 2" if "channels" in steps else ""
    assert_padding_does_not_matter(tagging_graph(tmp_path, steps, sizes, task="classification"), tmp_path)


def test_stride_keeps_every_second_position(tmp_path: Path) -> None:
    graph = tagging_graph(tmp_path, "{short: {convolution: {width: 3, stride: 2}}, mean: mean}", task="classification")
    module = TorchModule(graph, seed=1)
    values = module.all_values(torch.tensor([[4, 5, 6, 7, 8, 9, 10], [5, 6, 7, 8, 0, 0, 0]]))
    weight, bias = values["body/short/weight"], values["body/short/bias"]
    expected = torch.nn.functional.conv1d(values["start"].mT, weight, bias, 2, 1).mT
    torch.testing.assert_close(values["body/short"][0], expected[0])
    assert values["text_by_2/mask"].tolist() == [[True] * 4, [True, True, False, False]]


def test_an_even_width_sees_one_more_position_before(tmp_path: Path) -> None:
    path = tmp_path / "model.yaml"
    path.write_text(EVEN)
    module = TorchModule(load_spec(path).graph())
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(1.0)
    found = module(torch.eye(4).unsqueeze(0), torch.ones(1, 4, dtype=torch.bool))[0]
    assert (found > 0).int().tolist() == [[1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1], [0, 1, 1, 1]]


EVEN = """
sizes: {d_model: 4}
inputs: {frames: {vectors: d_model}}
results: {sums: {numbers: summed}}
model: {summed: {from: frames, do: [convolution: {width: 4, depthwise: true, bias: false}]}}
"""


def test_strides_multiply(tmp_path: Path) -> None:
    steps = "{one: {convolution: {width: 3, stride: 2}}, two: {convolution: {width: 3, stride: 2}}, "
    steps += "both: {convolution: {from: x, width: 5, stride: 4}}, sum: {plus: two}, mean: mean}"
    graph = tagging_graph(tmp_path, steps, task="classification")
    names = {value.name: value.type.names[1] for node in graph.nodes for value in node.outputs if "/" in value.name}
    assert (names["body/one"], names["body/two"], names["body/sum"]) == ("text_by_2", "text_by_4", "text_by_4")


def test_whole_windows_lose_positions(tmp_path: Path) -> None:
    steps = "{short: {convolution: {width: 3, stride: 2, padding: none}}, mean: mean}"
    module = TorchModule(tagging_graph(tmp_path, steps, task="classification"), seed=1)
    values = module.all_values(torch.tensor([[4, 5, 6, 7, 8, 9], [5, 6, 7, 0, 0, 0], [5, 6, 0, 0, 0, 0]]))
    real = values["text_less_2_by_2/mask"]
    assert real.tolist() == [[True, True, False], [True, False, False], [True, False, False]]
    weight, bias = values["body/short/weight"], values["body/short/bias"]
    expected = torch.nn.functional.conv1d(values["start"][:1].mT, weight, bias, 2).mT
    torch.testing.assert_close(values["body/short"][:1, :2], expected)


def test_rows_and_columns_of_an_image(tmp_path: Path) -> None:
    path = tmp_path / "image.yaml"
    path.write_text("""\
task: classification
sizes: {labels: 3, height: 8, width: 6, channels: 2, filters: 4, rows: 3, width_by_2: width / 2}
inputs: {image: {values: [height, width, channels]}}
model:
  body:
    from: image
    do:
      - convolution:
          {over: [height, width], width: 3, stride: 2, to: filters, bias: false, to_positions: [half, width_by_2]}
      - do:
          less: {convolution: {over: half, width: 2, padding: none, to_positions: rows, bias: false}}
  logits: {from: body, do: [linear: {over: [rows, width_by_2, filters], to: labels}]}
train: {schedule: {peak: 0.001}}
""")
    module = TorchModule(compile_spec(load_spec(path)))
    image = torch.randn(2, 8, 6, 2, generator=torch.Generator().manual_seed(0))
    values = module.all_values(image)
    first = torch.nn.functional.conv2d(image.permute(0, 3, 1, 2), values["body/convolution/weight"], None, 2, 1)
    second = torch.nn.functional.conv2d(first, values["body/less/weight"].unsqueeze(-1))
    torch.testing.assert_close(values["body/less"], second.permute(0, 2, 3, 1))


def test_step_refuses_a_stride(tmp_path: Path) -> None:
    steps = "{short: {convolution: {width: 3, stride: 2, causal: true}}, mean: mean, sum: {plus: x}}"
    with pytest.raises(RuleError) as error:
        derive_step(language_graph(tmp_path, steps), "text")
    assert error.value.message == (
        "body/short cannot be decoded step by step: a convolution has a result at every 2. position only"
    )
    assert (error.value.hint, str(error.value.place)[-4:]) == ("remove its stride", "6:36")


def test_step_refuses_a_convolution_that_sees_what_comes_after(tmp_path: Path) -> None:
    with pytest.raises(RuleError) as error:
        derive_step(language_graph(tmp_path, "[convolution: 3]"), "text")
    assert error.value.message == "body cannot be decoded step by step: a convolution sees the positions after its own"
    assert error.value.hint == "write causal: true"
    assert str(error.value.place).endswith("model.yaml:6:28")


REFUSED = {
    "[convolution: {width: 0, causal: true}]": "the width of a window must be a positive whole number, found 0",
    "[convolution: 2.5]": "the width of a window must be a positive whole number, found 2.5",
    "[convolution: {width: 3, dilation: 0}]": "the dilation must be a positive whole number, found 0",
    "[convolution: {width: 3, dilation: 100000}]": "it would see 200,000 positions besides its own; the limit is "
    "65,536",
    "[convolution: {width: 3, dilation: [1, 0]}]": "'dilation' has 2 numbers, but the windows move along 1 axes",
    "[convolution: {width: 3, stride: 0.5}]": "the stride must be a positive whole number, found 0.5",
    "[convolution: {width: 3, padding: valid}]": "'padding' must be same or none, found 'valid'",
    "[convolution: {width: 3, padding: none, causal: true}]": "a causal convolution is padded before the first "
    "position",
    "[convolution: {width: 3, groups: 4}]": "the number of groups must divide d_model=6, found 4",
    "[convolution: {width: 3, groups: 2, depthwise: true}]": "a depthwise convolution has a group for each channel",
    "[convolution: {width: 3, over: [positions, d_model]}]": "needs a last axis of channels besides d_model, found "
    "start: float32[batch, text, d_model=6]",
    "[convolution: {width: 3, over: sizes}]": "start: float32[batch, text, d_model=6] has no axis 'sizes'",
    "[convolution: {width: 7, over: [positions, d_model], to: vocabulary, padding: none}]": "the axis d_model=6 is "
    "shorter than a window, which has 7 elements",
    "[convolution: {width: 3, stride: 2, to_positions: [a, b]}]": "'to_positions' names 2 axes, but the windows move "
    "along 1",
    "[convolution: {width: 3, stride: 2, to_positions: text}]": "there is already an axis text",
    "[convolution: {width: 3, stride: 2, to_positions: batch}]": "'batch' cannot be the name of an axis",
    "[convolution: {width: 3, stride: 2, to_positions: a b}]": "'a b' cannot be the name of an axis",
    "[convolution: {width: 3, stride: 2, to_positions: vocabulary}]": "the size vocabulary is known before run time, "
    "the axis only then",
    "{a: {convolution: {width: 3, stride: 2, to_positions: some}}, b: {convolution: {from: x, width: 3, stride: 3, "
    "to_positions: some}}}": "the axis some is already every 2. element of text",
    "[convolution: {width: 3, stride: 2, over: [positions, d_model], to: vocabulary, to_positions: [less, "
    "vocabulary]}]": "the axis vocabulary has 3 elements, but the size vocabulary is 20",
    "[convolution: {width: 3, to: vocabulary, depthwise: true}]": "a depthwise convolution keeps d_model=6, so 'to' "
    "cannot be vocabulary=20",
    "{total: {sum: d_model}, mixed: {convolution: 3}}": "needs a last axis of channels besides text, found "
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
