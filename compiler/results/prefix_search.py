"""Prefix beam search of CTC in ONNX (Hannun et al. 2014, algorithm 1, without a language model).

A prefix is the tokens written so far. Of each prefix in the beam, the search knows the probability of all alignments
that it has seen, separately for those that end in the blank. At each position a prefix stays as it is, or is extended
by a token; if the extended prefix is in the beam already, both are one. The best `width` prefixes go on. Ties go to a
prefix that stays, then to the better prefix, then to the smaller token.
"""

from dataclasses import dataclass

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.rules import OnnxEmitter, Turn
from xformc.compiler.ops.ctc import BLANK
from xformc.compiler.ops.masks import MASKED, NEVER
from xformc.compiler.results.best_path import INT64, longest

INT32, BOOL = 6, 9

_ROWS = (Axis("batch"), Axis("beam"))
_SCORES, _NUMBERS = Type("float32", _ROWS), Type("int64", _ROWS)
_TYPES = (_SCORES, _SCORES, _NUMBERS, _NUMBERS, Type("int64", (*_ROWS, Axis("length"))))


@dataclass(frozen=True)
class _Beam:
    """The prefixes [batch, beam], best first; entries without a prefix have scores below MASKED.

    blank, token: log probabilities of the alignments that end in the blank, and of the others. last: the last token, or
    the blank. lengths; tokens [batch, beam, length], padded with the blank.
    """

    blank: str
    token: str
    last: str
    lengths: str
    tokens: str

    @property
    def names(self) -> list[str]:
        return [self.blank, self.token, self.last, self.lengths, self.tokens]


def emit_prefix_search(onnx: OnnxEmitter, logits: str, width: int) -> tuple[str, str, str]:
    """The outputs for logits [batch, positions, tokens].

    Returns tokens [batch, width, length], lengths [batch, width] and scores [batch, width], best first: the log
    probability of all alignments that the search has seen. Hypotheses that there are not have the score NEVER.
    """
    scores = onnx.op("LogSoftmax", logits, axis=-1)
    batch = onnx.op("Shape", scores, start=0, end=1)
    flat = onnx.op("Concat", batch, [width], axis=0)
    nothing = onnx.op("Expand", 0, flat)
    first = onnx.op("Expand", [0.0, *[NEVER] * (width - 1)], flat)
    empty = onnx.op("Expand", 0, onnx.op("Concat", flat, [1], axis=0))
    start = _Beam(first, onnx.op("Expand", NEVER, flat), nothing, nothing, empty)

    def body(scope: OnnxEmitter, iteration: str, carried: list[str]) -> Turn:
        frame = scope.op("Gather", scores, iteration, axis=1)
        return scope.op("Identity", True), _advanced(scope, _Beam(*carried), frame, width).names, []

    trips = onnx.op("Squeeze", onnx.op("Shape", scores, start=1, end=2))
    last = _Beam(*onnx.loop(trips, list(zip(_TYPES, start.names, strict=True)), body))
    total = _added(onnx, last.blank, last.token)
    held = onnx.op("Greater", total, MASKED)
    tokens = onnx.op("Where", onnx.op("Unsqueeze", held, [2]), last.tokens, BLANK)
    return tokens, onnx.op("Where", held, last.lengths, 0), onnx.op("Where", held, total, NEVER)


def _advanced(onnx: OnnxEmitter, beam: _Beam, frame: str, width: int) -> _Beam:
    """The beam after a position whose log probabilities are `frame` [batch, tokens]."""
    known = _added(onnx, beam.blank, beam.token)
    blank = onnx.op("Add", known, onnx.op("Slice", frame, [BLANK], [BLANK + 1], [1]))
    repeated = onnx.op("Add", beam.token, onnx.op("GatherElements", frame, beam.last, axis=1))
    extended = _extended(onnx, beam, known, frame)
    same, at_last = _merging(onnx, beam, known, extended)
    merged = onnx.op("ReduceMax", onnx.op("Where", same, at_last, NEVER), [1], keepdims=0)
    token = _added(onnx, repeated, merged)
    removed = onnx.op("Where", same, 2 * NEVER, 0.0)
    places = onnx.op("Expand", onnx.op("Unsqueeze", beam.last, [1]), onnx.op("Shape", removed))
    extended = onnx.op("ScatterElements", extended, places, removed, axis=2, reduction="add")
    stays = _added(onnx, blank, token)
    rest = onnx.op("Reshape", extended, [0, -1])
    found, index = onnx.ops("TopK", 2, onnx.op("Concat", stays, rest, axis=1), [width], axis=1)
    return _chosen(onnx, _Beam(blank, token, beam.last, beam.lengths, beam.tokens), found, index, frame, width)


