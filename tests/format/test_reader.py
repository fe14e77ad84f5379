"""engine.json says what an engine is, and is read by the xformc that writes it."""

import json
from pathlib import Path
from typing import Any

import pytest
from tiny_engine import labelled, result, text_input, write_manifest, written

from xformc.errors import UserError
from xformc.format.inputs import Input
from xformc.format.manifest import SampleOptions
from xformc.runtime import read_manifest


def rewritten(engine: Path, **changes: Any) -> Path:
    """The engine with other keys in its engine.json."""
    content = json.loads((engine / "engine.json").read_text())
    rest = {key: value for key, value in content.items() if key not in ("files", "checksum")}
    write_manifest(engine, {**rest, **changes})
    return engine


@pytest.mark.parametrize("number", [2, 7])
def test_an_engine_of_another_format_must_be_rebuilt(own_engine: Path, number: int) -> None:
    with pytest.raises(UserError, match=f"has format {number}; this xformc reads format 1") as caught:
        read_manifest(rewritten(own_engine, format=number))
    assert caught.value.hint is not None and "rebuild the engine" in caught.value.hint


def test_labels_and_every_kind_of_input_are_recorded(own_engine: Path) -> None:
    nothing = {"vocabulary": None, "axes": {}, "of": None, "longest": None, "tokenizer": None, "rate": None}
    inputs = {
        "words": {**text_input(90), "longest": 40, "tokenizer": None},
        "frames": {**nothing, "kind": "vectors", "axes": {"features": 80}},
        "image": {**nothing, "kind": "values", "axes": {"height": 4, "width": 6}},
        "tree": {**nothing, "kind": "edges", "of": "words"},
    }
    results = labelled(["B", "O"], "words")
    manifest = read_manifest(rewritten(own_engine, task="tagging", inputs=inputs, results=results, defaults=None))
    assert manifest.inputs == {
        "words": Input("tokens", vocabulary=90, longest=40),
        "frames": Input("vectors", axes={"features": 80}),
        "image": Input("values", axes={"height": 4, "width": 6}),
        "tree": Input("edges", of="words"),
    }
    assert (manifest.labels, manifest.positions, manifest.defaults) == (("B", "O"), "words", None)


def test_how_a_language_model_samples_is_recorded(own_engine: Path) -> None:
    sampling = {"temperature": 0.8, "top_k": 0, "top_p": 0.9, "max_new_tokens": 20}
    changes: dict[str, Any] = {"task": "language_model", "inputs": {"text": text_input(90)}, "defaults": sampling}
    manifest = read_manifest(rewritten(own_engine, **changes, results=written("text", 90)))
    assert manifest.sampling == SampleOptions(0.8, 0, 0.9, 20)


@pytest.mark.parametrize(
    ("task", "results"),
    [
        ("translation", written("source", 90)),
        ("translation", {**written("target", 90), "total": result("numbers", "total")}),
        ("tagging", labelled(["B", "O"])),
        ("classification", labelled(["B", "O"], "source")),
        ("classification", {"sums": result("numbers", "probabilities")}),
    ],
)
def test_results_that_are_not_those_of_the_task_are_refused(own_engine: Path, task: str, results: Any) -> None:
    with pytest.raises(UserError, match=f"the results do not fit the task {task}: "):
        read_manifest(rewritten(own_engine, task=task, results=results))
