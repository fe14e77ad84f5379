"""Declared results: their graph, and their errors with a place."""

from pathlib import Path

import pytest

from tests.spec.conftest import Build, Problems
from xformc.compiler.ops.loss import CrossEntropy, LinearCrossEntropy
from xformc.compiler.pipeline import compile_engine, compile_training
from xformc.compiler.spec import load_spec

SPEC = """\
sizes: {d_model: 8, vocabulary: 20, tags: 3, height: 2, one: 1}
inputs: {image: {values: [height, d_model]}, words: {tokens: vocabulary}}
results:
  words: {text: logits}
  tags: {labels: tagged, several: true}
  height_of: {numbers: tall}
model:
  sight: {from: image, do: [sum: {over: height}]}
  tall: {from: sight, do: [linear: {to: one}]}
  tagged: {from: sight, do: [linear: {to: tags}]}
  states: {from: words, do: [embedding: d_model, {gru_from: {start: sight}}]}
  logits: {from: states, do: [linear: vocabulary]}
train: {losses: {tags: {weight: 0.5}, height_of: {error: absolute}}}
"""
PLAIN = """\
sizes: {d_model: 8, vocabulary: 20}
inputs: {words: {tokens: vocabulary}}
results: {words: {labels: logits, each: token}}
model: {logits: {from: words, do: [embedding: d_model, {linear: vocabulary}]}}
train: {objective: {masked: {rate: 0.2}}}
"""


def test_results_are_outputs_and_have_losses(build: Build) -> None:
    assert [str(value.type) for value in build(SPEC).outputs] == [
        "float32[batch, words, vocabulary=20]",
        "float32[batch, tags=3]",
        "float32[batch, one=1]",
    ]
    graph = compile_training(load_spec(Path("model.yaml"))).graph
    assert [value.name for value in graph.inputs[-3:]] == ["words_labels", "tags_labels", "height_of_labels"]
    assert len(graph.outputs) == 9


def test_a_written_text_has_the_other_inputs_as_its_source(build: Build) -> None:
    build(SPEC)
    program = compile_engine(load_spec(Path("model.yaml")))
    assert (program.task, program.decoding, program.written, list(program.given)) == (
        "transcription",
        "search",
        "words",
        ["image"],
    )
    assert [value.name for value in program.decoder.heads] == [value.name for value in program.graph.outputs[1:]]


def test_r_drop_needs_distributions_over_classes(problems: Problems) -> None:
    (found,) = problems(SPEC.replace("train: {", "train: {r_drop: 5, "))
    assert found.message == "r_drop compares distributions over classes, and 'tags' has none"


def test_checkpoints_are_scored_by_bleu_in_translation_only(problems: Problems) -> None:
    (found,) = problems(SPEC.replace("train: {", "train: {select: bleu, "))
    assert found.message == "bleu is a score of translations; this task is transcription"
    (found,) = problems(SPEC.replace("train: {", "train: {checkpoint: {scores: true}, "))
    assert found.message == "checkpoints of translations are scored; this task is transcription"


def test_subwords_are_sampled_where_there_are_several(problems: Problems) -> None:
    (found,) = problems(SPEC.replace("train: {", "train: {tokenizer: {sampling: 0.1}, "))
    assert found.message == "sampling is for the tasks translation and language_model; this task is transcription"
    (found,) = problems(SPEC.replace("train: {", "train: {tokenizer: {sampling: 0.1, kind: word}, "))
    assert found.message == "a tokenizer of the kind word has one way to split a text"


def test_a_text_alone_is_a_language_model(build: Build) -> None:
    text = PLAIN.replace("{labels: logits, each: token}", "{text: logits}").replace("words", "text").split("train:")[0]
    build(text)
    assert compile_engine(load_spec(Path("model.yaml"))).decoding == "sample"


def test_a_text_is_sampled_if_the_spec_says_so(build: Build) -> None:
    build(SPEC + "decode: {sample: {top_k: 5}}\n")
    spec = load_spec(Path("model.yaml"))
    program = compile_engine(spec)
    assert (program.task, program.decoding, list(program.given)) == ("sampling", "sample", ["image"])
    assert "beam_size" not in spec.resolved_yaml() and "top_k: 5" in spec.resolved_yaml()
    Path("variant.yaml").write_text("extends: model\ndecode: {beam_size: 2}\n")
    assert compile_engine(load_spec(Path("variant.yaml"))).decoding == "search"
    Path("again.yaml").write_text("extends: variant\ndecode: {sample: {}}\n")
    assert compile_engine(load_spec(Path("again.yaml"))).decoding == "sample"


