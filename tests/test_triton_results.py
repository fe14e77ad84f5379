"""`xformc export` for Triton of engines that declare their results."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from command_line import CommandLine, mistake
from task_specs import CAPTIONS
from tiny_engine import train_tokenizer
from triton_server import Server

from xformc.compiler.build import build_engine
from xformc.compiler.spec import load_spec
from xformc.errors import UserError
from xformc.format.targets import Target
from xformc.runtime import load, read_manifest
from xformc.triton.repository import choose_backend

Build = Callable[..., Path]
HEADS = """\
sizes: {d_model: 8, vocabulary: 80, tags: 3, one: 1, letters: 6}
inputs: {words: {tokens: vocabulary}}
results: {tags: {labels: tagged, each: token}, meaning: {vectors: pooled, normalize: true}, size: {numbers: sized},
  whole: {numbers: sum}, said: {ctc: spoken, beam_size: 2}}
model:
  states: {from: words, do: [embedding: d_model]}
  tagged: {from: states, do: [linear: tags]}
  pooled: {from: states, do: [mean]}
  sized: {from: pooled, do: [linear: one]}
  sum: {from: pooled, do: [sum: {over: d_model}]}
  spoken: {from: states, do: [linear: letters]}
"""
PAIRS = """\
sizes: {d_model: 8, vocabulary: 80, topics: 2}
inputs: {first: {tokens: vocabulary}, second: {tokens: vocabulary}, text: {tokens: vocabulary}}
results: {text: {text: logits}, topics: {labels: topical, several: true}}
model:
  one: {from: first, do: [embedding: d_model, mean]}
  two: {from: second, do: [embedding: d_model, mean, {plus: one}]}
  topical: {from: two, do: [linear: topics]}
  states: {from: text, do: [embedding: d_model, {gru_from: {start: two}}]}
  logits: {from: states, do: [linear: vocabulary]}
decode: {beam_size: 2, n_best: 2, max_length: {offset: 3}}
"""
SAMPLED = PAIRS.replace("beam_size: 2, n_best: 2, max_length: {offset: 3}", "sample: {max_new_tokens: 5}")
OF_TEXT = PAIRS.replace(
    "topical: {from: two, do: [linear: topics]}", "topical: {from: states, do: [mean, linear: topics]}"
)
EXAMPLES = [("hello world", "two dogs"), ("we were here", "numbers"), ("a man rides", "one two three")]


@pytest.fixture
def build(tmp_path: Path) -> Build:
    def make(text: str, target: Target = "portable", *, tokenized: bool = True) -> Path:
        (tmp_path / "model.yaml").write_text(text)
        spec, tokenizer = load_spec(tmp_path / "model.yaml"), tmp_path / "tokenizer.model"
        train_tokenizer(tokenizer)
        files = dict.fromkeys(spec.inputs, tokenizer) if tokenized else None
        assert build_engine(spec, None, files, target, tmp_path / "engine").passed
        return tmp_path / "engine"

    return make


def strings(*texts: str) -> np.ndarray:
    return np.array([[text.encode()] for text in texts], np.object_)


@pytest.mark.parametrize("target", ["portable", "cpu", "cuda"])
def test_results_without_text_are_served(
    xformc: CommandLine, build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: Target
) -> None:
    engine = build(HEADS, target)
    assert xformc("export", "triton", engine, "-o", tmp_path / "models", "--name", "heads").code == 0
    server, loaded = Server(tmp_path / "models", monkeypatch), load(engine, threads=1, device="cpu")
    ids = np.array([[5, 6, 7], [8, 9, 0]])
    (found,) = server.outputs("heads", {"words": ids})
    pair = loaded.predict({"words": ids})
    np.testing.assert_allclose(found["meaning"], [one.results["meaning"] for one in pair], atol=1e-6)
    assert found["whole"].shape == (2, 1) and found["tags_probabilities"].shape == (2, 3, 3)
    texts = ["hello world", "two dogs play"]
    served = server.outputs("heads_text", *({"words": strings(text)} for text in texts))
    lines = xformc("predict", engine, "--json", "--device", "cpu", stdin="\n".join(texts)).out.splitlines()
    for index, (line, one) in enumerate(zip(lines, served, strict=True), start=1):
        assert json.loads(line) == {"line": index, **json.loads(one["results"][0, 0])}


@pytest.mark.parametrize("spec", [PAIRS, SAMPLED], ids=["searched", "sampled"])
def test_text_and_results_beside_it_are_served(
    xformc: CommandLine, build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: str
) -> None:
    engine = build(spec)
    assert xformc("export", "triton", engine, "-o", tmp_path / "models", "--name", "pairs").code == 0
    first, second = zip(*EXAMPLES, strict=True)
    texts = {"first": strings(*first), "second": strings(*second)}
    seeds = {"seed": np.array([[4], [5], [6]])} if spec == SAMPLED else {}
    (found,) = Server(tmp_path / "models", monkeypatch).outputs("pairs_text", {**texts, **seeds})
    given = ("--seed", "4") if spec == SAMPLED else ("--n-best", "2")
    lines = "\n".join("\t".join(pair) for pair in EXAMPLES)
    wanted = [json.loads(line) for line in xformc("transcribe", engine, "--json", *given, stdin=lines).out.splitlines()]
    for row, one in zip(found["results"][:, 0], wanted, strict=True):
        served = json.loads(row)
        assert served.keys() | {"line"} == one.keys()
        for mine, other in zip(served["hypotheses"], one["hypotheses"], strict=True):
            assert mine["text"] == other["text"] and mine["score"] == pytest.approx(other["score"], abs=1e-4)
        assert served["topics"]["probabilities"] == pytest.approx(one["topics"]["probabilities"], abs=1e-4)


def test_text_of_arrays_is_served(
    xformc: CommandLine, build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = build(CAPTIONS, tokenized=False)
    result = xformc("export", "triton", engine, "-o", tmp_path / "models", "--name", "captions", "--option", "n_best=2")
    assert result.out.splitlines() == [str(tmp_path / "models" / "captions")], result.err
    image = np.random.default_rng(0).standard_normal((2, 3, 2), np.float32)
    arrays = {"image": image, "hints": np.array([[5, 6], [7, 3]])}
    (found,) = Server(tmp_path / "models", monkeypatch).outputs("captions", arrays)
    for row, hypotheses in enumerate(load(engine, threads=1).transcribe(arrays, n_best=2)):
        for rank, one in enumerate(hypotheses):
            assert tuple(found["tokens"][row, rank, : found["lengths"][row, rank]]) == one.tokens
        np.testing.assert_allclose(found["brightness"][row], hypotheses[0].results["brightness"], atol=1e-5)


def test_what_triton_cannot_serve_is_refused(xformc: CommandLine, build: Build, tmp_path: Path) -> None:
    export = ("export", "triton", build(OF_TEXT), "-o", tmp_path / "models")
    refused = mistake(xformc(*export))
    assert "results of the written text cannot be exported yet: topics\nhint: leave them out" in refused
    (tmp_path / "engine").rename(tmp_path / "other")
    build(PAIRS)
    refused = mistake(xformc(*export, "--runtime"))
    message = "text of declared results cannot be served with xformc's runtime or kernels, or in fixed shapes"
    assert refused.startswith(f"{message}\nhint: build")
    manifest = read_manifest(tmp_path / "engine")
    with pytest.raises(UserError, match="or in fixed shapes"):
        choose_backend(replace(manifest, target="cuda"), runtime=False)
    assert not (tmp_path / "models").exists()
