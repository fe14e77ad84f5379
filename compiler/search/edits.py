"""Edits of the scores of tokens, as ONNX operators: banned and penalised tokens, as docs/search.md defines them."""

from dataclasses import dataclass, replace

from xformc.compiler.graph.rules import OnnxEmitter
from xformc.compiler.search.carried import NEVER

_FLOAT = 1


@dataclass(frozen=True)
class EditInputs:
    """The ONNX names of the options that edit scores: lists of tokens [rows, any], padded with -1, and numbers [rows].

    There is a row for each text, or one for all.
    """

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
    """The options, whether any of them is in use, as a scalar, and for which texts, [rows]."""

    inputs: EditInputs
    used: str
    rows: str


def emit_edits(onnx: OnnxEmitter, inputs: EditInputs) -> Edits:
    """Write whether any of the options is in use."""
    tokens = onnx.op("Cast", onnx.op("GreaterOrEqual", inputs.suppress_tokens, 0), to=_FLOAT)
    rows = onnx.op("Greater", onnx.op("ReduceSum", tokens, [1], keepdims=0), 0.0)
    rows = onnx.op("Or", rows, onnx.op("Greater", inputs.no_repeat_ngram_size, 0))
    none = ((inputs.repetition_penalty, 1.0), (inputs.presence_penalty, 0.0), (inputs.frequency_penalty, 0.0))
    for name, value in none:
        rows = onnx.op("Or", rows, onnx.op("Not", onnx.op("Equal", name, value)))
    used = onnx.op("Greater", onnx.op("ReduceMax", onnx.op("Cast", rows, to=_FLOAT), keepdims=0), 0.0)
    return Edits(inputs, used, rows)


def edits_at_first(onnx: OnnxEmitter, edits: Edits, tokens: tuple[int, ...], here: str) -> Edits:
    """The edits of a step in which these tokens are suppressed, too, in the texts `here` [batch]."""
    suppressed = suppressed_at_first(onnx, edits.inputs.suppress_tokens, tokens, here)
    used = onnx.op("Greater", onnx.op("ReduceMax", onnx.op("Cast", here, to=_FLOAT), keepdims=0), 0.0)
    inputs = replace(edits.inputs, suppress_tokens=suppressed)
    return Edits(inputs, onnx.op("Or", edits.used, used), onnx.op("Or", edits.rows, here))


def suppressed_at_first(onnx: OnnxEmitter, suppressed: str, tokens: tuple[int, ...], here: str) -> str:
    """The suppressed tokens [rows, any] of a step, [batch, any]: with these ones in the texts `here` [batch]."""
    rows = onnx.op("Concat", onnx.op("Shape", here), onnx.op("Shape", suppressed, start=1), axis=0)
    more = onnx.op("Where", onnx.op("Unsqueeze", here, [1]), onnx.op("Unsqueeze", [*tokens], [0]), -1)
    return onnx.op("Concat", onnx.op("Expand", suppressed, rows), more, axis=1)


def edit_scores(onnx: OnnxEmitter, scores: str, texts: str, inputs: EditInputs, *, padded: bool = False) -> str:
    """The scores [rows, vocabulary] of the tokens that may follow the texts [rows, length], edited.

    The options have as many rows, or one. `padded`: shorter texts have -1 in front, which no n-gram of tokens has.
    """
    repetition, presence, frequency = (
        onnx.op("Unsqueeze", name, [1])
        for name in (inputs.repetition_penalty, inputs.presence_penalty, inputs.frequency_penalty)
    )
    none = onnx.op("Expand", 0.0, onnx.op("Shape", scores))
    if padded:
        each = onnx.op("Cast", onnx.op("GreaterOrEqual", texts, 0), to=_FLOAT)
    else:
        each = onnx.op("Expand", 1.0, onnx.op("Shape", texts))
    counts = _scatter(onnx, none, texts, each)
    has = onnx.op("Greater", counts, 0.0)
    likely, unlikely = onnx.op("Mul", scores, repetition), onnx.op("Div", scores, repetition)
    repeated = onnx.op("Where", onnx.op("Less", scores, 0.0), likely, unlikely)
    often = onnx.op("Mul", counts, frequency)
    penalty = onnx.op("Add", onnx.op("Mul", onnx.op("Cast", has, to=_FLOAT), presence), often)
    penalised = onnx.op("Sub", onnx.op("Where", has, repeated, scores), penalty)
    banned = onnx.op("Or", _repeats(onnx, none, texts, inputs, padded=padded), _suppressed(onnx, none, inputs))
    return onnx.op("Where", banned, NEVER, penalised)


def _repeats(onnx: OnnxEmitter, none: str, texts: str, inputs: EditInputs, *, padded: bool) -> str:
    """The tokens [rows, vocabulary] that would end an n-gram which the text [rows, length] has.

    The tokens before each token are compared with the newest of the text, one after the other, as many as the size of
    the row says. A size above the length has none that are all there.
    """
    length, size = onnx.op("Shape", texts, start=1), inputs.no_repeat_ngram_size
    most = onnx.op("Sub", onnx.op("ReduceMax", size, keepdims=1), 1)
    most = onnx.op("Min", onnx.op("Max", most, 0), length)
    back = onnx.op("Range", 1, onnx.op("Add", onnx.op("Squeeze", most), 1), 1)
    places = onnx.op("Sub", onnx.op("Unsqueeze", onnx.op("Range", 0, onnx.op("Squeeze", length), 1), [1]), back)
    before = onnx.op("Gather", texts, onnx.op("Max", places, 0), axis=1)
    newest = onnx.op("Gather", texts, onnx.op("Sub", length, back), axis=1)
    same = onnx.op(
        "And", onnx.op("Equal", before, onnx.op("Unsqueeze", newest, [1])), onnx.op("GreaterOrEqual", places, 0)
    )
    counts = onnx.op("Less", back, onnx.op("Unsqueeze", size, [1, 2]))
    differs = onnx.op("And", onnx.op("Not", same), counts)
    differences = onnx.op("ReduceSum", onnx.op("Cast", differs, to=_FLOAT), [2], keepdims=0)
    found = onnx.op("And", onnx.op("Equal", differences, 0.0), onnx.op("Greater", onnx.op("Unsqueeze", size, [1]), 0))
    if padded:  # a single token needs no tokens before it, so padding must be left out by itself
        found = onnx.op("And", found, onnx.op("GreaterOrEqual", texts, 0))
    return onnx.op("Greater", _scatter(onnx, none, texts, onnx.op("Cast", found, to=_FLOAT)), 0.0)


def _suppressed(onnx: OnnxEmitter, none: str, inputs: EditInputs) -> str:
    """The suppressed tokens, [rows, vocabulary]."""
    tokens = inputs.suppress_tokens
    shape = onnx.op("Concat", onnx.op("Shape", tokens, end=1), onnx.op("Shape", none, start=1), axis=0)
    real = onnx.op("Cast", onnx.op("GreaterOrEqual", tokens, 0), to=_FLOAT)
    return onnx.op("Greater", _scatter(onnx, onnx.op("Expand", 0.0, shape), onnx.op("Max", tokens, 0), real), 0.0)


def _scatter(onnx: OnnxEmitter, into: str, tokens: str, numbers: str) -> str:
    """Add numbers [rows, any] at tokens [rows, any] to [rows, vocabulary]."""
    return onnx.op("ScatterElements", into, tokens, numbers, axis=1, reduction="add")
