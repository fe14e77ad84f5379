"""Engines of every older format keep loading."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from tiny_engine import DEFAULTS, write_manifest

from tests.runtime.kernel_session import kernel_library
from xformc.format.inputs import Input
from xformc.format.manifest import FileRecord, SampleOptions, SearchOptions
from xformc.runtime import load, read_manifest

OLD_DEFAULTS = {"beam_width" if name == "beam_size" else name: value for name, value in DEFAULTS.items()}
FORMATS = Path(__file__).parent / "formats"


def test_format_1_says_the_same_in_todays_words() -> None:
    manifest = read_manifest(FORMATS / "format_1")
    assert (manifest.format, manifest.name, manifest.task, manifest.target) == (1, "numbers", "translation", "cpu")
    assert manifest.inputs == {
        "source": Input("tokens", vocabulary=500, longest=128, tokenizer="source.model"),
        "target": Input("tokens", vocabulary=600, longest=None, tokenizer="target.model"),
    }
    assert (manifest.labels, manifest.positions) == (None, None)
    assert manifest.search == SearchOptions(4, 1, 0.6, 1.0, 50)
    assert (manifest.parameters, manifest.weights) == (420_096, "trained")
    assert manifest.files["model.onnx"] == FileRecord(101, f"{1:064x}")


def test_an_engine_of_format_1_translates(own_engine: Path) -> None:
    content = json.loads((own_engine / "engine.json").read_text())
    size = content["inputs"]["source"]["vocabulary"]
    kept = {key: content[key] for key in ("xformc", "name", "task", "target", "precision", "tokens", "parameters")}
    old = {
        "vocabulary": {"source": size, "target": size},
        "tokenizer": {"source": "tokenizer.model", "target": "tokenizer.model"},
        "defaults": OLD_DEFAULTS,
        "max_source_length": None,
        "max_target_length": None,
        "weights": "trained",
    }
    write_manifest(own_engine, {"format": 1, **kept, **old})
    assert load(own_engine, threads=1).translate(["hello world"])[0][0].text == "hello world"


def test_an_engine_of_format_2_whose_model_has_a_beam_width_translates(own_engine: Path) -> None:
    model = onnx.load(own_engine / "model.onnx")
    for value in (*model.graph.input, *model.graph.initializer):
        value.name = value.name.replace("beam_size", "beam_width")
    for node in model.graph.node:
        node.input[:] = [name.replace("beam_size", "beam_width") for name in node.input]
    onnx.save(model, own_engine / "model.onnx")
    content = json.loads((own_engine / "engine.json").read_text())
    rest = {key: value for key, value in content.items() if key not in ("files", "checksum")}
    write_manifest(own_engine, {**rest, "format": 2, "defaults": OLD_DEFAULTS})
    engine = load(own_engine, threads=1)
    assert (engine.manifest.format, engine.manifest.search.beam_size) == (2, 4)
    [found] = engine.translate(["hello world"], beam_size=5, n_best=5)
    assert (found[0].text, len(found)) == ("hello world", 5)


def test_format_3_records_labels_and_every_kind_of_input(own_engine: Path) -> None:
    content = json.loads((own_engine / "engine.json").read_text())
    nothing = {"vocabulary": None, "axes": {}, "of": None, "longest": None, "tokenizer": None}
    inputs = {
        "words": {**nothing, "kind": "tokens", "vocabulary": 90, "longest": 40},
        "frames": {**nothing, "kind": "vectors", "axes": {"features": 80}},
        "image": {**nothing, "kind": "values", "axes": {"height": 4, "width": 6}},
        "tree": {**nothing, "kind": "edges", "of": "words"},
    }
    changes = {"task": "tagging", "inputs": inputs, "labels": ["B", "O"], "positions": "words", "defaults": None}
    rest = {key: value for key, value in content.items() if key not in ("files", "checksum")}
    write_manifest(own_engine, {**rest, **changes})
    manifest = read_manifest(own_engine)
    assert manifest.inputs == {
        "words": Input("tokens", vocabulary=90, longest=40),
        "frames": Input("vectors", axes={"features": 80}),
        "image": Input("values", axes={"height": 4, "width": 6}),
        "tree": Input("edges", of="words"),
    }
    assert (manifest.labels, manifest.positions, manifest.defaults) == (("B", "O"), "words", None)


def test_format_3_records_how_a_language_model_samples(own_engine: Path) -> None:
    content = json.loads((own_engine / "engine.json").read_text())
    sampling = {"temperature": 0.8, "top_k": 0, "top_p": 0.9, "max_new_tokens": 20}
    changes = {"task": "language_model", "inputs": {"text": content["inputs"]["source"]}, "defaults": sampling}
    rest = {key: value for key, value in content.items() if key not in ("files", "checksum")}
    write_manifest(own_engine, {**rest, **changes})
    assert read_manifest(own_engine).sampling == SampleOptions(0.8, 0, 0.9, 20)


BUILT_FOR: dict[int, tuple[list[list[list[int]]], list[list[float]]]] = {
    2: (
        [
            [[39, 12, 12, 29, 16, 12, 26, 16, 12, 12], [6, 12, 29, 16, 12, 26, 16, 12, 12, 12]],
            [[39, 16, 16, 16, 39, 6, 0, 0, 0, 0], [39, 16, 16, 16, 16, 39, 0, 0, 0, 0]],
            [[6, 12, 39, 16, 16, 16, 16, 16, 16, 0], [6, 12, 26, 16, 16, 16, 16, 16, 16, 0]],
        ],
        [[-11.12977, -11.22583], [-7.92272, -8.24453], [-10.30907, -10.33144]],
    ),
    3: (
        [
            [[18, 37, 18, 37, 18, 19, 18, 19, 18, 19], [18, 37, 18, 37, 18, 19, 18, 19, 18, 37]],
            [[18, 12, 18, 39, 18, 12, 0, 0, 0, 0], [38, 18, 12, 18, 12, 18, 0, 0, 0, 0]],
            [[23, 24, 15, 15, 15, 15, 15, 15, 15, 0], [23, 24, 15, 15, 15, 15, 15, 15, 21, 0]],
        ],
        [[-6.49591, -6.81240], [-5.50469, -5.65913], [-6.28469, -6.98119]],
    ),
}
"""The results of the native engines in formats/ when they were built, by the version of their operators."""


@pytest.mark.processor
@pytest.mark.parametrize("operators", list(BUILT_FOR))
def test_a_native_engine_finds_what_it_found_when_it_was_built(operators: int) -> None:
    """The folder: a Transformer of one layer, its encoder and logits in int8 and its decoder in float32."""
    kernel_library()
    engine = load(FORMATS / f"format_3_operators_{operators}", threads=1)
    assert (engine.manifest.format, engine.manifest.target, engine.manifest.operators) == (3, "native", operators)
    sources = [[5, 6, 7, 8, 9, 3], [21, 3, 0, 0, 0, 0], [30, 11, 30, 12, 3, 0]]
    found = engine.search(sources, n_best=2, max_length_offset=4)
    tokens, scores = BUILT_FOR[operators]
    assert found.tokens.tolist() == tokens
    np.testing.assert_allclose(found.scores, scores, atol=1e-3)
