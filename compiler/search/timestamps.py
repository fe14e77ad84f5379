"""Texts with timestamps, as ONNX operators: which tokens may follow, as docs/search.md defines it."""

from xformc.compiler.graph.rules import OnnxEmitter
from xformc.compiler.search.carried import NEVER
from xformc.format.interfaces import TIMED
from xformc.format.speech import Times

_LOWEST = -3.0e38


def is_timed(onnx: OnnxEmitter, start: str) -> str:
    """Which sentences have timestamps, by their first states [batch]."""
    return onnx.op("Equal", start, TIMED)


def any_timed(onnx: OnnxEmitter, timed: str) -> str:
    """Whether any sentence has timestamps, a scalar."""
    return onnx.op("Greater", onnx.op("ReduceMax", onnx.op("Cast", timed, to=7), keepdims=0), 0)


def only_timed(onnx: OnnxEmitter, scores: str, texts: str, times: Times, skipped: str, start: str) -> str:
    """The scores [batch, beam, 1, vocabulary] of the tokens after the texts [batch, beam, length]; NEVER for those that
    may not follow in a sentence with timestamps.

    The first `skipped` tokens of the texts of a sentence are not read; `start` are its first states. Both are [batch].
    """
    here = is_timed(onnx, start)

    def masked(scope: OnnxEmitter) -> tuple[str, ...]:
        found = _by_probability(scope, _by_text(scope, scores, texts, times, skipped), times)
        return (scope.op("Where", scope.op("Unsqueeze", here, [1, 2, 3]), found, scores),)

    (found,) = onnx.choose(any_timed(onnx, here), masked, lambda _: (scores,), ("float32",))
    return found


def _by_text(onnx: OnnxEmitter, scores: str, texts: str, times: Times, skipped: str) -> str:
    """The scores of the tokens that may follow what a text has: times come in pairs and do not decrease."""
    length = onnx.op("Shape", texts, start=2)
    begun = onnx.op("Unsqueeze", skipped, [1])
    written = onnx.op("Sub", length, begun)  # [batch, 1], as all that follows is [batch, beam]
    last, before = (_is_time(onnx, texts, onnx.op("Sub", length, place), times.first) for place in ([1], [2]))
    is_first = onnx.op("Less", written, 1)
    after_time = onnx.op("And", last, onnx.op("Not", is_first))
    is_second = onnx.op("Or", before, onnx.op("Less", written, 2))
    is_pair = onnx.op("And", after_time, is_second)  # a pair, which text follows, as it does the first time
    ends_text = onnx.op("And", after_time, onnx.op("Not", is_second))  # the end of a text, which a time follows
    places = onnx.op("Range", 0, onnx.op("Squeeze", length), 1)
    read = onnx.op("GreaterOrEqual", places, onnx.op("Unsqueeze", begun, [2]))
    newest = onnx.op("ReduceMax", onnx.op("Where", read, texts, -1), [2], keepdims=0)
    least = onnx.op("Where", ends_text, newest, onnx.op("Add", newest, 1))
    most = onnx.op("Where", is_first, times.latest, 2**31)
    ids = onnx.op("Range", 0, onnx.op("Squeeze", onnx.op("Shape", scores, start=3)), 1)

    def each(name: str) -> str:
        """Values of the hypotheses as values of their tokens."""
        return onnx.op("Unsqueeze", name, [2, 3])

    is_time = onnx.op("GreaterOrEqual", ids, times.first)
    in_order = onnx.op("And", onnx.op("GreaterOrEqual", ids, each(least)), onnx.op("LessOrEqual", ids, each(most)))
    time_follows = onnx.op("And", onnx.op("And", is_time, in_order), onnx.op("Not", each(is_pair)))
    is_word = onnx.op("Less", ids, times.special)
    word_follows = onnx.op("Not", onnx.op("Or", onnx.op("And", each(ends_text), is_word), each(is_first)))
    is_text = onnx.op("And", onnx.op("Not", is_time), onnx.op("Not", onnx.op("Equal", ids, times.silent)))
    follows = onnx.op("Or", time_follows, onnx.op("And", is_text, word_follows))
    return onnx.op("Where", follows, scores, NEVER)


def _is_time(onnx: OnnxEmitter, texts: str, place: str, first: int) -> str:
    """Whether the token at a place [1] of each text is a time, [batch, beam]."""
    token = onnx.op("Squeeze", onnx.op("Gather", texts, onnx.op("Max", place, [0]), axis=2), [2])
    return onnx.op("GreaterOrEqual", token, first)


def _by_probability(onnx: OnnxEmitter, scores: str, times: Times) -> str:
    """The scores, without those of text where all times together are likelier than the likeliest of these."""
    is_time = onnx.op("Slice", scores, [times.first], [2**31], [3])
    text = onnx.op("Slice", scores, [0], [times.first], [3])
    highest = onnx.op("ReduceMax", is_time, [3])
    shares = onnx.op("Exp", onnx.op("Sub", is_time, onnx.op("Max", highest, _LOWEST)))
    together = onnx.op("Add", onnx.op("Log", onnx.op("ReduceSum", shares, [3])), highest)
    only = onnx.op("Greater", together, onnx.op("ReduceMax", text, [3]))
    return onnx.op("Concat", onnx.op("Where", only, NEVER, text), is_time, axis=3)
