"""Writes the engines of the conformance cases: `python -m tests.conformance.engines`. Their models compute exactly.

Each is a hand-made ONNX model with the interface of an engine and results that follow from its inputs, so that a
runtime can be tested without the compiler, on any machine. They are kept in engines/: a runtime needs nothing else.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
import sentencepiece
from onnx import parser
from tiny_engine import DEFAULTS, SENTENCES, copy_model, labelled, result, text_input, write_manifest, written

from tests.conformance.tales import (
    CONTINUE_OF_TALES,
    EDIT_DEFAULTS,
    EDIT_INPUTS,
    EDITED,
    GENERATE,
    PROMPT_OF_TALES,
    TALES,
)
from tests.conformance.vocabularies import byte_pairs, codes
from tests.sounds import wav
from xformc.format.interfaces import RESULTS

FOLDER = Path(__file__).parent / "engines"
SOUND_FILES = Path(__file__).parent / "sounds"

SAMPLING = {"temperature": 0.5, "top_k": 0, "top_p": 1.0, "max_new_tokens": 4}

# As the continuations of prompts, which are empty, for words, whose ids count instead; their sum is a result, too.
DRAW = (
    GENERATE.replace("generate (", "draw (int64[batch, words] words, ")
    .replace("float[batch] scores)", "float[batch] scores, float[batch] total)")
    .replace(
        "  start = ",
        "  of_words = ReduceSum <keepdims = 1> (words, last)\n  with_words = Add (sum, of_words)\n  start = ",
    )
    .replace("Add (sum, seed_2)", "Add (with_words, seed_2)")
    .replace("}\n", "  alone = Squeeze (of_words, last)\n  total = Cast <to = 1> (alone)\n}\n")
)

# The attention of a token that was read on one of the source: the product of their ids modulo 7.
ATTENTION = """\
<ir_version: 10, opset_import: ["" : 23]>
attention (int64[batch, source] source, int64[batch, target] target) => (float[batch, target, source] attention)
<int64[1] one = {1}, int64[1] two = {2}, int64 seven = {7}>
{
  across = Unsqueeze (source, one)
  down = Unsqueeze (target, two)
  products = Mul (across, down)
  rest = Mod (products, seven)
  attention = Cast <to = 1> (rest)
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

# Results of each word: a tag as above, marks that hold for odd ids, and a vector. Of the whole: topics with the
# probabilities 1/2, 1/4 and 3/4, and the sum of the ids.
HEADS = """\
<ir_version: 10, opset_import: ["" : 23]>
heads (int64[batch, words] words) => (float[batch, words, 4] tags, float[batch, words, 2] marks, float[batch, 3] topics,
       float[batch] total, float[batch, words, 2] trace)
<int64[1] last = {1}, int64 four = {4}, int64 two = {2}, float[2] values = {0.125, 0.625}, int64[1] end = {-1},
 float[1, 1, 2] half = {0.5, 0.25}, float[1, 3] thresholds = {0.5, 0.25, 0.75}, int64[1, 1, 2] turn = {0, 1}>
{
  label = Mod (words, four)
  tags = OneHot <axis = -1> (label, four, values)
  each = Unsqueeze (words, end)
  turned = Add (each, turn)
  parity = Mod (turned, two)
  odd = Cast <to = 1> (parity)
  marks = Mul (odd, half)
  sum = ReduceSum <keepdims = 1> (words, last)
  total_1 = Cast <to = 1> (sum)
  total = Squeeze (total_1, last)
  nothing = Sub (total_1, total_1)
  topics = Add (nothing, thresholds)
  numbers = Cast <to = 1> (each)
  trace = Mul (numbers, half)
}
"""

# The caption of an image is its six numbers, without their signs, as ids, up to the limit. It costs its rank.
CAPTION = """\
<ir_version: 10, opset_import: ["" : 23]>
caption (float[batch, 2, 3] image, int64 beam_size, int64 n_best, float length_penalty, float max_length_factor,
         int64 max_length_offset)
  => (int64[batch, n, length] tokens, int64[batch, n] lengths, float[batch, n] scores, float[batch, 1] bright,
      float[batch, 2] topics)
<int64[2] flat = {0, -1}, int64[1] first = {0}, int64[1] last = {1}, int64 zero = {0}, int64 one = {1},
 int64[1] least = {1}, int64[1] most = {6}, int64[1] third = {2}, float[1, 2] thresholds = {0.5, 0.25}>
{
  row = Reshape (image, flat)
  signed = Cast <to = 7> (row)
  ids = Abs (signed)
  offset = Unsqueeze (max_length_offset, first)
  within = Min (offset, most)
  length = Max (within, least)
  cut = Slice (ids, first, length, last)
  single = Unsqueeze (cut, last)
  n = Unsqueeze (n_best, first)
  copies = Concat <axis = 0> (least, n, least)
  tokens = Tile (single, copies)
  filled = ReduceMax <keepdims = 0> (tokens, third)
  nothing = Sub (filled, filled)
  lengths = Add (nothing, length)
  ranks = Range (zero, n_best, one)
  cost = Add (nothing, ranks)
  costs = Cast <to = 1> (cost)
  scores = Neg (costs)
  bright = ReduceSum <keepdims = 1> (row, last)
  none = Sub (bright, bright)
  topics = Add (none, thresholds)
}
"""

# Two texts are joined by counting on from the sum of their ids, for as many tokens as the first has, up to the limit.
JOIN = """\
<ir_version: 10, opset_import: ["" : 23]>
join (int64[batch, first] first, int64[batch, second] second, int64 beam_size, int64 n_best, float length_penalty,
      float max_length_factor, int64 max_length_offset)
  => (int64[batch, n, length] tokens, int64[batch, n] lengths, float[batch, n] scores)
<int64[1] last = {1}, int64[1] start = {0}, int64 zero = {0}, int64 one = {1}, int64 vocabulary = {36},
 int64 special = {4}, int64[1] least = {1}>
{
  is_token = Cast <to = 9> (first)
  counted = Cast <to = 7> (is_token)
  positions = ReduceSum <keepdims = 1> (counted, last)
  numbers = Cast <to = 1> (positions)
  scaled = Mul (numbers, max_length_factor)
  whole = Cast <to = 7> (scaled)
  limit = Add (whole, max_length_offset)
  shorter = Min (limit, positions)
  length = Max (shorter, least)
  longest = ReduceMax <keepdims = 0> (length)
  steps = Range (zero, longest, one)
  inside = Less (steps, length)
  sum_1 = ReduceSum <keepdims = 1> (first, last)
  sum_2 = ReduceSum <keepdims = 1> (second, last)
  sum = Add (sum_1, sum_2)
  all = Add (sum, steps)
  within = Mod (all, vocabulary)
  written = Add (within, special)
  kept = Where (inside, written, zero)
  single = Unsqueeze (kept, last)
  n = Unsqueeze (n_best, start)
  copies = Concat <axis = 0> (least, n, least)
  tokens = Tile (single, copies)
  copies_2 = Concat <axis = 0> (least, n)
  lengths = Tile (length, copies_2)
  ranks = Range (zero, n_best, one)
  cost = Add (lengths, ranks)
  costs = Cast <to = 1> (cost)
  scores = Neg (costs)
}
"""

# As JOIN, but the tokens of each text are one higher than those of the text before it, and the ids of the prefix count
# as those of the first text do. So do the numbers of the controls, less what they are by default.
JUDGED = (
    JOIN.replace(
        "join (",
        f"judged ({EDIT_INPUTS}int64[rows, begun] prefix, int64 min_length, float length_penalty_kind, "
        "int64 stop_rule, float patience, ",
    )
    .replace("<int64[1] last", "<float unit = {1}, float four = {4}, int64[1] last")
    .replace("{\n  is_token =", f"{{\n{EDITED}  is_token =")
    .replace(
        "  sum = Add (sum_1, sum_2)",
        "  sum_3 = Add (sum_1, sum_2)\n  sum_4 = ReduceSum <keepdims = 1> (prefix, last)\n"
        "  sum_5 = Add (sum_4, min_length)\n  sum_6 = Add (sum_3, sum_5)\n  sum_7 = Add (sum_6, stop_rule)\n"
        "  kind = Sub (four, length_penalty_kind)\n  more = Add (kind, patience)\n  offset_2 = Cast <to = 7> (more)\n"
        "  sum_8 = Add (sum_7, offset_2)\n  sum = Add (sum_8, edits)",
    )
    .replace(" ranks = Range (zero, n_best, one)\n", "")
    .replace(
        "  tokens = Tile (", "  ranks = Range (zero, n_best, one)\n  above = Unsqueeze (ranks, last)\n  same = Tile ("
    )
    .replace("  copies_2 =", "  tokens = Add (same, above)\n  copies_2 =")
)

# Results of a joined text: the sum of its ids, which each position of the first text adds to its own, and which is even
# or odd.
OF_JOINED = """\
<ir_version: 10, opset_import: ["" : 23]>
of_joined (int64[batch, first] first, int64[batch, second] second, int64[batch, joined] joined)
  => (float[batch] total, float[batch, first] shifted, float[batch, 2] parity)
<int64[1] last = {1}, int64 two = {2}, float one = {1}>
{
  sum = ReduceSum <keepdims = 1> (joined, last)
  number = Cast <to = 1> (sum)
  total = Squeeze (number, last)
  ids = Cast <to = 1> (first)
  shifted = Add (ids, number)
  rest = Mod (sum, two)
  odd = Cast <to = 1> (rest)
  even = Sub (one, odd)
  parity = Concat <axis = 1> (even, odd)
}
"""

# The transcript of frames is the number of them, as one token; each frame has the sum of its numbers.
SPEECH = """\
<ir_version: 10, opset_import: ["" : 23]>
speech (float[batch, frames, 2] frames, bool[batch, frames] frames_mask, int64 beam_size, int64 n_best,
        float length_penalty, float max_length_factor, int64 max_length_offset)
  => (int64[batch, n, length] tokens, int64[batch, n] lengths, float[batch, n] scores, float[batch, frames] energy)
<int64[1] last = {1}, int64[1] third = {2}, int64[1] start = {0}, int64[1] least = {1}, int64 special = {4}>
{
  counted = Cast <to = 7> (frames_mask)
  positions = ReduceSum <keepdims = 1> (counted, last)
  token = Add (positions, special)
  single = Unsqueeze (token, last)
  n = Unsqueeze (n_best, start)
  copies = Concat <axis = 0> (least, n, least)
  tokens = Tile (single, copies)
  copies_2 = Concat <axis = 0> (least, n)
  many = Tile (positions, copies_2)
  lengths = Div (many, many)
  costs = Cast <to = 1> (many)
  scores = Neg (costs)
  energy = ReduceSum <keepdims = 0> (frames, third)
}
"""

# Two texts of a sound count its positions; the second is impossible if their number is odd. The score of the first is
# the sum of the samples, and each position has the sum of its own.
SOUNDS = """\
<ir_version: 10, opset_import: ["" : 23]>
sounds (float[batch, wave, 2] wave, bool[batch, wave] wave_mask)
  => (int64[batch, 2, length] text_tokens, int64[batch, 2] text_lengths, float[batch, 2] text_scores,
      float[batch, wave] energy)
<int64[1] last = {1}, int64[1] third = {2}, int64[1, 2, 2] written = {4, 5, 6, 0}, int64[1, 2, 2] counts = {1, 1, 1, 0},
 int64[1, 2] sizes = {2, 1}, int64 two = {2}, float[1, 2] penalty = {0, 200000000}>
{
  counted = Cast <to = 7> (wave_mask)
  positions = ReduceSum <keepdims = 1> (counted, last)
  each = Unsqueeze (positions, third)
  times = Mul (each, counts)
  text_tokens = Add (times, written)
  nothing = Sub (positions, positions)
  text_lengths = Add (nothing, sizes)
  energy = ReduceSum <keepdims = 0> (wave, third)
  sum = ReduceSum <keepdims = 1> (energy, last)
  parity = Mod (positions, two)
  odd = Cast <to = 1> (parity)
  lost = Mul (odd, penalty)
  text_scores = Sub (sum, lost)
}
"""

# Each word has 100 times its id plus that of its kind.
FACTORS = """\
<ir_version: 10, opset_import: ["" : 23]>
factors (int64[batch, words] words, int64[batch, words] kinds) => (float[batch, words] sums)
<int64 hundred = {100}>
{
  many = Mul (words, hundred)
  all = Add (many, kinds)
  sums = Cast <to = 1> (all)
}
"""

# Each frame has the sum of its numbers times its gain, plus its mark.
GAINS = """\
<ir_version: 10, opset_import: ["" : 23]>
gains (float[batch, frames, 2] frames, bool[batch, frames] frames_mask, float[batch, frames, 1] gains,
       int64[batch, frames] marks) => (float[batch, frames] levels)
<int64[1] last = {2}>
{
  sums = ReduceSum <keepdims = 0> (frames, last)
  factors = Squeeze (gains, last)
  products = Mul (sums, factors)
  numbers = Cast <to = 1> (marks)
  mask = Cast <to = 1> (frames_mask)
  all = Add (products, numbers)
  levels = Mul (all, mask)
}
"""

# As the transcripts of frames, which are also heard by CTC.
DICTATION = (
    SPEECH.replace("speech (", "dictation (")
    .replace(
        "float[batch, frames] energy)",
        "float[batch, frames] energy,\n      int64[batch, 1, 1] heard_tokens, int64[batch, 1] heard_lengths, "
        "float[batch, 1] heard_scores)",
    )
    .replace(
        "  energy = ",
        "  heard_tokens = Identity (single)\n  heard_lengths = Div (positions, positions)\n"
        "  heard_scores = Cast <to = 1> (positions)\n  energy = ",
    )
)

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
    _write("copy", copy_model(), _writing("translation", {side: _text() for side in sides}, DEFAULTS))
    ids = {side: {**_text(), "tokenizer": None} for side in sides}
    _write("lies", _model(LIES, DEFAULTS), _writing("translation", ids, DEFAULTS))
    _write("generate", _model(GENERATE, SAMPLING), _writing("language_model", {"text": _text()}, SAMPLING))
    _write_tales("tales", _text(), [5, 7])
    _write_tales("bytes", {**_text(), "vocabulary": 271, "tokenizer": "tokenizer.json"}, [])
    sides_of_codes = {side: {**_text(), "vocabulary": 40, "tokenizer": "tokenizer.json"} for side in sides}
    coded = _writing("translation", sides_of_codes, DEFAULTS)
    _write("codes", copy_model(), coded, {"alignments.onnx": _model(ATTENTION)})
    aligned = _writing("translation", {side: _text() for side in sides}, DEFAULTS)
    _write("aligned", copy_model(), aligned, {"alignments.onnx": _model(ATTENTION)})
    winds = ["north", "east", "south", "west"]
    _write("tag", _model(TAG), _declared("tagging", {"words": _text(longest=12)}, labelled(winds, "words")))
    pair = {"first": _text(), "second": _text(longest=9)}
    _write("pair", _model(PAIR), _declared("classification", pair, labelled(winds)))
    _write("heads", _model(HEADS), _declared("prediction", {"words": _text(longest=12)}, _HEADS))
    inputs, results = {"image": _IMAGE, "caption": _text()}, {**written("caption", 80), **_OF_IMAGES}
    _write("caption", _model(CAPTION, DEFAULTS), _declared("transcription", inputs, results, DEFAULTS))
    joined = written("joined", 80)
    inputs = {"first": _text(), "second": _text(longest=9), "joined": _text()}
    _write("join", _model(JOIN, DEFAULTS), _declared("transcription", inputs, joined, DEFAULTS))
    _write_judged(inputs, joined)
    drawn = {**written("drawn", 80), "total": result("numbers", "total")}
    inputs = {"words": _text(longest=12), "drawn": _text()}
    _write("draw", _model(DRAW, SAMPLING), _declared("sampling", inputs, drawn, SAMPLING))
    words = {**written("words", 80), "energy": result("numbers", "energy", positions="frames")}
    inputs = {"frames": _ARRAYS["frames"], "words": _text()}
    _write("speech", _model(SPEECH, DEFAULTS), _declared("transcription", inputs, words, DEFAULTS))
    heard = result("ctc", *_texts("heard"), axes={"vocabulary": 80}, tokenizer="tokenizer.model")
    results = {**words, "heard": {**heard, "settings": {"beam_size": 1}}}
    _write("dictation", _model(DICTATION, DEFAULTS), _declared("transcription", inputs, results, DEFAULTS))
    text = result("ctc", *_texts("text"), axes={"vocabulary": 80}, tokenizer="tokenizer.model")
    results = {"text": {**text, "settings": {"beam_size": 2}}, "energy": result("numbers", "energy", positions="wave")}
    _write("sounds", _model(SOUNDS), _declared("prediction", {"wave": _WAVE}, results))
    along = {"words": _text(longest=12), "kinds": {**_text(), "of": "words"}}
    sums = {"sums": result("numbers", "sums", positions="words", settings={"each": "token"})}
    _write("factors", _model(FACTORS), _declared("prediction", along, sums))
    frames = {"frames": _ARRAYS["frames"], "gains": _GAINS, "marks": {**_text(), "of": "frames", "tokenizer": None}}
    levels = {"levels": result("numbers", "levels", positions="frames")}
    _write("gains", _model(GAINS), _declared("prediction", frames, levels))
    write_sounds()
    _write("arrays", _model(ARRAYS), _declared("tagging", _ARRAYS, labelled(winds, "frames")))


def _write_judged(inputs: Mapping[str, object], joined: Mapping[str, object]) -> None:
    judged: dict[str, object] = {
        **joined,
        "total": result("numbers", "total", of="joined"),
        "shifted": result("numbers", "shifted", positions="first", settings={"each": "token"}, of="joined"),
        "parity": result("labels", "parity", of="joined", labels=["even", "odd"], axes={"parity": 2}, settings=_ONE),
    }
    controls = {"min_length": 0, "length_penalty_kind": 5.0, "stop_rule": 0, "patience": 1.0}
    numbers = {**DEFAULTS, **controls, **EDIT_DEFAULTS}
    defaults = {**numbers, "length_penalty_kind": "gnmt", "stop_rule": "first", "suppress_tokens": []}
    described = {**_declared("transcription", inputs, judged, defaults), "controls": ["prefix"]}
    model = _model(JUDGED, numbers)
    _set_default(model, "prefix", np.zeros((1, 0), np.int64))
    _set_default(model, "suppress_tokens", np.zeros(0, np.int64))
    _write("judged", model, described, {"results.onnx": _model(OF_JOINED)})


def _write_tales(name: str, text: Mapping[str, object], suppressed: Sequence[int]) -> None:
    defaults = {**SAMPLING, **EDIT_DEFAULTS}
    described = _writing("language_model", {"text": text}, {**defaults, "suppress_tokens": suppressed})
    model, following = _model(TALES, defaults), _model(CONTINUE_OF_TALES)
    _set_default(model, "suppress_tokens", np.zeros(0, np.int64))
    first = _model(PROMPT_OF_TALES)
    for one in (first, following):
        for names in (*(node.input for node in one.graph.node), *(node.output for node in one.graph.node)):
            names[:] = [name.replace("step_", "step/") for name in names]
        for value in (*one.graph.input, *one.graph.output):
            value.name = value.name.replace("step_", "step/")
    _write(name, model, described, {"prompt.onnx": first, "continue.onnx": following})


def write_sounds() -> None:
    """Write .wav files of a few samples, in every coding, and damaged ones."""
    SOUND_FILES.mkdir(exist_ok=True)
    samples = np.array([0.5, -0.25, 0.125, 0.75, -1.0, 0.0625, 0.25], np.float32)
    both = np.stack([samples, samples[::-1]], axis=1)
    files = {
        "pcm_16": wav(samples), "pcm_24": wav(samples, bits=24), "pcm_32": wav(samples, bits=32),
        "float": wav(samples, code=3, bits=32), "stereo": wav(both), "extensible": wav(samples, extensible=True),
        "three": wav(np.stack([samples / 3] * 3, axis=1), code=3, bits=32), "rate": wav(samples, rate=44_100),
        "long": wav(np.resize(samples, 13)), "eight": wav(samples[:4]), "cut": wav(samples)[:-3], "none": b"",
        "text": b"hello", "endless": wav(samples[:1])[:-6] + b"\xff" * 6,
        "nan": wav(np.full_like(samples, np.nan), code=3, bits=32),
        "channels": wav(samples).replace(b"\x01\0\x01\0", b"\x01\0\xff\xff"),
    }  # fmt: skip
    for name, content in files.items():
        (SOUND_FILES / f"{name}.wav").write_bytes(content)


def _texts(name: str) -> tuple[str, ...]:
    return tuple(f"{name}_{output}" for output in RESULTS)


def _declared(
    task: str, inputs: Mapping[str, object], results: Mapping[str, object], defaults: object = None
) -> dict[str, object]:
    return {**_COMMON, "name": task, "task": task, "inputs": inputs, "results": results, "defaults": defaults}


_TOPICS: dict[str, Any] = {"settings": {"several": True}, "labels": ["sea", "sky"], "axes": {"topics": 2}}
_ONE: dict[str, Any] = {"several": False}
_HEADS: dict[str, object] = {
    "tags": result(
        "labels", "tags", axes={"tags": 4}, positions="words", labels=["north", "east", "south", "west"],
        settings={"several": False},
    ),
    "marks": result("labels", "marks", **{**_TOPICS, "positions": "words"}),
    "topics": result(
        "labels", "topics", **{**_TOPICS, "labels": ["war", "peace", "größe"], "axes": {"topics": 3}},
    ),
    "total": result("numbers", "total"),
    "trace": result("vectors", "trace", axes={"size": 2}, positions="words", settings={"normalize": True}),
}  # fmt: skip
_IMAGE: dict[str, object] = {
    "kind": "values", "axes": {"height": 2, "width": 3}, "of": None, "longest": None, "tokenizer": None,
}  # fmt: skip
_OF_IMAGES: dict[str, object] = {
    "brightness": result("numbers", "bright", axes={"one": 1}),
    "topics": result("labels", "topics", **_TOPICS),
}


def _text(longest: int | None = None) -> dict[str, object]:
    return {**text_input(80), "longest": longest}


_ARRAYS: dict[str, object] = {
    "frames": {"kind": "vectors", "axes": {"features": 2}, "of": None, "longest": 5, "rate": None},
    "links": {"kind": "edges", "axes": {}, "of": "frames", "longest": None, "rate": None},
    "global": {"kind": "values", "axes": {"sizes": 3}, "of": None, "longest": None, "rate": None},
}

_GAINS: dict[str, object] = {"kind": "vectors", "axes": {"one": 1}, "of": "frames", "longest": None, "rate": None}
_WAVE: dict[str, object] = {"kind": "vectors", "axes": {"hop": 2}, "of": None, "longest": 6, "rate": 8000}

_COMMON: dict[str, object] = {
    "format": 1, "xformc": "0.1.0", "target": "portable", "precision": "float32", "parameters": 0, "weights": "trained",
}  # fmt: skip


def _writing(task: str, inputs: Mapping[str, Any], defaults: object) -> dict[str, object]:
    """A translation or language model, which writes its last input."""
    *_, (name, item) = inputs.items()
    return _declared(task, inputs, written(name, item["vocabulary"]), defaults)


def _model(text: str, defaults: Mapping[str, float] | None = None) -> onnx.ModelProto:
    model = parser.parse_model(text)
    types = {item.name: item.type.tensor_type.elem_type for item in model.graph.input}
    for name, value in (defaults or {}).items():
        model.graph.initializer.append(onnx.helper.make_tensor(name, types[name], [], [value]))
    onnx.checker.check_model(model, full_check=True)
    return model


def _set_default(model: onnx.ModelProto, name: str, value: np.ndarray) -> None:
    model.graph.initializer.append(onnx.numpy_helper.from_array(value, name))


def _write(
    name: str,
    model: onnx.ModelProto,
    manifest: Mapping[str, object],
    others: Mapping[str, onnx.ModelProto] = MappingProxyType({}),
) -> None:
    folder = FOLDER / name
    folder.mkdir(parents=True)
    for file, content in {"model.onnx": model, **others}.items():
        onnx.save(content, folder / file)
    if '"tokenizer.json"' in json.dumps(manifest):
        content = codes() if name == "codes" else byte_pairs()
        (folder / "tokenizer.json").write_text(json.dumps(content, ensure_ascii=False))
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
