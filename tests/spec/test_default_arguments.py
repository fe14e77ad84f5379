"""The section `defaults`: arguments of steps that do not write them."""

from pathlib import Path

import pytest
import yaml

from xformc.compiler.ops.linear import Linear
from xformc.compiler.ops.normalization import LayerNorm
from xformc.compiler.spec import load_spec

from .conftest import Build, Problems

SMALL = "extends: gpt\nsizes: {layers: 1, d_model: 16, heads: 2, vocabulary: 24}\n"


def test_defaults_reach_shipped_blocks_and_a_written_argument_wins(build: Build) -> None:
    spec = SMALL + "defaults: {linear: {bias: false}, layer_norm: {epsilon: 1 / d_model}}\n"
    spec += "blocks: {activation: {do: [{linear: {to: d_ff, bias: true}}]}}\n"
    graph = build(spec)
    biased = [node.inputs[1].name for node in graph.nodes if isinstance(node.op, Linear) and len(node.inputs) == 3]
    assert biased == ["decoder/0/feed_forward/active/weight"]
    assert {node.op.epsilon for node in graph.nodes if isinstance(node.op, LayerNorm)} == {1 / 16}


def test_the_last_file_wins_and_the_resolved_spec_keeps_what_is_used(build: Build) -> None:
    build(SMALL + "choices: {norm: pre_rms}\ndefaults: {rms_norm: {epsilon: 1.0e-3}}\n")
    spec = load_spec(Path("model.yaml"), ["defaults.rms_norm.epsilon=0.5"])
    resolved = spec.resolved_yaml()
    assert yaml.safe_load(resolved)["defaults"] == {"rms_norm": {"epsilon": 0.5}}
    expected = spec.graph()
    build(resolved)
    assert load_spec(Path("model.yaml")).graph() == expected


WRONG = {
    "{linear: {bais: false}}": ("1:11", "linear has no optional argument 'bais'", "did you mean 'bias'?"),
    "{linear: {to: d_ff}}": ("1:11", "linear has no optional argument 'to'", None),
    "{liner: {bias: false}}": ("1:2", "no step of the model is called 'liner'", "did you mean 'linear'?"),
    "{rms_norm: {epsilon: 0.1}}": ("1:13", "no rms_norm takes this default of 'epsilon'", None),
    "{layer_norm: {epsilon: 2}}": ("1:24", "epsilon must be greater than 0 and less than 1, found 2", None),
    "{layer_norm: 3}": ("1:14", "must be a mapping, found 3", None),
}


@pytest.mark.parametrize("written", WRONG)
def test_wrong_defaults_are_refused_at_their_place(problems: Problems, written: str) -> None:
    (problem,) = problems(f"{SMALL}defaults: {written}\n")
    place, message, hint = WRONG[written]
    column = int(place.partition(":")[2]) + len("defaults: ")
    assert (problem.message, problem.span.line, problem.span.column) == (message, 3, column)
    assert hint is None or problem.hint == hint