def test_a_language_model_may_call_its_input_anything(build: Build) -> None:
    text = PLAIN.replace("results: {words: {labels: logits, each: token}}", "task: language_model").split("train:")[0]
    build(text)
    program = compile_engine(load_spec(Path("model.yaml")))
    assert (program.decoding, program.written, list(program.results)) == ("sample", "words", ["words"])


def test_an_auxiliary_loss_is_trained_but_not_computed_by_the_engine(build: Build) -> None:
    build(
        SPEC.replace(
            "do: [sum: {over: height}]}",
            "do: {total: {sum: {over: height}}, size: tanh, kept: {auxiliary_loss: {from: size, weight: 0.1}},\n"
            "    result: {plus: {from: total, by: size}}}}",
        )
    )
    spec = load_spec(Path("model.yaml"))
    kinds = [node.op.kind for node in compile_training(spec).graph.nodes]
    assert kinds.count("mean_loss") == 1
    assert "auxiliary_loss" not in [node.op.kind for node in compile_engine(spec).graph.nodes]


def test_a_variant_replaces_the_task_of_what_it_extends(build: Build) -> None:
    graph = build("extends: gpt\nresults: {words: {labels: logits, each: token}}\n")
    assert str(graph.outputs[0].type).startswith("float32[batch, text, vocabulary")


def test_a_variant_of_a_variant_keeps_the_results(build: Build, tmp_path: Path) -> None:
    (tmp_path / "masked.yaml").write_text("extends: gpt\nresults: {words: {labels: logits, each: token}}\n")
    assert build("extends: masked\nsizes: {layers: 1}\n").outputs[0].type.dtype == "float32"
    (tmp_path / "back.yaml").write_text("extends: masked\ntask: language_model\n")
    assert build("extends: back\n") == build("extends: gpt\n")


def test_declared_results_resolve_to_themselves(build: Build, tmp_path: Path) -> None:
    graph = build(SPEC)
    again = load_spec(Path("model.yaml")).resolved_yaml()
    assert build(again) == graph and load_spec(Path("model.yaml")).resolved_yaml() == again


def test_a_text_beside_an_image_has_a_tokenizer(build: Build) -> None:
    text = """\
sizes: {d_model: 8, vocabulary: 20, answers: 3, height: 2, width: 2}
inputs: {image: {values: [height, width]}, question: {tokens: vocabulary}}
results: {answer: {labels: answer}}
model:
  sight: {from: image, do: [linear: {over: [height, width], to: d_model}]}
  answer: {from: question, do: [embedding: d_model, mean, {plus: sight}, {linear: answers}]}
train: {tokenizer: {kind: word}}
"""
    build(text)
    assert load_spec(Path("model.yaml")).train.tokenizer.kind == "word"
    assert "kind: word" in load_spec(Path("model.yaml")).resolved_yaml()


