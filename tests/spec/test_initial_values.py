"""Initial values as arguments of steps and by path, and parameters that training does not change."""

from math import sqrt
from pathlib import Path

import pytest
import torch
import yaml

from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.graph import text
from xformc.compiler.graph.graph import Graph, Initial
from xformc.compiler.ops.elementwise import Multiply
from xformc.compiler.spec import load_spec

from .conftest import Build, Problems

SMALL = "extends: gpt\nsizes: {layers: 2, d_model: 16, d_ff: 32, heads: 2, vocabulary: 24, half: 8}\n"
STEP = """\
task: tagging
sizes: {d_model: 6, heads: 2, d_k: 3, vocabulary: 20, labels: 3}
inputs: {text: {tokens: vocabulary}}
model:
  start: {from: text, do: [embedding: {size: d_model, initial: {uniform: 0.1}}]}
  body: {from: start, do: {first: STEP}}
  result: {from: body, do: [{linear: {to: labels, over: OVER}}]}
train: {tokenizer: {kind: word}}
"""


def _step(step: str, over: str = "d_model") -> str:
    return STEP.replace("STEP", step).replace("OVER", over)


def _initial(graph: Graph, path: str) -> Initial:
    return next(item.initial for item in graph.parameters if item.name == path)


KINDS = {
    "0.5": Initial("constant", 0.5),
    "1 / d_model": Initial("constant", 1 / 6),
    "zero": Initial("constant", 0.0),
    "one": Initial("constant", 1.0),
    "{constant: -2}": Initial("constant", -2.0),
    "{normal: 0.02 / sqrt(d_model)}": Initial("normal", 0.02 / sqrt(6)),
    "{uniform: 0.1}": Initial("uniform", 0.1),
    "identity": Initial("identity", 1.0, 6),
    "{identity: 0.1}": Initial("identity", 0.1, 6),
    "orthogonal": Initial("orthogonal", 1.0, 6),
    "glorot_normal": Initial("normal", 1 / sqrt(6)),
    "{glorot_uniform: 2}": Initial("uniform", 2 * sqrt(6 / 12)),
    "kaiming_normal": Initial("normal", sqrt(2) / sqrt(6)),
    "{kaiming_uniform: 1}": Initial("uniform", sqrt(3) / sqrt(6)),
}


@pytest.mark.parametrize("written", KINDS)
def test_a_step_names_how_its_weight_starts(build: Build, written: str) -> None:
    graph = build(_step(f"{{linear: {{to: [heads, d_k], initial: {written}}}}}", "[heads, d_k]"))
    found = _initial(graph, "body/first/weight")
    assert (found.kind, found.rows) == (KINDS[written].kind, KINDS[written].rows)
    assert found.value == pytest.approx(KINDS[written].value)
    assert _initial(graph, "start/weight") == Initial("uniform", 0.1)
    assert text.parse(text.format(graph)) == graph


def test_a_weight_without_axes_is_a_number(build: Build, problems: Problems) -> None:
    steps = "{rate: {weight: {initial: 0.5}}, product: {times: x}}"
    graph = build(_step(f"{{do: {steps}}}", "d_model").replace("heads: 2, d_k: 3, ", ""))
    (rate,) = [item for item in graph.parameters if item.name.endswith("rate/weight")]
    assert rate.initial == Initial("constant", 0.5) and rate.count == 1
    assert len(rate.value.type.axes) == 1, "parameters without axes cannot be sharded"
    times = next(node for node in graph.nodes if isinstance(node.op, Multiply))
    assert min(len(value.type.axes) for value in times.inputs) == 0
    (found,) = problems(_step("weight", "d_model"))
    assert found.message == "a weight needs axes, or, as a number, its initial value"
    assert found.hint == "write weight: {initial: 1}"


def test_matrices_are_what_they_are_called(build: Build) -> None:
    for word in ("identity", "orthogonal"):
        step = f"{{linear: {{to: [heads, d_k], initial: {{{word}: 2}}}}}}"
        module = TorchModule(build(_step(step, "[heads, d_k]")))
        matrix = torch.tensor(module.arrays()["body/first/weight"]).reshape(6, 6) / 2
        torch.testing.assert_close(matrix @ matrix.T, torch.eye(6))
        assert (word == "identity") == bool((matrix == torch.eye(6)).all())
    wide = TorchModule(build(_step("{linear: {to: d_k, initial: orthogonal}}", "d_k").replace(" heads: 2,", "")))
    matrix = torch.tensor(wide.arrays()["body/first/weight"])
    torch.testing.assert_close(matrix @ matrix.T, torch.eye(3))


