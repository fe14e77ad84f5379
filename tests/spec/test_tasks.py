"""Every task has its inputs, output and settings; mismatches are errors with a place."""

from pathlib import Path

import jsonschema
import pytest
import yaml
from task_specs import FRAMES, IMAGES, LANGUAGE_MODEL, SPECS, TAGGING, write_task

from xformc.compiler import compile_spec
from xformc.compiler.graph.axes import Axis
from xformc.compiler.spec import Input, json_schema, load_spec
from xformc.compiler.spec.model import Model
from xformc.compiler.spec.problems import Source, Span
from xformc.compiler.spec.tasks import SEARCHED
from xformc.compiler.spec.writer import Writer
from xformc.format.search_options import EDITS

from .conftest import Build, Problems

SPAN = Span(Source("model.yaml", ""), 1, 1, 2)
RESULTS = {
    "language_model": "float32[batch, text, vocabulary=80]",
    "tagging": "float32[batch, words, labels=5]",
    "frames": "float32[batch, frames, labels=3]",
    "images": "float32[batch, labels=4]",
    "graph": "float32[batch, nodes, labels=3]",
}


@pytest.mark.parametrize("name", SPECS)
def test_task_has_a_graph_and_a_result(tmp_path: Path, name: str) -> None:
    graph = compile_spec(write_task(tmp_path, name))
    assert str(graph.outputs[0].type) == RESULTS[name]


@pytest.mark.parametrize("name", SPECS)
def test_resolved_task_stands_alone_and_is_the_same(tmp_path: Path, name: str) -> None:
    spec = write_task(tmp_path, name)
    (tmp_path / "resolved.yaml").write_text(spec.resolved_yaml())
    again = load_spec(tmp_path / "resolved.yaml")
    assert compile_spec(again) == compile_spec(spec)
    assert (again.inputs, again.train, again.decode) == (spec.inputs, spec.train, spec.decode)
    assert again.resolved_yaml() == spec.resolved_yaml()


@pytest.mark.parametrize("name", SPECS)
def test_task_fits_the_json_schema(tmp_path: Path, name: str) -> None:
    validator = jsonschema.Draft202012Validator(json_schema())
    validator.validate(yaml.safe_load(SPECS[name]))
    validator.validate(yaml.safe_load(write_task(tmp_path, name).resolved_yaml()))


@pytest.mark.parametrize("entry", ["{}", "{tokens: a, vectors: b}", "{token: a}"])
def test_json_schema_refuses_an_input_of_no_kind_or_two(entry: str) -> None:
    document = yaml.safe_load(f"{{extends: a, inputs: {{x: {entry}}}}}")
    assert not jsonschema.Draft202012Validator(json_schema()).is_valid(document)


def test_vectors_have_a_mask_beside_them(tmp_path: Path) -> None:
    graph = compile_spec(write_task(tmp_path, "frames"))
    assert [(value.name, str(value.type)) for value in graph.inputs] == [
        ("frames", "float32[batch, frames, features=6]"),
        ("frames_mask", "bool[batch, frames]"),
    ]


def test_edges_join_positions_and_keys(tmp_path: Path) -> None:
    graph = compile_spec(write_task(tmp_path, "graph"))
    assert [(value.name, str(value.type)) for value in graph.inputs] == [
        ("nodes", "int64[batch, nodes]"),
        ("links", "bool[batch, nodes, nodes_keys]"),
    ]


def test_each_kind_of_input_has_its_type() -> None:
    declared = {"a": Input("values", (Axis("height", 3),), None, SPAN), "b": Input("edges", (), "c", SPAN)}
    declared["c"] = Input("vectors", (Axis("features", 2),), None, SPAN)
    writer = Writer("model", Model({}, {}, {}, declared, (), {}, {}, (), {}), [])
    types = [str(writer.input(name).type) for name in declared]
    assert types == ["float32[batch, height=3]", "bool[batch, c, c_keys]", "float32[batch, c, features=2]"]


