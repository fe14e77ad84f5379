"""The order of stages, those that are inherited, and the names of steps in lists."""

from collections.abc import Callable
from pathlib import Path

from xformc.compiler import compile_spec
from xformc.compiler.spec import load_spec

from .conftest import Build, Problems

INSERTED = """\
extends: seq2seq
sizes: {d_model: 16, vocabulary: 40}
model:
  other: {from: source, do: [embedding: d_model, mean]}
  decoder: {do: [embedding: d_model, {gru_from: {start: other}}]}
"""
TAGGER = """\
task: classification
sizes: {d_model: 8, vocabulary: 40, labels: 3}
inputs: {text: {tokens: vocabulary}}
model:
"""


def test_a_variant_inserts_a_stage_before_inherited_ones(build: Build) -> None:
    graph = build(INSERTED)
    assert {name.name.partition("/")[0] for name in graph.parameters} == {"other", "decoder", "logits"}


def test_the_resolved_spec_has_the_stages_in_order(tmp_path: Path) -> None:
    (tmp_path / "model.yaml").write_text(INSERTED)
    spec = load_spec(tmp_path / "model.yaml")
    (tmp_path / "again.yaml").write_text(spec.resolved_yaml())
    again = load_spec(tmp_path / "again.yaml")
    assert list(again.model.stages) == ["other", "decoder", "logits"]
    assert compile_spec(again).parameters == compile_spec(spec).parameters


def test_stages_may_be_declared_in_any_order(build: Build) -> None:
    stages = """\
  result: {from: both, do: [mean, linear: labels]}
  both: {from: words, do: [plus: more]}
  words: {from: text, do: [embedding: d_model]}
  more: {from: words, do: [tanh]}
"""
    names = [node.outputs[0].name.partition("/")[0] for node in build(TAGGER + stages).nodes]
    assert list(dict.fromkeys(names)) == ["words", "more", "both", "text", "result"]


def test_stages_that_use_each_other_are_refused(problems: Problems) -> None:
    found = problems(TAGGER + "  a: {from: b, do: [tanh]}\n  b: {from: a, do: [tanh]}\n")
    assert found[0].message == "stages use each other: a -> b -> a"


def test_an_own_stage_without_a_use_is_refused(problems: Problems) -> None:
    stages = "  unused: {from: text, do: [embedding: d_model]}\n  result: {from: text, do: [embedding: labels, mean]}\n"
    (problem,) = problems(TAGGER + stages)
    assert problem.span.place == "model.yaml:5:11"
    assert problem.message == "the result of the stage 'unused' is never used"


def test_a_chain_of_stages_in_reverse_has_a_limit(problems: Problems) -> None:
    stages = "".join(f"  s{index}: {{from: s{index + 1}, do: [tanh]}}\n" for index in range(100))
    found = problems(f"{TAGGER}{stages}  s100: {{from: text, do: [embedding: d_model]}}\n")
    assert found[0].message == "more than 64 stages use each the next"


def test_an_inherited_choice_may_be_unused(build: Build, problems: Problems) -> None:
    text = "extends: transformer_base\nmodel: {encoder: {do: [embed]}, decoder: {do: [embed, {plus: PLUS}]}}\n"
    text = text.replace("PLUS", "meaning").replace("{encoder: {do: [embed]}", "{encoder: {do: [embed, mean]}")
    build(text.replace("meaning", "encoder"))
    (problem,) = problems(text.replace("meaning", "encoder") + "choices: {activation: gelu}\n")
    assert problem.message == "the choice 'activation' is never used"


def test_a_list_may_name_its_steps(build: Build) -> None:
    steps = "[{name: words, embedding: d_model}, {linear: d_model, name: hidden}, tanh, {plus: hidden}, mean]"
    graph = build(f"{TAGGER}  states: {{from: text, do: {steps}}}\n  result: {{from: states, do: [linear: labels]}}\n")
    assert [p.name for p in graph.parameters][:2] == ["states/words/weight", "states/hidden/weight"]


def test_a_named_repetition_of_a_list_is_part_of_paths(build: Build) -> None:
    steps = "[embedding: d_model, {name: layers, repeat: 2, do: [linear: d_model]}, mean]"
    graph = build(f"{TAGGER}  states: {{from: text, do: {steps}}}\n  result: {{from: states, do: [linear: labels]}}\n")
    assert "states/layers/1/weight" in [parameter.name for parameter in graph.parameters]


def test_a_name_that_is_none_is_refused(problems: Problems) -> None:
    make: Callable[[str], str] = lambda name: f"{TAGGER}  result: {{from: text, do: [{{scale: 2, name: {name}}}]}}\n"  # noqa: E731
    assert problems(make("3"))[0].message == "a name must be a word, found 3"
    assert problems(make("a-b"))[0].message == "'a-b' is not a name"
    assert problems(make("x"))[0].message == "the name 'x' is already in use here"
