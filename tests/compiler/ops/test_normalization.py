"""Normalizations: the axes, gain and bias that a step names, and axes that matching by name has put last."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from one_op import Case, assert_same_everywhere
from steps import assert_steps_are_the_training_form, language_graph

from tests.runtime.kernel_session import kernel_library
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.build import build_engine
from xformc.compiler.ops.normalization import LayerNorm, RMSNorm
from xformc.compiler.spec import SpecError, load_spec

CASES = {
    "layer_norm without gain": Case(LayerNorm(1e-6), (("a", "d"),)),
    "layer_norm without bias": Case(LayerNorm(1e-6), (("a", "d"),), (("d",),)),
    "layer_norm of two axes": Case(LayerNorm(1e-6, 2), (("a", "d", "k"),), (("d", "k"), ("d", "k"))),
    "layer_norm of two axes without gain": Case(LayerNorm(1e-6, 2), (("a", "d", "k"),)),
    "rms_norm without gain": Case(RMSNorm(1e-6), (("a", "d"),)),
    "rms_norm of two axes": Case(RMSNorm(1e-6, 2), (("a", "d", "k"),), (("d", "k"),)),
}


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_op_is_the_same_in_torch_and_onnx(name: str, data: st.DataObject, tmp_path_factory) -> None:
    assert_same_everywhere(CASES[name], data, tmp_path_factory.mktemp("op"), {"d": 3, "k": 2})


CHOICES = {
    "{layer_norm: {gain: false, bias: false}}": set[str](),
    "{layer_norm: {gain: false}}": {"bias"},
    "{layer_norm: {bias: false}}": {"gain"},
    "{layer_norm: {zero_centered: true}}": {"gain", "bias"},
    "{rms_norm: {gain: false, epsilon: 1.0e-5}}": set[str](),
    "{rms_norm: {zero_centered: true}}": {"gain"},
}


@pytest.mark.parametrize("step", CHOICES)
def test_a_step_names_what_it_learns(tmp_path: Path, step: str) -> None:
    graph = language_graph(tmp_path, f"{{normal: {step}}}")
    assert {item.name.rpartition("/")[2] for item in graph.parameters if "normal" in item.name} == CHOICES[step]
    assert_steps_are_the_training_form(graph, tmp_path)


def test_a_zero_centered_gain_starts_as_one(tmp_path: Path) -> None:
    x = torch.randint(4, 20, (2, 3), generator=torch.Generator().manual_seed(0))
    steps = ("{normal: {rms_norm: {zero_centered: true}}}", "{normal: rms_norm}")
    found, expected = (TorchModule(language_graph(tmp_path, step))(x) for step in steps)
    torch.testing.assert_close(found, expected)


def test_named_axes_are_normalized_and_keep_their_order(tmp_path: Path) -> None:
    steps = "{parts: {split: {axis: d_model, into: [heads, d_k]}}, normal: {layer_norm: {over: heads, bias: false}},"
    steps += " whole: {merge: {axes: [heads, d_k], to: d_model}}}"
    graph = language_graph(tmp_path, steps, "heads: 2, d_k: 3")
    module = TorchModule(graph)
    value = module.all_values(torch.tensor([[4, 5]]))["body/normal"]
    assert value.shape == (1, 2, 2, 3)
    torch.testing.assert_close(value.mean(2), torch.zeros(1, 2, 3), atol=1e-6, rtol=0)
    assert_steps_are_the_training_form(graph, tmp_path)


TRAP = "{parts: {linear: [cells, heads]}, other: {linear: {from: x, to: [cells, d_k]}}, MIX, normal: NORM, "
TRAP_END = "out: {linear: {over: [heads, d_k], to: d_model}}}"
MIXES = {
    "contract": "mixed: {contract: {from: parts, by: other, over: cells}}",
    "multiply": "wide: {times: {from: parts, by: other}}, mixed: {sum: {over: cells}}",
    "add": "wide: {plus: {from: parts, by: other}}, less: tanh, mixed: {sum: {over: cells}}",
}


@pytest.mark.parametrize("kind", MIXES)
@pytest.mark.parametrize("norm", ["layer_norm", "rms_norm", "softmax"])
def test_an_axis_that_came_last_by_matching_must_be_named(tmp_path: Path, norm: str, kind: str) -> None:
    steps, sizes = (TRAP + TRAP_END).replace("MIX", MIXES[kind]), "cells: 2, heads: 2, d_k: 3"
    with pytest.raises(SpecError) as error:
        language_graph(tmp_path, steps.replace("NORM", norm), sizes)
    (problem,) = error.value.problems
    assert problem.message == (
        f"which axis? the last of float32[batch, text, heads=2, d_k=3] is d_k, which {kind} put behind heads"
    )
    assert problem.hint == f"write {norm}: {{over: heads}} or {{over: d_k}}"
    for axis in ("heads", "d_k"):
        language_graph(tmp_path, steps.replace("NORM", f"{{{norm}: {{over: {axis}}}}}"), sizes)


CLEAR = {
    "the sum of attention": "{keys: as_keys, scores: {contract: {from: x, by: keys, over: d_model}}, seen: mask, "
    "weights: softmax, mixed: {contract: {by: keys, over: keys}}, normal: layer_norm}",
    "a broadcast": "{vector: {weight: d_model}, sum: {plus: x}, normal: layer_norm}",
    "a mean": "{mean: {mean: {over: d_model}}, less: {minus: {from: x, by: mean}}, normal: rms_norm}",
}


@pytest.mark.parametrize("name", CLEAR)
def test_what_a_reader_expects_to_be_last_needs_no_name(tmp_path: Path, name: str) -> None:
    language_graph(tmp_path, CLEAR[name])


REFUSED = {
    "[layer_norm: {over: vocabulary}]": "its input float32[batch, text, d_model=6] has no axis vocabulary=20",
    "[layer_norm: {epsilon: 0}]": "epsilon must be greater than 0 and less than 1, found 0",
    "{keys: as_keys, scores: {contract: {from: x, by: keys, over: d_model}}, out: {rms_norm: {gain: false}}}": (
        "rms_norm: the size of text_keys is known only at run time"
    ),
}


@pytest.mark.parametrize("steps", REFUSED)
def test_wrong_norms_are_refused(tmp_path: Path, steps: str) -> None:
    with pytest.raises(SpecError) as error:
        language_graph(tmp_path, steps)
    assert error.value.problems[0].message == REFUSED[steps]


NATIVE = """\
extends: gpt
sizes: {layers: 1, d_model: 16, d_ff: 32, heads: 2, vocabulary: 24, max_positions: 16, dropout: 0.0}
choices: {norm: pre_rms}
defaults: {rms_norm: {zero_centered: true, epsilon: 1.0e-5}, linear: {bias: false}, gelu: {approximate: tanh}}
train: {max_length: 16}
decode: {sample: {max_new_tokens: 4}}
"""


def test_a_native_engine_has_the_norms_of_its_spec(tmp_path: Path) -> None:
    kernel_library()
    (tmp_path / "model.yaml").write_text(NATIVE)
    spec = load_spec(tmp_path / "model.yaml")
    random = np.random.default_rng(0)
    arrays = {
        item.name: random.normal(0, 0.3, item.type.sizes()).astype(np.float32) for item in spec.graph().parameters
    }
    assert build_engine(spec, arrays, None, "native", tmp_path / "engine").passed