def test_only_the_settings_of_the_task_are_resolved(tmp_path: Path) -> None:
    found = {name: yaml.safe_load(write_task(tmp_path, name).resolved_yaml()) for name in SPECS}
    edits = {option.name: [] if option.several else option.absent for option in EDITS}
    sample = {"temperature": 0.8, "top_k": 0, "top_p": 1.0, "max_new_tokens": 20, **edits}
    assert found["language_model"]["decode"]["sample"] == sample
    assert found["language_model"]["decode"].keys() == {*SEARCHED}
    assert found["language_model"]["train"]["tokenizer"] == {"kind": "bpe"}
    assert [name for name in SPECS if "decode" in found[name]] == ["language_model"]
    assert [name for name in SPECS if "tokenizer" in found[name]["train"]] == ["language_model", "tagging"]
    assert [name for name in SPECS if "max_length" not in found[name]["train"]] == ["images"]


E = "extends: transformer_base\n"
VALUES = "{values: [height, width, channels]}"
VECTORS = "{vectors: features}"
GIVES = "the last stage of a {} model must return float32[batch, {}, found float32[batch, {}]"
LABELS = "LABELS], where LABELS is a size of at least 2"
WRONG = [
    (LANGUAGE_MODEL.replace("inputs: {", "inputs: {hint: {tokens: vocabulary}, "),
     [("text", "language_model has one input, found also 'text'")]),
    (LANGUAGE_MODEL.replace("{tokens", "{vectors"),
     [("text", "the input 'text' of language_model must be tokens, found vectors")]),
    (TAGGING.replace("{words: {tokens: vocabulary}}", "{}"), [("{", "tagging needs an input")]),
    (IMAGES.replace(VALUES, "{values: [height, depth, 3]}"),
     [("depth", "unknown size 'depth'"), ("3", "must be the name of a size, found 3")]),
    (IMAGES.replace(VALUES, "{values: [height, height]}"),
     [("[", "must be one axis or several different ones")]),
    (IMAGES.replace(VALUES, "{values: []}"), [("[", "must be one axis or several different ones")]),
    (IMAGES.replace("height: 3,", "height: 2.5,"),
     [("2.5", "the axis height needs a positive whole number, found 2.5")]),
    (IMAGES.replace("{values:", "{vales:"), [("vales", "unknown key 'vales'")]),
    (IMAGES.replace(VALUES, "{}"), [("{", "image needs exactly one of tokens, vectors, values, edges, found 0")]),
    (FRAMES.replace(VECTORS, "{vectors: features, tokens: features}"),
     [("{", "frames needs exactly one of tokens, vectors, values, edges, found 2")]),
    (FRAMES.replace(VECTORS, VECTORS + ", e: {edges: frame}"),
     [("frame", "edges must name an input of tokens or vectors, found 'frame'")]),
    (IMAGES.replace(VALUES, VALUES + ", e: {edges: image}"),
     [("image", "edges must name an input of tokens or vectors, found 'image'")]),
    (FRAMES.replace(VECTORS, VECTORS + ", frames_mask: {tokens: features}"),
     [("frames_mask", "the name 'frames_mask' is reserved for the input 'frames' of vectors")]),
    (TAGGING.replace("labels: 5", "labels: 5, words_keys: 3"),
     [("words_keys", "the name 'words_keys' is reserved for the input 'words' of tokens")]),
    (IMAGES.replace("{image:", "{labels:").replace("labels: 4", "kinds: 4"),
     [("labels", "the name 'labels' is reserved")]),
    (TAGGING.replace("train: {tokenizer: {kind: word}}\n", ""),
     [("tagging", "tagging labels whole words, so train.tokenizer.kind must be word, found bpe")]),
    (TAGGING.replace("kind: word", "kind: char"),
     [("char", "tagging labels whole words, so train.tokenizer.kind must be word, found char")]),
    (TAGGING.replace("linear: {to: labels}", "linear: {to: [heads, labels]}"),
     [("{", GIVES.format("tagging", f"words, {LABELS}", "words, heads=2, labels=5"))]),
    (IMAGES.replace("over: [height, width, channels], to", "to"),
     [("{", GIVES.format("classification", LABELS, "height=3, width=2, labels=4"))]),
    (LANGUAGE_MODEL.replace("linear: {to: vocabulary}", "linear: {to: d_ff}"),
     [("{", GIVES.format("language_model", "text, vocabulary=80]", "text, d_ff=12"))]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), WRONG, ids=[expected[-1][1][:60] for _, expected in WRONG])
