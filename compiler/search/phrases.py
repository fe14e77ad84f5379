"""Phrases that texts must have, as ONNX operators: the choice among candidates that docs/search.md defines."""

from dataclasses import dataclass

from xformc.compiler.graph.rules import OnnxEmitter
from xformc.compiler.search.carried import NEVER

_INT64, _FLOAT, _BOOL = 7, 1, 9
_NONE = -2
"""What stands behind a text: no token, and no padding of a phrase."""


@dataclass(frozen=True)
class Phrases:
    """The phrases of each sentence, [batch, phrases, length], padded with -1, and whether there are any, a scalar."""

    tokens: str
    used: str


@dataclass(frozen=True)
class InTurn:
    """Candidates in the order of their places, [batch, candidates]."""

    scores: str
    tokens: str
    parents: str


def emit_lengths(onnx: OnnxEmitter, phrases: str) -> str:
    """The number of tokens of each phrase, [rows, phrases]."""
    real = onnx.op("Cast", onnx.op("GreaterOrEqual", phrases, 0), to=_INT64)
    return onnx.op("ReduceSum", real, [2], keepdims=0)


def emit_used(onnx: OnnxEmitter, phrases: str) -> str:
    """Whether there are any phrases."""
    return onnx.op("Greater", onnx.op("ReduceSum", emit_lengths(onnx, phrases), keepdims=0), 0)


def standing(onnx: OnnxEmitter, texts: str, phrases: str) -> str:
    """How many tokens of each phrase the texts [batch, texts, length] have, [batch, texts, phrases].

    All, if the phrase occurs in the text, or else those that the text ends with.
    """
    length, size = (onnx.op("Squeeze", onnx.op("Shape", name, start=2), [0]) for name in (texts, phrases))
    starts, places = (onnx.op("Range", 0, count, 1) for count in (length, size))
    window = onnx.op("Add", onnx.op("Unsqueeze", starts, [1]), places)
    after = onnx.op("Concat", [0, 0, 0, 0, 0], onnx.op("Unsqueeze", size, [0]), axis=0)
    padded = onnx.op("Pad", texts, after, onnx.operand(_NONE))
    found = onnx.op("Unsqueeze", onnx.op("Gather", padded, window, axis=2), [3])
    wanted = onnx.op("Unsqueeze", phrases, [1, 2])
    same = onnx.op("Equal", found, wanted)
    occurs = _all(onnx, onnx.op("Or", same, onnx.op("Less", wanted, 0)))
    behind = onnx.op("GreaterOrEqual", onnx.op("Unsqueeze", window, [1]), length)
    ends = _all(onnx, onnx.op("Or", same, behind))
    tokens = onnx.op("Unsqueeze", onnx.op("Sub", length, starts), [1])
    lengths = onnx.op("Unsqueeze", emit_lengths(onnx, phrases), [1, 2])
    ends = onnx.op("And", ends, onnx.op("Less", tokens, lengths))
    count = onnx.op("Where", occurs, lengths, onnx.op("Where", ends, tokens, 0))
    return onnx.op("ReduceMax", count, [2], keepdims=0)


def has_all(onnx: OnnxEmitter, texts: str, phrases: str) -> str:
    """Which texts [batch, texts, length] have all phrases of their sentence, [batch, texts]."""
    lengths = onnx.op("Unsqueeze", emit_lengths(onnx, phrases), [1])
    return _all(onnx, onnx.op("Equal", standing(onnx, texts, phrases), lengths))


def next_tokens(onnx: OnnxEmitter, texts: str, phrases: str) -> str:
    """The tokens that continue the phrases which the texts do not have, [batch, texts, phrases]; -1 for none.

    A token stands there once.
    """
    has, lengths = standing(onnx, texts, phrases), onnx.op("Unsqueeze", emit_lengths(onnx, phrases), [1])
    last = onnx.op("Sub", onnx.op("Shape", phrases, start=2), 1)
    shape = onnx.op("Concat", onnx.op("Shape", has), [1], axis=0)
    spread = onnx.op(
        "Expand",
        onnx.op("Unsqueeze", phrases, [1]),
        onnx.op("Concat", [1], onnx.op("Shape", texts, start=1, end=2), [1, 1], axis=0),
    )
    place = onnx.op("Reshape", onnx.op("Min", has, last), shape)
    tokens = onnx.op("Squeeze", onnx.op("GatherElements", spread, place, axis=3), [3])
    tokens = onnx.op("Where", onnx.op("Less", has, lengths), tokens, -1)
    return onnx.op("Where", onnx.op("Greater", _before(onnx, tokens), 0), -1, tokens)


