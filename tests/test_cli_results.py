"""The command line with engines of specs that declare their results."""

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import CommandLine, mistake
from tiny_engine import train_tokenizer

from xformc.compiler.build import build_engine
from xformc.compiler.spec import load_spec
from xformc.runtime import load, minimum_bayes_risk

pytestmark = pytest.mark.processor

CAPTIONS = """\
sizes: {d_model: 8, height: 3, width: 2, vocabulary: 12, one: 1, topics: 2}
inputs: {image: {values: [height, width]}, caption: {tokens: vocabulary}}
results:
  caption: {text: logits}
  brightness: {numbers: bright}
  topics: {labels: topical, several: true}
model:
  sight: {from: image, do: [linear: {over: [height, width], to: d_model}, tanh]}
  bright: {from: sight, do: [linear: one]}
  topical: {from: sight, do: [linear: topics]}
  states: {from: caption, do: [embedding: d_model, {gru_from: {start: sight}}]}
  logits: {from: states, do: [linear: vocabulary]}
decode: {beam_size: 2, max_length: {offset: 3}}
"""
FRAMES = """\
sizes: {d_model: 8, features: 3, vocabulary: 6}
inputs: {frames: {vectors: features}}
results: {letters: {ctc: logits, beam_size: 2}}
model: {states: {from: frames, do: [linear: d_model, tanh]}, logits: {from: states, do: [linear: vocabulary]}}
"""
HEADS = """\
sizes: {d_model: 8, vocabulary: 12, tags: 3}
inputs: {words: {tokens: vocabulary}}
results: {tags: {labels: tagged}, meaning: {vectors: pooled, normalize: true}}
model:
  states: {from: words, do: [embedding: d_model]}
  tagged: {from: states, do: [linear: tags]}
  pooled: {from: states, do: [mean]}
"""
TWO_SOURCES = """\
sizes: {d_model: 8, vocabulary: 80, one: 1, kinds: 2}
inputs: {source: {tokens: vocabulary}, context: {tokens: vocabulary}, target: {tokens: vocabulary}}
results: {target: {text: logits}, quality: {numbers: good}, kind: {labels: sort}}
model:
  before: {from: context, do: [embedding: d_model, mean]}
  both: {from: source, do: [embedding: d_model, mean, {plus: before}, tanh]}
  good: {from: both, do: [linear: one]}
  sort: {from: both, do: [linear: kinds]}
  states: {from: target, do: [embedding: d_model, {gru_from: {start: both}}]}
  logits: {from: states, do: [linear: vocabulary]}
decode: {beam_size: 2, max_length: {offset: 3}}
"""


