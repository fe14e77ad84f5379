"""Writes an engine of each task for the native tests, whose models are those of the fake ONNX Runtime.

python -m native.engines FOLDER
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tiny_engine import DEFAULTS, text_input, train_tokenizer, write_manifest

from xformc.format.interfaces import PREFIX, RESULTS, SAMPLING, SEARCH

_NONE = {"vocabulary": 0, "axes": {}, "of": None, "longest": None, "tokenizer": None}
_INPUTS: Mapping[str, Mapping[str, Any]] = {
    "words": {"kind": "tokens", **_NONE, "vocabulary": 50},
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
    _write(folder, "tagging", ("words",), {"labels": ["a", "b", "c"], "positions": "words"}, ("words",), ("words",))
    names = ("words", "sound", "sound_mask", "age", "links")
    _write(folder, "arrays", (), {"task": "classification", "labels": ["a", "b"], "inputs": _INPUTS}, names, ("-",))
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
    labels = len(more.get("labels", ()))
    written = f"labels {labels} {outputs[0]}\noutputs probabilities" if labels else "outputs " + " ".join(outputs)
    (engine / "model.onnx").write_text(f"inputs {' '.join(inputs)}\n{written}\n")
    manifest: dict[str, object] = {
        "format": 3, "xformc": "0.1.0", "name": task, "task": task, "target": "portable", "precision": "float32",
        "tokens": {"pad": 0, "unknown": 1, "begin": 2, "end": 3}, "labels": None, "positions": None,
        "inputs": {name: text_input(size) for name in texts}, "defaults": None, "parameters": 0,
        "weights": "trained", **more,
    }  # fmt: skip
    write_manifest(engine, manifest)


if __name__ == "__main__":
    write_engines(Path(sys.argv[1]))