def in_turn(onnx: OnnxEmitter, lists: tuple[str, str], texts: str, phrases: str, count: str) -> InTurn:
    """The first `count` of the candidates, which are lists of scores and tokens [batch, beam, any] of the texts.

    First comes the best of each bank, from the highest bank on, then the second best of each, and so on.
    """
    scores, tokens = lists
    each = onnx.op("Shape", tokens, start=2)
    shape = onnx.op("Concat", onnx.op("Shape", tokens), onnx.op("Shape", texts, start=2), axis=0)
    begun = onnx.op("Expand", onnx.op("Unsqueeze", texts, [2]), shape)
    whole = onnx.op("Concat", begun, onnx.op("Unsqueeze", tokens, [3]), axis=3)
    flat = onnx.op("Concat", onnx.op("Shape", tokens, end=1), [-1], axis=0)
    length = onnx.op("Shape", whole, start=3)
    bank = _bank(onnx, onnx.op("Reshape", whole, onnx.op("Concat", flat, length, axis=0)), phrases)
    scores, tokens = (onnx.op("Reshape", name, flat) for name in (scores, tokens))
    ordered, order = onnx.ops("TopK", 2, scores, onnx.op("Shape", scores, start=1), axis=1)
    bank = onnx.op("GatherElements", bank, order, axis=1)
    most = onnx.op("Add", onnx.op("ReduceMax", bank, keepdims=0), 1)
    key = onnx.op("Sub", onnx.op("Mul", _before(onnx, bank), most), bank)
    last = onnx.op("Mul", most, onnx.op("Size", scores))
    key = onnx.op("Where", onnx.op("Equal", ordered, NEVER), last, key)
    _, places = onnx.ops("TopK", 2, key, count, axis=1, largest=0)
    chosen = onnx.op("GatherElements", order, places, axis=1)
    scores, tokens = (onnx.op("GatherElements", name, chosen, axis=1) for name in (scores, tokens))
    return InTurn(scores, tokens, onnx.op("Div", chosen, each))


def _bank(onnx: OnnxEmitter, texts: str, phrases: str) -> str:
    """The tokens of the phrases that each text has, and the most of one that it has not, [batch, texts]."""
    has, lengths = standing(onnx, texts, phrases), onnx.op("Unsqueeze", emit_lengths(onnx, phrases), [1])
    whole = onnx.op("Equal", has, lengths)
    tokens = onnx.op("ReduceSum", onnx.op("Where", whole, has, 0), [2], keepdims=0)
    return onnx.op("Add", tokens, onnx.op("ReduceMax", onnx.op("Where", whole, 0, has), [2], keepdims=0))


def _before(onnx: OnnxEmitter, values: str) -> str:
    """How many of the values before it along the last axis each value equals."""
    size = onnx.op("Squeeze", onnx.op("Shape", values, start=-1), [0])
    places = onnx.op("Range", 0, size, 1)
    earlier = onnx.op("Less", places, onnx.op("Unsqueeze", places, [1]))
    same = onnx.op("Equal", onnx.op("Unsqueeze", values, [-1]), onnx.op("Unsqueeze", values, [-2]))
    both = onnx.op("Cast", onnx.op("And", same, earlier), to=_INT64)
    return onnx.op("ReduceSum", both, [-1], keepdims=0)


def _all(onnx: OnnxEmitter, flags: str) -> str:
    """Whether all flags along the last axis are set."""
    return onnx.op("Cast", onnx.op("ReduceMin", onnx.op("Cast", flags, to=_INT64), [-1], keepdims=0), to=_BOOL)