def _extended(onnx: OnnxEmitter, beam: _Beam, known: str, frame: str) -> str:
    """The scores [batch, beam, tokens] of prefixes extended by a token; one that repeats the last needs a blank."""
    size = onnx.op("Shape", frame, start=1, end=2)
    tokens = onnx.op("Range", 0, onnx.op("Squeeze", size), 1)
    again = onnx.op("Equal", onnx.op("Unsqueeze", beam.last, [2]), tokens)
    before = onnx.op("Where", again, onnx.op("Unsqueeze", beam.blank, [2]), onnx.op("Unsqueeze", known, [2]))
    extended = onnx.op("Add", before, onnx.op("Unsqueeze", frame, [1]))
    return onnx.op("Where", onnx.op("Equal", tokens, BLANK), 2 * NEVER, extended)


def _merging(onnx: OnnxEmitter, beam: _Beam, known: str, extended: str) -> tuple[str, str]:
    """Whether a prefix [batch, i], extended by the last token of another [batch, i, j], is that one, and its score."""
    length = onnx.op("Shape", beam.tokens, start=2, end=3)
    places = onnx.op("Range", 0, onnx.op("Squeeze", length), 1)
    ends = onnx.op("Sub", onnx.op("Unsqueeze", beam.lengths, [2]), 1)
    parents = onnx.op("Where", onnx.op("Less", places, ends), beam.tokens, BLANK)
    equal = onnx.op("Equal", onnx.op("Unsqueeze", beam.tokens, [2]), onnx.op("Unsqueeze", parents, [1]))
    equal = onnx.op("Cast", onnx.op("ReduceMin", onnx.op("Cast", equal, to=INT32), [3], keepdims=0), to=BOOL)
    real = onnx.op("And", onnx.op("Greater", beam.lengths, 0), onnx.op("Greater", known, MASKED))
    same = onnx.op("And", equal, onnx.op("Unsqueeze", real, [1]))
    last = onnx.op("Expand", onnx.op("Unsqueeze", beam.last, [1]), onnx.op("Shape", same))
    return same, onnx.op("GatherElements", extended, last, axis=2)


def _chosen(onnx: OnnxEmitter, stays: _Beam, scores: str, index: str, frame: str, width: int) -> _Beam:
    """The beam of the chosen candidates: `index` counts the prefixes that stay, then each one's extensions."""
    kept = onnx.op("Less", index, width)
    size = onnx.op("Shape", frame, start=1, end=2)
    beyond = onnx.op("Sub", index, width)
    source = onnx.op("Where", kept, index, onnx.op("Div", beyond, size))
    token = onnx.op("Where", kept, BLANK, onnx.op("Mod", beyond, size))
    blank, other, last, lengths = (
        onnx.op("GatherElements", name, source, axis=1)
        for name in (stays.blank, stays.token, stays.last, stays.lengths)
    )
    rows = onnx.op("Pad", stays.tokens, [0, 0, 0, 0, 0, 1], BLANK)
    places = onnx.op("Expand", onnx.op("Unsqueeze", source, [2]), onnx.op("Shape", rows))
    rows = onnx.op("GatherElements", rows, places, axis=1)
    columns = onnx.op("Range", 0, onnx.op("Squeeze", onnx.op("Shape", rows, start=2, end=3)), 1)
    here = onnx.op("Equal", columns, onnx.op("Unsqueeze", lengths, [2]))
    written = onnx.op("And", here, onnx.op("Unsqueeze", onnx.op("Not", kept), [2]))
    rows = onnx.op("Where", written, onnx.op("Unsqueeze", token, [2]), rows)
    lengths = onnx.op("Add", lengths, onnx.op("Cast", onnx.op("Not", kept), to=INT64))
    return _Beam(
        onnx.op("Where", kept, blank, NEVER),
        onnx.op("Where", kept, other, scores),
        onnx.op("Where", kept, last, token),
        lengths,
        onnx.op("Slice", rows, [0], longest(onnx, lengths), [2]),
    )


def _added(onnx: OnnxEmitter, first: str, second: str) -> str:
    """The logarithm of the sum of two probabilities given as logarithms."""
    apart = onnx.op("Abs", onnx.op("Sub", first, second))
    return onnx.op("Add", onnx.op("Max", first, second), onnx.op("Softplus", onnx.op("Neg", apart)))