def test_the_last_pattern_wins_and_leaves_constants_alone(build: Build) -> None:
    section = (
        '{default: {normal: 0.02}, decoder/*/feed_forward: zero, "**/output/weight": {normal: 0.02 / sqrt(2 * half)}'
    )
    graph = build(SMALL + f"initial: {section}, decoder/0/feed_forward/inner/bias: 0.5}}\n")
    expected = {
        "decoder/embedding/weight": Initial("normal", 0.02),
        "decoder/0/causal_self_attention/query/weight": Initial("normal", 0.02),
        "decoder/0/causal_self_attention/query/bias": Initial("constant", 0.0),
        "decoder/0/causal_self_attention/output/weight": Initial("normal", 0.005),
        "decoder/0/feed_forward/layer_norm/gain": Initial("constant", 1.0),
        "decoder/0/feed_forward/inner/weight": Initial("constant", 0.0),
        "decoder/0/feed_forward/inner/bias": Initial("constant", 0.5),
        "decoder/1/feed_forward/output/weight": Initial("normal", 0.005),
    }
    assert {path: _initial(graph, path) for path in expected} == expected


def test_the_resolved_spec_keeps_the_section_and_its_sizes(build: Build) -> None:
    build(SMALL + "initial: {default: {normal: 0.1 / half}}\ntrain: {freeze: [decoder/embedding]}\n")
    spec = load_spec(Path("model.yaml"))
    resolved, expected = spec.resolved_yaml(), spec.graph()
    assert yaml.safe_load(resolved)["initial"] == {"default": {"normal": "0.1 / half"}}
    build(resolved)
    assert load_spec(Path("model.yaml")).graph() == expected


def test_frozen_parameters_have_no_gradient_and_the_others_do(build: Build) -> None:
    graph = build(SMALL.replace(", half: 8", "") + "train: {freeze: [decoder/0, '**/gain']}\n")
    frozen = {item.name for item in graph.parameters if not item.trained}
    assert frozen == {p.name for p in graph.parameters if p.name.startswith("decoder/0/") or p.name.endswith("/gain")}
    module = TorchModule(graph)
    module(torch.tensor([[4, 5, 6]])).sum().backward()
    learned = {name for name, p in module.named_parameters() if p.grad is not None}
    assert learned == {name for name, p in module.named_parameters() if p.requires_grad}
    assert graph.parameter_count() < sum(item.count for item in graph.parameters)


WRONG = {
    "initial: {decoder/*/feed: zero}": ("'decoder/*/feed' matches no parameter", 11),
    "initial: {decoder/0/feed_forward/layer_norm: one}": (
        "'decoder/0/feed_forward/layer_norm' matches no parameter",
        11,
    ),
    "initial: {decoder: {normal: 0.02, uniform: 1}}": ("must be initial values, found a mapping", 20),
    "initial: {decoder: {gaussian: 0.02}}": ("'gaussian' is not a kind of initial values", 21),
    "initial: {decoder: normal}": ("normal needs a number", 20),
    "initial: {decoder: nromal}": ("unknown initial values 'nromal'", 20),
    "initial: {logits: {normal: -1}}": ("decoder/embedding/weight: the deviation must not be negative, found -1", 19),
    "initial: {decoder: {normal: 1 / d_modl}}": ("unknown size 'd_modl'", 33),
    "initial: {decoder/0/feed_forward/inner: identity}": (
        "decoder/0/feed_forward/inner/weight: identity needs a matrix with as many inputs as outputs, "
        "found [d_ff=32, d_model=16]",
        41,
    ),
    "initial: {a b: 1}": ("'a b' is not a path", 11),
    "train: {freeze: [decoder/7]}": ("'decoder/7' matches no trained parameter", 18),
    "train: {freeze: [decoder, logits]}": ("freezes every parameter, so there is nothing to train", 17),
}


@pytest.mark.parametrize("line", WRONG)
def test_a_mistake_is_reported_at_its_place(problems: Problems, line: str) -> None:
    found = problems(SMALL.replace(", half: 8", "") + line + "\n")[0]
    assert (found.message, found.span.line, found.span.column) == (WRONG[line][0], 3, WRONG[line][1])


def test_a_misfit_is_reported_at_the_step(problems: Problems) -> None:
    (found,) = problems(_step("{linear: {to: labels, initial: identity}}", "labels"))
    assert found.message == "identity needs a matrix with as many inputs as outputs, found [labels=3, d_model=6]"
    assert found.span.line == 6
