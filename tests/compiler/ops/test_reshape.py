"""Axes that are split, merged and joined."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from one_op import Case, assert_same_everywhere, one_op
from steps import assert_steps_are_the_training_form, language_graph

from xformc.compiler import compile_spec
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.graph.rules import RuleError
from xformc.compiler.ops.reshape import Join, Merge, Split
from xformc.compiler.spec import SpecError, load_spec

CASES = {
    "split": Case(Split("d", ("e", "f"), (2, 3)), (("a", "d", "b"),)),
    "split of the last": Case(Split("d", ("e", "f"), (3, 2)), (("a", "d"),)),
    "merge": Case(Merge(("h", "k"), "e"), (("a", "h", "k", "b"),)),
    "merge of three apart": Case(Merge(("k", "h", "v"), "e"), (("h", "a", "k", "b", "v"),)),
    "join": Case(Join("e"), (("a", "b", "d"), ("a", "b", "k"))),
    "join in another order": Case(Join("e"), (("a", "b", "d"), ("b", "a", "d"))),
}


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_op_is_the_same_in_torch_and_onnx(name: str, data: st.DataObject, tmp_path_factory) -> None:
    assert_same_everywhere(CASES[name], data, tmp_path_factory.mktemp("op"), {"d": 6})


def test_last_part_changes_fastest() -> None:
    module = TorchModule(one_op(Case(Split("d", ("e", "f"), (2, 3)), (("d",),)), {"d": 6}))
    assert module(torch.arange(6)).tolist() == [[0, 1, 2], [3, 4, 5]]


STEPS = {
    "heads split and merged": (
        "{split: {split: {axis: d_model, into: [heads, d_k]}}, act: relu, "
        "merge: {merge: {axes: [heads, d_k], to: d_model}}}",
        "heads: 2, d_k: 3",
    ),
    "values joined along heads": (
        "{a: {linear: [heads, d_k]}, b: {tanh: {from: a}}, join: {join: {by: a, to: wide, over: heads}}, "
        "end: {linear: {over: [d_k, wide], to: d_model}}}",
        "heads: 2, d_k: 3, wide: 4",
    ),
    "value joined": ("{a: relu, b: {tanh: {from: x}}, join: {join: {by: a, to: wide}}}", "wide: 12"),
}


@pytest.mark.parametrize("name", STEPS)
def test_steps_are_the_training_form(tmp_path: Path, name: str) -> None:
    assert_steps_are_the_training_form(language_graph(tmp_path, *STEPS[name]), tmp_path)


PATCHES = """\
task: classification
sizes:
  {d_model: 6, labels: 3, height: 4, width: 6, channels: 2, patch: 2, patch_width: 2, rows: 2, columns: 3, patches: 6}
inputs: {image: {values: [height, width, channels]}}
model:
  body:
    from: image
    do:
      - split: {axis: height, into: [rows, patch]}
      - wide: {}
      - merge: {axes: [rows, columns], to: patches, positions: true}
      - linear: {over: [patch, patch_width, channels], to: d_model}
      - add: sinusoid
      - mean
  logits: {from: body, do: [linear: {to: labels}]}
blocks: {wide: {do: [split: {axis: width, into: [columns, patch_width]}]}}
""".replace("wide: {}", "wide")


def test_patches_of_an_image_are_positions(tmp_path: Path) -> None:
    path = tmp_path / "patches.yaml"
    path.write_text(PATCHES)
    graph = compile_spec(load_spec(path))
    module = TorchModule(graph)
    image = np.random.default_rng(0).standard_normal((1, 4, 6, 2)).astype(np.float32)
    merged = next(node for node in graph.nodes if isinstance(node.op, Merge))
    patches = module.all_values(torch.from_numpy(image))[merged.outputs[0].name].detach().numpy()
    assert str(merged.outputs[0].type) == "float32[batch, patches=6, patch=2, patch_width=2, channels=2]"
    np.testing.assert_array_equal(patches[0, 4], image[0, 2:4, 2:4])


REFUSED = {
    "[split: {axis: text, into: [heads, d_k]}]": "the axis text cannot be split: its size is known only at run time",
    "[split: {axis: d_model, into: [heads, d_model]}]": "the axis d_model=6 cannot be split into heads=2, d_model=6",
    "[merge: {axes: [d_model, d_k], to: vocabulary}]": "start: float32[batch, text, d_model=6] has no axis 'd_k'",
    "[merge: {axes: [d_model], to: heads}]": "the axes d_model=6 cannot be merged into heads=2",
    "[join: {by: x, to: vocabulary}]": "the last axes of float32[batch, text, d_model=6] and "
    "float32[batch, text, d_model=6] have a total size of 12, not vocabulary=20",
    "{keys: as_keys, s: {contract: {from: x, by: keys, over: d_model}}, j: {join: {by: s, to: wide}}}": "the size of "
    "text_keys is known only at run time",
    "{a: mean, b: {join: {from: x, by: a, to: wide}}}": "join: needs two values that differ only in their last axes, "
    "found float32[batch, text, d_model=6] and float32[batch, d_model=6]",
}


@pytest.mark.parametrize("steps", REFUSED)
def test_axes_that_do_not_fit_are_refused(tmp_path: Path, steps: str) -> None:
    with pytest.raises(SpecError) as error:
        language_graph(tmp_path, steps, "heads: 2, d_k: 3, wide: 12")
    (problem,) = error.value.problems
    assert (problem.message, problem.span.line) == (REFUSED[steps], 6)


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (Case(Split("d", ("e", "f"), (2, 2)), (("d",),)), "d=6 cannot be split into e=2, f=2"),
        (Case(Merge(("a", "d"), "e"), (("a", "d"),)), "a, d=6: sizes must be known before run time"),
        (Case(Join("e"), (("d", "a"), ("d", "b"))), "must have known sizes"),
    ],
)
def test_wrong_inputs_are_refused(case: Case, message: str) -> None:
    with pytest.raises(RuleError, match=message):
        one_op(case, {"a": 6, "b": 6, "d": 6})