def test_task_that_does_not_fit_is_refused(problems: Problems, text: str, expected: list[tuple[str, str]]) -> None:
    assert [(item.span.text, item.message) for item in problems(text)] == expected


FRAMES_AND_TEXT = """\
task: classification
sizes: {features: 4, d_model: 8, vocabulary: 20, labels: 2}
inputs: {frames: {vectors: features}, text: {tokens: vocabulary}}
model:
  asked: {from: text, do: [embedding: d_model, mean]}
  label: {from: frames, do: {wide: {linear: d_model}, both: {plus: asked}, whole: mean, label: {linear: labels}}}
"""
IDLE = [
    (E + "decode: {sample: {top_k: 3}}\n",
     "decode.sample has no effect here: the decoding settings of translation are preset, beam_size, "
     "n_best, length_penalty, max_length, min_length, length_penalty_kind, stop_rule, patience, "
     "suppress_tokens, no_repeat_ngram_size, repetition_penalty, presence_penalty, frequency_penalty, prefix_bias, "
     "beam_groups, diversity_penalty, coverage_penalty, prefix, suppress_first, alignment, coverage, speech"),
    (LANGUAGE_MODEL.replace("decode: {", "decode: {max_length: {offset: 2}, "),
     "decode.max_length has no effect here: the decoding settings of language_model are sample, preset, beam_size, "
     "n_best, length_penalty, min_length, length_penalty_kind, stop_rule, patience, "
     "suppress_tokens, no_repeat_ngram_size, repetition_penalty, presence_penalty, frequency_penalty, "
     "beam_groups, diversity_penalty"),
    (TAGGING + "decode: {n_best: 2}\n",
     "decode has no effect here: tagging predicts labels; only 'translation' or 'language_model' has "
     "decoding settings"),
    (TAGGING.replace("kind: word", "kind: word, shared: true"),
     "train.tokenizer.shared has no effect here: the model has only one input"),
    (FRAMES + "train: {tokenizer: {kind: word}}\n",
     "train.tokenizer has no effect here: the input frames is not text, so examples are arrays"),
    (FRAMES_AND_TEXT + "train: {tokenizer: {kind: word}}\n",
     "train.tokenizer has no effect here: the input frames is not text, so examples are arrays; with `results` in "
     "place of `task`, they may have text beside it"),
    (IMAGES + "train: {max_length: 90}\n", "train.max_length has no effect here: no input has positions"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), IDLE, ids=[message[:40] for _, message in IDLE])
def test_setting_that_does_nothing_is_refused(problems: Problems, text: str, message: str) -> None:
    (problem,) = problems(text)
    assert (problem.message, problem.hint) == (message, "remove it")
    assert problem.span.text == message.partition(" ")[0].rpartition(".")[2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("temperature: -1", "must be greater than or equal to 0, found -1"),
        ("top_k: -1", "must be greater than or equal to 0, found -1"),
        ("top_p: 1.5", "must be less than or equal to 1, found 1.5"),
        ("max_new_tokens: 0", "must be greater than or equal to 1, found 0"),
    ],
)
def test_sampling_outside_its_bounds_is_refused(problems: Problems, text: str, message: str) -> None:
    (problem,) = problems(LANGUAGE_MODEL.replace("temperature: 0.8, max_new_tokens: 20", text))
    assert problem.message == message


def test_an_unused_input_is_refused_whatever_its_kind(problems: Problems) -> None:
    (problem,) = problems(FRAMES.replace("{vectors: features}}", "{vectors: features}, e: {edges: frames}}"))
    assert problem.message == "the input 'e' is never used"


def test_learned_positions_must_cover_the_texts(build: Build, problems: Problems) -> None:
    text = TAGGING.replace("sinusoidal", "learned").replace("labels: 5", "labels: 5, max_positions: 9")
    (problem,) = problems(text)
    assert problem.message == "9 positions are fewer than train.max_length, which is 256"
    build(text.replace("{tokenizer", "{max_length: 9, tokenizer"))
