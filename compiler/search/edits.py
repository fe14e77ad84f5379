"""Edits of the scores of tokens, as ONNX operators: banned and penalised tokens, as docs/search.md defines them."""

from dataclasses import dataclass

from xformc.compiler.graph.rules import OnnxEmitter
from xformc.compiler.search.carried import NEVER

_FLOAT, _END = 1, [2**31]


@dataclass(frozen=True)
class EditInputs:
    """The ONNX names of the options that edit scores: a list of tokens, and numbers."""

    suppress_tokens: str
    no_repeat_ngram_size: str
    repetition_penalty: str
    presence_penalty: str
    frequency_penalty: str

    @property
    def names(self) -> tuple[str, ...]:
        """All of them, in the order of the kernels' inputs."""
        penalties = (self.repetition_penalty, self.presence_penalty, self.frequency_penalty)
        return (self.suppress_tokens, self.no_repeat_ngram_size, *penalties)


@dataclass(frozen=True)
class Edits:
    """The options, and whether any of them is in use, as a scalar."""

    inputs: EditInputs
    used: str


def emit_edits(onnx: OnnxEmitter, inputs: EditInputs) -> Edits:
    """Write whether any of the options is in use."""
    used = onnx.op("Greater", onnx.op("Size", inputs.suppress_tokens), 0)
    used = onnx.op("Or", used, onnx.op("Greater", inputs.no_repeat_ngram_size, 0))
    none = ((inputs.repetition_penalty, 1.0), (inputs.presence_penalty, 0.0), (inputs.frequency_penalty, 0.0))
    for name, value in none:
        used = onnx.op("Or", used, onnx.op("Not", onnx.op("Equal", name, value)))
    return Edits(inputs, used)


def edit_scores(onnx: OnnxEmitter, scores: str, texts: str, inputs: EditInputs) -> str:
    """The scores [rows, vocabulary] of the tokens that may follow the texts [rows, length], edited."""
    none = onnx.op("Expand", 0.0, onnx.op("Shape", scores))
    counts = _scatter(onnx, none, texts, onnx.op("Expand", 1.0, onnx.op("Shape", texts)))
    has = onnx.op("Greater", counts, 0.0)
    likely = onnx.op("Mul", scores, inputs.repetition_penalty)
    unlikely = onnx.op("Div", scores, inputs.repetition_penalty)
    repeated = onnx.op("Where", onnx.op("Less", scores, 0.0), likely, unlikely)
    often = onnx.op("Mul", counts, inputs.frequency_penalty)
    penalty = onnx.op("Add", onnx.op("Mul", onnx.op("Cast", has, to=_FLOAT), inputs.presence_penalty), often)
    penalised = onnx.op("Sub", onnx.op("Where", has, repeated, scores), penalty)
    banned = onnx.op("Or", _repeats(onnx, none, texts, inputs), _suppressed(onnx, none, inputs))
    return onnx.op("Where", banned, NEVER, penalised)


def _repeats(onnx: OnnxEmitter, none: str, texts: str, inputs: EditInputs) -> str:
    """The tokens [rows, vocabulary] that would end an n-gram which the text [rows, length] has.

    A size of 0, or above the length, is made one more than the length, of which the text has no n-gram.
    """
    length, size = onnx.op("Shape", texts, start=1), onnx.op("Unsqueeze", inputs.no_repeat_ngram_size, [0])
    fits = onnx.op("And", onnx.op("Greater", size, 0), onnx.op("LessOrEqual", size, length))
    size = onnx.op("Where", fits, size, onnx.op("Add", length, 1))
    before = onnx.op("Sub", size, 1)
    starts = onnx.op("Range", 0, onnx.op("Squeeze", onnx.op("Sub", length, before)), 1)
    places = onnx.op("Add", onnx.op("Unsqueeze", starts, [1]), onnx.op("Range", 0, onnx.op("Squeeze", before), 1))
    begun = onnx.op("Gather", texts, places, axis=1)
    newest = onnx.op("Slice", texts, onnx.op("Sub", length, before), _END, [1])
    differs = onnx.op("Not", onnx.op("Equal", begun, onnx.op("Unsqueeze", newest, [1])))
    differences = onnx.op("ReduceSum", onnx.op("Cast", differs, to=_FLOAT), [2], keepdims=0)
    found = onnx.op("Cast", onnx.op("Equal", differences, 0.0), to=_FLOAT)
    return onnx.op("Greater", _scatter(onnx, none, onnx.op("Slice", texts, before, _END, [1]), found), 0.0)


def _suppressed(onnx: OnnxEmitter, none: str, inputs: EditInputs) -> str:
    """The suppressed tokens, [1, vocabulary]."""
    tokens = onnx.op("Unsqueeze", inputs.suppress_tokens, [0])
    vocabulary = onnx.op("Concat", [1], onnx.op("Shape", none, start=1), axis=0)
    ones = onnx.op("Expand", 1.0, onnx.op("Shape", tokens))
    return onnx.op("Greater", _scatter(onnx, onnx.op("Expand", 0.0, vocabulary), tokens, ones), 0.0)


def _scatter(onnx: OnnxEmitter, into: str, tokens: str, numbers: str) -> str:
    """Add numbers [rows, any] at tokens [rows, any] to [rows, vocabulary]."""
    return onnx.op("ScatterElements", into, tokens, numbers, axis=1, reduction="add")
