"""A hand-made engine that copies: every translation of a sentence is the sentence, with falling scores.

Its model has the engine's interface (inputs with defaults, outputs, the length limit, the score's formula) but no
search, so that the runtime around a model can be tested without the compiler.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import sentencepiece
from onnx import TensorProto, helper, numpy_helper

from xformc.format.interfaces import PROBABILITIES, RESULTS
from xformc.format.manifest import manifest_checksum

SENTENCES = [
    "one two three", "twenty-one", "a man rides a red bicycle", "two dogs play in the snow", "hello world",
    "the quick brown fox jumps over the lazy dog", "we were here before you", "numbers in words",
]  # fmt: skip

DEFAULTS = {
    "beam_size": 4, "n_best": 1, "length_penalty": 0.6, "max_length_factor": 1.0, "max_length_offset": 50,
}  # fmt: skip

_SCALARS = {
    "beam_size": np.int64, "n_best": np.int64, "length_penalty": np.float32,
    "max_length_factor": np.float32, "max_length_offset": np.int64,
}  # fmt: skip


def make_engine(directory: Path, model: onnx.ModelProto | None = None) -> Path:
    """Write the engine of the model, `copy_model()` if left out, into the new folder `directory`, which it returns."""
    directory.mkdir(parents=True)
    size = train_tokenizer(directory / "tokenizer.model")
    onnx.save(copy_model() if model is None else model, directory / "model.onnx")
    (directory / "certificate.json").write_text(json.dumps(_CERTIFICATE))
    (directory / "spec.yaml").write_text("name: copy\n")
    manifest: dict[str, object] = {
        "format": 1, "xformc": "0.1.0", "name": "copy", "task": "translation", "target": "portable",
        "precision": "float32", "inputs": {"source": text_input(size), "target": text_input(size)},
        "results": written("target", size), "defaults": DEFAULTS, "parameters": 0, "weights": "trained",
    }  # fmt: skip
    write_manifest(directory, manifest)
    return directory


def text_input(size: int) -> dict[str, object]:
    """An input of tokens in engine.json."""
    special = {"pad": 0, "unknown": 1, "begin": 2, "end": [3], "ends": True}
    nothing = {"axes": {}, "of": None, "longest": None, "rate": None}
    return {"kind": "tokens", "vocabulary": size, **nothing, "tokenizer": "tokenizer.model", "special_tokens": special}


def result(kind: str, *outputs: str, **others: Any) -> dict[str, object]:
    """A result in engine.json."""
    return {
        "kind": kind, "axes": {}, "positions": None, "labels": None, "settings": {}, "outputs": list(outputs),
        "tokenizer": None, "of": None, **others,
    }  # fmt: skip


def written(name: str, size: int) -> dict[str, dict[str, object]]:
    """The results of an engine that writes the input `name` of so many tokens, and gives nothing else."""
    return {name: result("text", *RESULTS, axes={"vocabulary": size}, positions=name)}


def labelled(labels: Sequence[str], positions: str | None = None) -> dict[str, dict[str, object]]:
    """The results of an engine of tagging or classification."""
    axes, settings = {"labels": len(labels)}, {"several": False, "each": "word"}
    named = {"axes": axes, "positions": positions, "labels": list(labels), "settings": settings}
    return {"labels": result("labels", PROBABILITIES, **named)}


def write_manifest(directory: Path, manifest: dict[str, object]) -> None:
    """Write engine.json with the sizes and hashes of the files as they are now, and its own."""
    files = {
        path.name: {"bytes": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        for path in sorted(directory.iterdir())
        if path.name != "engine.json"
    }
    content = {**manifest, "files": files}
    (directory / "engine.json").write_text(json.dumps({**content, "checksum": manifest_checksum(content)}))


def copy_model() -> onnx.ModelProto:
    """tokens = the source, n_best times, cut to the limit; score of the k-th = -(length + k) / penalty."""
    nodes = [
        helper.make_node("Cast", ["source"], ["filled"], to=TensorProto.BOOL),
        helper.make_node("Cast", ["filled"], ["ones"], to=TensorProto.INT64),
        helper.make_node("ReduceSum", ["ones", "last"], ["source_length"], keepdims=1),
        helper.make_node("Cast", ["source_length"], ["source_length_f"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["source_length_f", "max_length_factor"], ["scaled"]),
        helper.make_node("Floor", ["scaled"], ["floored"]),
        helper.make_node("Cast", ["floored"], ["whole"], to=TensorProto.INT64),
        helper.make_node("Add", ["whole", "max_length_offset"], ["limit"]),
        helper.make_node("Min", ["limit", "source_length"], ["length"]),
        helper.make_node("Unsqueeze", ["n_best", "first"], ["n"]),
        helper.make_node("Concat", ["one", "n"], ["copies"], axis=0),
        helper.make_node("Tile", ["length", "copies"], ["lengths"]),
        helper.make_node("ReduceMax", ["length"], ["longest"], keepdims=0),
        helper.make_node("Range", ["zero", "longest", "unit"], ["positions"]),
        helper.make_node("Less", ["positions", "length"], ["inside"]),
        helper.make_node("Unsqueeze", ["longest", "first"], ["longest_1"]),
        helper.make_node("Slice", ["source", "first", "longest_1", "last"], ["cut"]),
        helper.make_node("Where", ["inside", "cut", "zero"], ["kept"]),
        helper.make_node("Unsqueeze", ["kept", "last"], ["kept_3"]),
        helper.make_node("Concat", ["one", "n", "one"], ["copies_3"], axis=0),
        helper.make_node("Tile", ["kept_3", "copies_3"], ["tokens"]),
        helper.make_node("Range", ["zero", "n_best", "unit"], ["ranks"]),
        helper.make_node("Add", ["lengths", "ranks"], ["cost"]),
        helper.make_node("Cast", ["cost"], ["cost_f"], to=TensorProto.FLOAT),
        helper.make_node("Neg", ["cost_f"], ["log_probability"]),
        helper.make_node("Cast", ["lengths"], ["lengths_f"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["lengths_f", "five"], ["plus_five"]),
        helper.make_node("Div", ["plus_five", "six"], ["ratio"]),
        helper.make_node("Pow", ["ratio", "length_penalty"], ["penalty"]),
        helper.make_node("Div", ["log_probability", "penalty"], ["scores"]),
    ]
    constants = {
        "last": np.array([1], np.int64), "first": np.array([0], np.int64), "one": np.array([1], np.int64),
        "zero": np.array(0, np.int64), "unit": np.array(1, np.int64),
        "five": np.array(5, np.float32), "six": np.array(6, np.float32),
    }  # fmt: skip
    defaults = {name: np.array(DEFAULTS[name], dtype) for name, dtype in _SCALARS.items()}
    tensors = [numpy_helper.from_array(value, name) for name, value in {**constants, **defaults}.items()]
    inputs = [helper.make_tensor_value_info("source", TensorProto.INT64, ["batch", "source"])]
    for name, dtype in _SCALARS.items():
        kind = TensorProto.INT64 if dtype is np.int64 else TensorProto.FLOAT
        inputs.append(helper.make_tensor_value_info(name, kind, []))
    outputs = [
        helper.make_tensor_value_info("tokens", TensorProto.INT64, ["batch", "n", "length"]),
        helper.make_tensor_value_info("lengths", TensorProto.INT64, ["batch", "n"]),
        helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", "n"]),
    ]
    graph = helper.make_graph(nodes, "copy", inputs, outputs, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    onnx.checker.check_model(model, full_check=True)
    return model


def endless_model() -> onnx.ModelProto:
    """The model that copies, but for a loop of 2^60 rounds that comes first."""
    model = copy_model()
    tokens = next(node for node in model.graph.node if node.output[0] == "tokens")
    tokens.output[0] = "copied"
    flag, number = (helper.make_tensor_value_info(*info, []) for info in (("go", 9), ("round", 7)))
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["go_on"]), helper.make_node("Identity", ["sum"], ["summed"])],
        "body",
        [number, flag, helper.make_tensor_value_info("sum", TensorProto.INT64, [])],
        [helper.make_tensor_value_info("go_on", 9, []), helper.make_tensor_value_info("summed", 7, [])],
    )
    model.graph.initializer.append(numpy_helper.from_array(np.array(2**60), "rounds"))
    model.graph.node.extend(
        [
            helper.make_node("Loop", ["rounds", "", "zero"], ["nothing"], body=body),
            helper.make_node("Add", ["copied", "nothing"], ["tokens"]),
        ]
    )
    onnx.checker.check_model(model, full_check=True)
    return model


def train_tokenizer(path: Path) -> int:
    """Write a SentencePiece model of `SENTENCES`, and return its number of pieces."""
    with path.open("wb") as handle:
        sentencepiece.SentencePieceTrainer.Train(
            sentence_iterator=iter(SENTENCES * 4), model_writer=handle, model_type="bpe", vocab_size=80,
            pad_id=0, unk_id=1, bos_id=2, eos_id=3, hard_vocab_limit=False, minloglevel=2,
        )  # fmt: skip
    return int(sentencepiece.SentencePieceProcessor(model_file=str(path)).GetPieceSize())


_CERTIFICATE = {
    "passed": True,
    "stages": [
        {"name": "logits", "what": "torch and engine", "value": 1e-6, "bound": 1e-4, "passed": True},
        {"name": "step", "what": "full and step", "value": 2e-6, "bound": 1e-4, "passed": True},
    ],
    "versions": {"onnxruntime": "1.31.1"},
    "date": "2026-01-01",
}  # fmt: skip
