"""Writes the engines of the conformance cases: `python -m tests.conformance.engines`. Their models compute exactly.

Each is a hand-made ONNX model with the interface of an engine and results that follow from its inputs, so that a
runtime can be tested without the compiler, on any machine. They are kept in engines/: a runtime needs nothing else.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx
import sentencepiece
from onnx import parser
from tiny_engine import DEFAULTS, SENTENCES, copy_model, write_manifest

FOLDER = Path(__file__).parent / "engines"

OLD_DEFAULTS = {"beam_width" if name == "beam_size" else name: value for name, value in DEFAULTS.items()}
TOKENS = {"pad": 0, "unknown": 1, "begin": 2, "end": 3}
SAMPLING = {"temperature": 0.5, "top_k": 0, "top_p": 1.0, "max_new_tokens": 4}

# The continuation of a prompt counts on from the sum of its ids and its seed; its score is what the options say.
GENERATE = """\
<ir_version: 10, opset_import: ["" : 23]>
generate (int64[batch, prompt] prompt, int64[batch] seed, int64 max_new_tokens, float temperature, int64 top_k,
          float top_p) => (int64[batch, length] tokens, int64[batch] lengths, float[batch] scores)
<int64[1] last = {1}, int64[1] first = {0}, int64 zero = {0}, int64 one = {1}, int64 special = {4}, int64 end = {3},
 int64 vocabulary = {36}, float none = {0}>
{
  sum = ReduceSum <keepdims = 1> (prompt, last)
  seed_2 = Unsqueeze (seed, last)
  start = Add (sum, seed_2)
  counted = Range (zero, max_new_tokens, one)
  all = Add (start, counted)
  within = Mod (all, vocabulary)
  written = Add (within, special)
  final = Sub (max_new_tokens, one)
  is_final = Equal (counted, final)
  tokens = Where (is_final, end, written)
  rows = Squeeze (sum, last)
  nothing = Mul (rows, zero)
  lengths = Add (nothing, max_new_tokens)
  k = Cast <to = 1> (top_k)
  hot = Sub (none, temperature)
  with_k = Sub (hot, k)
  with_p = Sub (with_k, top_p)
  shape = Cast <to = 1> (nothing)
  scores = Add (shape, with_p)
}
"""

# The probability of label l is 5/8 if it is the id modulo 4, otherwise 1/8.
TAG = """\
<ir_version: 10, opset_import: ["" : 23]>
tag (int64[batch, words] words) => (float[batch, words, 4] probabilities)
<int64 four = {4}, float[2] values = {0.125, 0.625}>
{
  label = Mod (words, four)
  probabilities = OneHot <axis = -1> (label, four, values)
}
"""

# The same for the difference of the two texts' sums of ids.
PAIR = """\
<ir_version: 10, opset_import: ["" : 23]>
pair (int64[batch, first] first, int64[batch, second] second) => (float[batch, 4] probabilities)
<int64[1] last = {1}, int64 four = {4}, float[2] values = {0.125, 0.625}>
{
  one = ReduceSum <keepdims = 0> (first, last)
  two = ReduceSum <keepdims = 0> (second, last)
  difference = Sub (one, two)
  label = Mod (difference, four)
  probabilities = OneHot <axis = -1> (label, four, values)
}
"""

# The same for each frame: the number of its edges, and the sum of its vector and of the example's values.
ARRAYS = """\
<ir_version: 10, opset_import: ["" : 23]>
arrays (float[batch, frames, 2] frames, bool[batch, frames] frames_mask, bool[batch, frames, frames] links,
        float[batch, 3] global) => (float[batch, frames, 4] probabilities)
<int64[1] last = {-1}, int64[1] middle = {1}, int64 four = {4}, float[2] values = {0.125, 0.625}>
{
  of_vectors = ReduceSum <keepdims = 0> (frames, last)
  mask = Cast <to = 1> (frames_mask)
  of_frames = Mul (of_vectors, mask)
  numbers = Cast <to = 1> (links)
  edges = ReduceSum <keepdims = 0> (numbers, last)
  whole = ReduceSum <keepdims = 0> (global, last)
  whole_2 = Unsqueeze (whole, middle)
  some = Add (of_frames, edges)
  all = Add (some, whole_2)
  counted = Cast <to = 7> (all)
  label = Mod (counted, four)
  probabilities = OneHot <axis = -1> (label, four, values)
}
"""

# One hypothesis of a token that does not exist, whatever the source and the options.
LIES = """\
<ir_version: 10, opset_import: ["" : 23]>
lies (int64[batch, source] source, int64 beam_size, int64 n_best, float length_penalty, float max_length_factor,
      int64 max_length_offset) => (int64[1, 1, 1] tokens, int64[1, 1] lengths, float[1, 1] scores)