NAMES = "the engine's model would have two inputs or outputs called '{}'"
WRONG = [
    (SPEC.replace("image", "tokens"), "tokens", NAMES.format("tokens")),
    (SPEC.replace("image", "beam_size"), "beam_size", NAMES.format("beam_size")),
    (SPEC.replace("image", "seed") + "decode: {sample: {}}\n", "seed", NAMES.format("seed")),
    (SPEC.replace("height_of:", "scores:", 1).replace("height_of: {error", "scores: {error"), "scores",
     NAMES.format("scores")),
    (SPEC.replace("image", "tags_probabilities"), "tags", NAMES.format("tags_probabilities")),
    (SPEC + "decode: {sample: {}, beam_size: 2}\n", "beam_size",
     "decode.beam_size has no effect here: the decoding settings of sampling are sample"),
    (SPEC.replace("height_of", "image"), "image",
     "'image' is an input, and the data would have two columns of this name"),
    (SPEC + "task: tagging\n", "task", "a spec has either a task or results"),
    (SPEC.replace("{text: logits}", "{texts: logits}"), "words", "a result is of one kind, found a mapping"),
    (SPEC.replace("{numbers: tall}", "{numbers: tall, labels: tall}"), "height_of",
     "a result is of one kind, found numbers, labels"),
    (SPEC.replace("{numbers: tall}", "{numbers: toll}"), "toll", "must be a stage of the model, found 'toll'"),
    (SPEC.replace("several: true", "severel: true"), "severel", "results of kind labels have no setting 'severel'"),
    (SPEC.replace("several: true", "several: 3"), "3", "several must be true or false, found 3"),
    (SPEC.replace("error: absolute", "error: cubed"), "cubed", "error must be squared or absolute, found 'cubed'"),
    (SPEC.replace("weight: 0.5", "weight: 0"), "0", "weight must be a positive number, found 0"),
    (SPEC.replace("losses: {tags", "losses: {tag"), "tag", "there is no result 'tag'"),
    (SPEC.replace("  words: {text", "  image: {text"), "image",
     "written text is named after its input, and there is no input of tokens 'image'"),
    (SPEC.replace("{numbers: tall}", "{text: tall}").replace("height_of", "image"), "image",
     "written text is named after its input, and there is no input of tokens 'image'"),
    (SPEC.replace("{labels: tagged, several: true}", "{ctc: tagged, beam_size: 0}"), "0",
     "beam_size must be a positive whole number, found 0"),
    (SPEC.replace("{labels: tagged, several: true}", "{ctc: tagged, beam_size: 2000}"), "tags",
     "beam_size must be at most 1,024, found 2,000"),
    (SPEC.replace("  height_of: {numbers", "  image: {ctc"), "image",
     "a result of CTC has tokens of its own, and 'image' is an input"),
    (PLAIN.replace("results: {words: {labels: logits, each: token}}", "task: tagging"), "{",
     "this objective needs a spec with declared results, a single one: labels of each position of its only input"),
    (PLAIN.replace(", each: token", ""), "{", "masked tokens are labels of each token, not of each word"),
    (PLAIN.replace("{masked: {rate: 0.2}}", "{spans: {}}"), "{",
     "this objective needs a spec with declared results, a single one: text, written from one other input"),
    (PLAIN.replace("rate: 0.2", "rate: 2"), "2", "must be less than 1, found 2"),
    (PLAIN.replace("{masked: {rate: 0.2}}", "{}"), "{",
     "objective needs exactly one of masked, spans, denoise, prefix, such as {masked: {}}"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "place", "message"), WRONG, ids=[message[:60] for *_, message in WRONG])
def test_results_that_do_not_fit_are_refused(problems: Problems, text: str, place: str, message: str) -> None:
    found = problems(text)
    assert (message, place) in [(item.message, item.span.text) for item in found], found


READING = SPEC.replace("  tagged:", "  ends: {from: words, do: [embedding: d_model, STEP]}\n  tagged:").replace(
    "tagged: {from: sight, do: [linear", "tagged: {from: ends, do: [linear"
)
"""A result that reads what is written."""
ALIGNED = """\
sizes: {d_model: 8, vocabulary: 20}
inputs: {frames: {vectors: d_model}, words: {tokens: vocabulary}}
results: {words: {text: logits}, heard: {ctc: letters}}
model:
  sound: {from: frames, do: [mean]}
  read: {from: words, do: [embedding: d_model]}
  ends: {from: read, do: [mean]}
  letters: {from: frames, do: [plus: {by: ends}, linear: vocabulary]}
  logits: {from: read, do: [{gru_from: {start: sound}}, linear: vocabulary]}
"""


def test_results_have_a_label_smoothing_of_their_own(build: Build, problems: Problems) -> None:
    smoothed = SPEC.replace("{losses: {", "{label_smoothing: 0.1, losses: {words: {label_smoothing: 0}, ")
    build(smoothed)
    losses = [node.op for node in compile_training(load_spec(Path("model.yaml"))).graph.nodes]
    assert [op.smoothing for op in losses if isinstance(op, CrossEntropy | LinearCrossEntropy)] == [0.0]
    found = problems(smoothed.replace("label_smoothing: 0}", "label_smoothing: 2}"))
    assert [one.message for one in found] == ["label_smoothing must be at least 0 and less than 1, found 2"]
    found = problems(SPEC.replace("weight: 0.5", "label_smoothing: 0.1"))
    assert [one.message for one in found] == ["losses of labels have no setting 'label_smoothing'"]


def test_a_result_may_depend_on_what_is_written(build: Build) -> None:
    build(READING.replace("STEP", "mean"))
    found = compile_engine(load_spec(Path("model.yaml"))).results
    assert {name: item.of for name, item in found.items()} == {"words": None, "tags": "words", "height_of": None}


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (READING.replace("STEP", "tanh"), "is a result of each position of 'words', which", "one result of the whole"),
        (ALIGNED, "heard is a result of CTC that depends on 'words', which", "compute it from the other inputs"),
    ],
)
def test_what_no_engine_computes_of_its_text_is_refused(build: Build, text: str, message: str, hint: str) -> None:
    from xformc.compiler.graph.rules import RuleError

    build(text)
    with pytest.raises(RuleError, match=message) as error:
        compile_engine(load_spec(Path("model.yaml")))
    assert error.value.place is not None and str(error.value.hint).startswith(hint)
