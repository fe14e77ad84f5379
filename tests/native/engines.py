"""Writes an engine of each task for the native tests, whose models are those of the fake ONNX Runtime.

python -m native.engines FOLDER
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from tiny_engine import DEFAULTS, labelled, text_input, train_tokenizer, write_manifest, written

from xformc.format.interfaces import PREFIX, RESULTS, SAMPLING, SEARCH

_NONE = {"axes": {}, "of": None, "longest": None, "tokenizer": None, "rate": None}
_INPUTS: Mapping[str, Mapping[str, Any]] = {
    "words": {**text_input(50), "tokenizer": None},
    "sound": {"kind": "vectors", **_NONE, "axes": {"size": 3}},
    "age": {"kind": "values", **_NONE, "axes": {"one": 1}},
    "links": {"kind": "edges", **_NONE, "of": "words"},
}


def write_engines(folder: Path) -> Path:
    """Write the engines `translation`, `language_model`, `tagging` and `arrays` into a new folder; return it."""
    searching = {"defaults": {**DEFAULTS, "min_length": 0}, "controls": [PREFIX]}
    _write(folder, "translation", ("source", "target"), searching, SEARCH.inputs, RESULTS)
    sampling = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "max_new_tokens": 20}
    _write(folder, "language_model", ("text",), {"defaults": sampling}, SAMPLING.inputs, RESULTS)
    _write(folder, "tagging", ("words",), {"results": labelled("abc", "words")}, ("words",), ("words",))
    names = ("words", "sound", "sound_mask", "age", "links")
    _write(
        folder, "arrays", (), {"task": "classification", "results": labelled("ab"), "inputs": _INPUTS}, names, ("-",)
    )
    return folder


def _write(
    folder: Path,
    task: str,
    texts: tuple[str, ...],
    more: Mapping[str, Any],
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
) -> None:
    """`outputs` of an engine that predicts labels is the input whose positions are labelled."""
    engine = folder / task
    engine.mkdir(parents=True)
    size = train_tokenizer(engine / "tokenizer.model")
    results = cast(Mapping[str, Mapping[str, Any]], more.get("results") or written(texts[-1], size))
    labels = len(results["labels"]["labels"]) if "labels" in results else 0
    given = f"labels {labels} {outputs[0]}\noutputs probabilities" if labels else "outputs " + " ".join(outputs)
    (engine / "model.onnx").write_text(f"inputs {' '.join(inputs)}\n{given}\n")
    manifest: dict[str, object] = {
        "format": 1, "xformc": "0.1.0", "name": task, "task": task, "target": "portable", "precision": "float32",
        "inputs": {name: text_input(size) for name in texts}, "results": results, "defaults": None, "parameters": 0,
        "weights": "trained", **more,
    }  # fmt: skip
    write_manifest(engine, manifest)


if __name__ == "__main__":
    write_engines(Path(sys.argv[1]))