@pytest.fixture(scope="module")
def two_sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an engine that reads two texts and writes one."""
    folder = tmp_path_factory.mktemp("two")
    train_tokenizer(folder / "tokenizer.model")
    (folder / "model.yaml").write_text(TWO_SOURCES)
    tokenizers = {name: folder / "tokenizer.model" for name in ("source", "context", "target")}
    labels, spec = {"kind": ["bad", "good"]}, load_spec(folder / "model.yaml")
    assert build_engine(spec, None, tokenizers, "portable", folder / "engine", labels=labels).passed
    return folder / "engine"


@pytest.fixture
def built(tmp_path: Path):
    def make(text: str) -> Path:
        (tmp_path / "model.yaml").write_text(text)
        assert build_engine(load_spec(tmp_path / "model.yaml"), None, None, "portable", tmp_path / "engine").passed
        return tmp_path / "engine"

    return make


def test_transcribe_writes_text_and_the_other_results(xformc: CommandLine, built, tmp_path: Path) -> None:
    engine = built(CAPTIONS)
    images = np.random.default_rng(0).standard_normal((3, 3, 2), np.float32)
    np.savez(tmp_path / "data.npz", image=images, brightness=np.zeros((3, 1), np.float32))
    lines = xformc("transcribe", engine, "-i", tmp_path / "data.npz").out.splitlines()
    assert len(lines) == 3 and all(len(line.split("\t")) == 3 for line in lines)
    result = xformc("transcribe", engine, "-i", tmp_path / "data.npz", "--json", "--n-best", "2")
    rows = [json.loads(line) for line in result.out.splitlines()]
    assert [row["line"] for row in rows] == [1, 2, 3]
    assert len(rows[0]["hypotheses"]) == 2
    ids = [" ".join(map(str, row["hypotheses"][0]["tokens"])) for row in rows]  # the engine has no tokenizer
    assert [line.split("\t")[0] for line in lines] == ids and all(ids)
    assert set(rows[0]["topics"]["probabilities"]) == {"0", "1"}
    assert len(rows[0]["brightness"]["numbers"]) == 1
    shown = xformc("inspect", engine).out
    assert "transcription" in shown and "brightness [batch, one] float32" in shown
    assert xformc("bench", engine, "--seconds", "0.01").code == 0
    assert xformc("verify", engine).code == 0
    assert "is evaluated on a .tsv or .npz file" in mistake(xformc("evaluate", engine, tmp_path / "test.txt"))
    spec = tmp_path / "model.yaml"
    assert xformc("build", spec, "-o", tmp_path / "int8", "--target", "cpu", "--precision", "int8").code == 0
    assert xformc("build", spec, "-o", tmp_path / "cuda", "--target", "cuda").code == 0
    driven = xformc("transcribe", tmp_path / "cuda", "--device", "cpu", "-i", tmp_path / "data.npz")
    assert [line.split("\t")[0] for line in driven.out.splitlines()] == [line.split("\t")[0] for line in lines]


def test_transcribe_samples_if_the_spec_says_so(xformc: CommandLine, built, tmp_path: Path) -> None:
    engine = built(CAPTIONS.replace("beam_size: 2, max_length: {offset: 3}", "sample: {max_new_tokens: 6}"))
    images = np.random.default_rng(0).standard_normal((3, 3, 2), np.float32)
    np.savez(tmp_path / "data.npz", image=images)
    np.savez(tmp_path / "last.npz", image=images[2:])
    data = ("-i", tmp_path / "data.npz", "--json", "--temperature", "0.9", "--top-k", "4")
    rows = [json.loads(line) for line in xformc("transcribe", engine, *data, "--seed", "5").out.splitlines()]
    assert [len(row["hypotheses"]) for row in rows] == [1, 1, 1] and "brightness" in rows[0]
    last = ("-i", tmp_path / "last.npz", *data[2:], "--seed", "7")
    alone = json.loads(xformc("transcribe", engine, *last).out)
    assert alone["hypotheses"][0]["text"] == rows[2]["hypotheses"][0]["text"]
    assert alone["hypotheses"][0]["score"] == pytest.approx(rows[2]["hypotheses"][0]["score"], abs=1e-4)
    assert xformc("transcribe", engine, *data, "--seed", "6").out != xformc("transcribe", engine, *data).out
    refused = mistake(xformc("transcribe", engine, *data, "--beam-size", "2"))
    assert "--beam-size: no effect on model, which samples" in refused
    with load(engine, threads=1) as loaded:
        drawn = loaded.transcribe({"image": images}, samples=3, seed=5, temperature=0.9, top_k=4)
    several = ("transcribe", engine, *data, "--seed", "5", "--samples", "3")
    for options, wanted in (((), drawn), (("--mbr", "chrf"), [minimum_bayes_risk(one) for one in drawn])):
        rows = [json.loads(line) for line in xformc(*several, *options).out.splitlines()]
        scores = [[one["score"] for one in row["hypotheses"]] for row in rows]
        assert scores == [pytest.approx([one.score for one in some], abs=1e-4) for some in wanted]
    assert mistake(xformc("transcribe", engine, *data, "--mbr", "chrf")).startswith("--mbr chooses among the samples")
    shown = xformc("inspect", engine).out
    assert "sampling" in shown and "tokens [batch, length] int64" in shown
    for command in ("bench", "verify"):
        assert xformc(command, engine, *(["--seconds", "0.01"] * (command == "bench"))).code == 0
    searching = built_beside(tmp_path)
    refused = mistake(xformc("transcribe", searching, "-i", tmp_path / "data.npz", "--top-k", "3"))
    assert "--top-k: no effect on model, which searches" in refused


def built_beside(folder: Path) -> Path:
    """The engine that searches, beside another one."""
    (folder / "other").mkdir()
    (folder / "other" / "model.yaml").write_text(CAPTIONS)
    spec = load_spec(folder / "other" / "model.yaml")
    assert build_engine(spec, None, None, "portable", folder / "other" / "engine").passed
    return folder / "other" / "engine"


def test_predict_gives_all_results_of_arrays(xformc: CommandLine, built, tmp_path: Path) -> None:
    engine = built(HEADS)
    np.savez(tmp_path / "data.npz", words=np.array([[5, 6, 0], [7, 8, 9]]))
    rows = [
        json.loads(line) for line in xformc("predict", engine, "-i", tmp_path / "data.npz", "--json").out.splitlines()
    ]
    assert [len(row["tags"]["labels"]) for row in rows] == [2, 3]
    assert np.linalg.norm(rows[0]["meaning"]["vector"]) == pytest.approx(1, abs=1e-4)
    tags, vector = xformc("predict", engine, "-i", tmp_path / "data.npz").out.splitlines()[0].split("\t")
    assert len(tags.split()) == 2 and len(vector.split(",")) == 8


def test_predict_writes_the_texts_of_ctc(xformc: CommandLine, built, tmp_path: Path) -> None:
    engine = built(FRAMES)
    frames = np.random.default_rng(0).standard_normal((2, 5, 3), np.float32)
    np.savez(tmp_path / "data.npz", frames=frames, frames_lengths=np.array([5, 3]))
    lines = xformc("predict", engine, "-i", tmp_path / "data.npz", "--json").out.splitlines()
    rows = [json.loads(line)["letters"]["hypotheses"] for line in lines]
    assert [len(row) for row in rows] == [2, 2] and rows[0][0].keys() == {"tokens", "score"}
    plain = xformc("predict", engine, "-i", tmp_path / "data.npz").out.splitlines()
    assert plain == [" ".join(map(str, row[0]["tokens"])) for row in rows]
    assert "letters_tokens [batch, n_best, length] int64" in xformc("inspect", engine).out
    assert xformc("bench", engine, "--seconds", "0.01").code == 0
    assert xformc("verify", engine).code == 0
    spec = tmp_path / "model.yaml"
    assert xformc("build", spec, "-o", tmp_path / "int8", "--target", "cpu", "--precision", "int8").code == 0
    assert xformc("report", spec).code == xformc("draw", spec, "-o", tmp_path / "model.svg").code == 0


def test_an_empty_text_beside_another_is_a_text(xformc: CommandLine, two_sources: Path) -> None:
    examples = [("two dogs", "hello"), ("", "hello"), ("two dogs", ""), ("", "")]
    with load(two_sources, threads=1) as engine:
        together = engine.transcribe(examples)
        alone = [engine.transcribe([one])[0] for one in examples]
    assert [bool(one[0].tokens) for one in together] == [True, True, True, False]
    lines = "".join("\t".join(one) + "\n" for one in examples)
    rows = [json.loads(line) for line in xformc("transcribe", two_sources, "--json", stdin=lines).out.splitlines()]
    for row, first, second in zip(rows, together, alone, strict=True):
        assert row["hypotheses"][0]["text"] == first[0].text == second[0].text
        assert (row["quality"]["numbers"] or []) == pytest.approx(first[0].results["quality"].tolist(), abs=1e-5)
        assert first[0].results["quality"] == pytest.approx(second[0].results["quality"], abs=1e-5)


def test_what_an_example_lacks_is_an_empty_cell_and_null(xformc: CommandLine, two_sources: Path) -> None:
    assert xformc("transcribe", two_sources, stdin="\t\n").out == "\t\t\n"
    row = json.loads(xformc("transcribe", two_sources, "--json", stdin="\t\n").out)
    assert row["quality"] == {"numbers": None}
    assert row["kind"] == {"label": None, "probabilities": {}}
    assert row["hypotheses"] == [{"text": "", "score": 0.0}]


def test_evaluate_scores_an_empty_text_and_counts_the_lines_that_it_leaves_out(
    xformc: CommandLine, two_sources: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    right, no_source, no_number = "two\tone\ttwo\t0.5\tgood", "\t\ttwo\t0.5\tgood", "two\tone\ttwo\t\tgood"
    (tmp_path / "test.tsv").write_text(f"{right}\ntwo\t\ttwo\t0.5\tbad\n{no_source}\n\n{no_number}\n")
    found = json.loads(xformc("evaluate", two_sources, tmp_path / "test.tsv", "--json").out)
    assert (found["examples"], found["left_out"]) == (2, 3)
    warning = f"left out 3 of 5 lines, which have an empty column; the first is {tmp_path}/test.tsv:3"
    assert caplog.messages == [warning]


def test_lines_of_json_name_the_texts_and_may_have_options(
    xformc: CommandLine, two_sources: Path, tmp_path: Path
) -> None:
    texts = {"source": "two dogs", "context": "a\nman"}
    line = json.dumps({**texts, "beam_size": 3})
    wrong = xformc("transcribe", two_sources, "--json", "--json-input", stdin=f"{line}\n")
    assert mistake(wrong).startswith("line 1: beam_size is no option of a text\nhint: there are ")
    line = json.dumps({**texts, "min_length": 4})
    row = json.loads(xformc("transcribe", two_sources, "--json", "--json-input", stdin=f"{line}\n").out)
    with load(two_sources, threads=1) as engine:
        [[best, *_]] = engine.transcribe([texts], min_length=4)
    assert row["hypotheses"][0]["text"] == best.text
    lacking = mistake(xformc("transcribe", two_sources, "--json", "--json-input", stdin='{"source": "two"}\n'))
    example = 'write {"source": "a text", "context": "a text"}'
    assert lacking == f"line 1: the line has no text of context\nhint: {example}"
    assert "--json-input needs --json" in mistake(xformc("transcribe", two_sources, "--json-input", stdin="{}\n"))
    files = mistake(xformc("transcribe", two_sources, "--json-input", "--json", "-i", "a.npz"))
    assert files.startswith("--json-input is for lines of text")
    (tmp_path / "texts").write_text(json.dumps(texts))
    (tmp_path / "written").write_text('"two dogs"')
    scored = ("score", two_sources, tmp_path / "texts", tmp_path / "written", "--json")
    assert json.loads(xformc(*scored, "--json-input").out)["score"] < 0


def test_evaluate_scores_declared_text_as_translations(xformc: CommandLine, two_sources: Path, tmp_path: Path) -> None:
    examples = [("two dogs", "hello"), ("a man", "one")]
    with load(two_sources, threads=1) as engine:
        texts = [best.text for best, *_ in engine.transcribe(examples, beam_size=3)]
    rows = [f"{source}\t{context}\tone two three four\t0.5\tgood\n" for source, context in examples]
    (tmp_path / "test.tsv").write_text("".join(rows))
    arguments = ("evaluate", two_sources, tmp_path / "test.tsv", "--json", "--tokenize", "none", "--beam-size", "3")
    result = xformc(*arguments, "-o", tmp_path / "out.txt")
    found = json.loads(result.out)
    assert [line.split("\t")[0] for line in (tmp_path / "out.txt").read_text().splitlines()] == texts
    assert found["bleu"]["signature"].startswith("nrefs:1|case:mixed|eff:no|tok:none")
    assert found["chrf"]["score"] >= 0 and found["wer"] > 0
    shown = xformc("evaluate", two_sources, tmp_path / "test.tsv").out.splitlines()
    width = len("quality mean error")
    assert {line[width] for line in shown} == {" "} and all(line[:width].strip() for line in shown)


def test_the_wrong_method_and_the_wrong_input_are_mistakes(xformc: CommandLine, built, tmp_path: Path) -> None:
    engine = built(CAPTIONS)
    np.savez(tmp_path / "data.npz", picture=np.zeros((1, 3, 2), np.float32))
    wrong = mistake(xformc("predict", engine, "-i", tmp_path / "data.npz"))
    assert "is a transcription engine; predict needs a tagging or classification engine" in wrong
    assert "xformc transcribe" in wrong
    assert "the arrays lack image" in mistake(xformc("transcribe", engine, "-i", tmp_path / "data.npz"))
    assert "'image' is read from a .png, .jpg or .jpeg file" in mistake(xformc("transcribe", engine, stdin="a dog\n"))