<int64[1, 1, 1] token = {80}, int64[1, 1] length = {1}, float[1, 1] score = {-1}>
{
  tokens = Identity (token)
  lengths = Identity (length)
  scores = Identity (score)
}
"""


def main() -> None:
    """Write all engines anew."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    sides = ("source", "target")
    _write("copy", copy_model(), _described("translation", {side: _text() for side in sides}, defaults=DEFAULTS))
    ids = {side: {**_text(), "tokenizer": None} for side in sides}
    _write("lies", _model(LIES, DEFAULTS), _described("translation", ids, defaults=DEFAULTS))
    _write("format_2", _old_model(), {**_described("translation", ids, defaults=OLD_DEFAULTS), "format": 2})
    _write("format_1", _old_model(), _FORMAT_1)
    _write("generate", _model(GENERATE, SAMPLING), _described("language_model", {"text": _text()}, defaults=SAMPLING))
    labels = {"labels": ["north", "east", "south", "west"]}
    _write("tag", _model(TAG), _described("tagging", {"words": _text(longest=12)}, positions="words", **labels))
    pair = {"first": _text(), "second": _text(longest=9)}
    _write("pair", _model(PAIR), _described("classification", pair, **labels))
    _write("arrays", _model(ARRAYS), _described("tagging", _ARRAYS, positions="frames", **labels))


def _text(longest: int | None = None) -> dict[str, object]:
    return {
        "kind": "tokens", "vocabulary": 80, "axes": {}, "of": None, "longest": longest, "tokenizer": "tokenizer.model",
    }  # fmt: skip


_ARRAYS: dict[str, object] = {
    "frames": {"kind": "vectors", "axes": {"features": 2}, "of": None, "longest": 5},
    "links": {"kind": "edges", "axes": {}, "of": "frames", "longest": None},
    "global": {"kind": "values", "axes": {"sizes": 3}, "of": None, "longest": None},
}

_COMMON: dict[str, object] = {
    "format": 3, "xformc": "0.1.0", "target": "portable", "precision": "float32", "tokens": TOKENS, "parameters": 0,
    "weights": "trained",
}  # fmt: skip

_FORMAT_1: dict[str, object] = {
    **_COMMON, "format": 1, "name": "format_1", "task": "translation", "vocabulary": {"source": 80, "target": 80},
    "tokenizer": None, "max_source_length": 6, "max_target_length": None, "defaults": OLD_DEFAULTS,
}  # fmt: skip


def _described(task: str, inputs: Mapping[str, object], **others: Any) -> dict[str, object]:
    return {
        **_COMMON, "name": task, "task": task, "inputs": inputs, "labels": None, "positions": None, "defaults": None,
        **others,
    }  # fmt: skip


def _model(text: str, defaults: Mapping[str, float] | None = None) -> onnx.ModelProto:
    model = parser.parse_model(text)
    types = {item.name: item.type.tensor_type.elem_type for item in model.graph.input}
    for name, value in (defaults or {}).items():
        model.graph.initializer.append(onnx.helper.make_tensor(name, types[name], [], [value]))
    onnx.checker.check_model(model, full_check=True)
    return model


def _old_model() -> onnx.ModelProto:
    """The model that copies, as older versions named its inputs."""
    model = copy_model()
    for value in (*model.graph.input, *model.graph.initializer):
        value.name = value.name.replace("beam_size", "beam_width")
    return model


def _write(name: str, model: onnx.ModelProto, manifest: Mapping[str, object]) -> None:
    folder = FOLDER / name
    folder.mkdir(parents=True)
    onnx.save(model, folder / "model.onnx")
    if '"tokenizer.model"' in json.dumps(manifest):
        # Only one has the normalization of real engines, whose table is 240 kB.
        rule = "nmt_nfkc" if name == "copy" else "identity"
        with (folder / "tokenizer.model").open("wb") as handle:
            sentencepiece.SentencePieceTrainer.Train(
                sentence_iterator=iter(SENTENCES * 4), model_writer=handle, model_type="bpe", vocab_size=80,
                pad_id=0, unk_id=1, bos_id=2, eos_id=3, hard_vocab_limit=False, minloglevel=2,
                normalization_rule_name=rule,
            )  # fmt: skip
    write_manifest(folder, dict(manifest))


if __name__ == "__main__":
    main()
