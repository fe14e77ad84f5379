"""Prefixes that are made likelier instead of forced, as ONNX operators: see docs/search.md."""

from dataclasses import dataclass

from xformc.compiler.graph.rules import OnnxEmitter

_INT64 = 7


@dataclass(frozen=True)
class PrefixBias:
    """The share of the probability that goes to the next token of the prefix, [batch], and whether any is above 0."""

    share: str
    used: str


def emit_bias(onnx: OnnxEmitter, share: str) -> PrefixBias:
    """Write whether any prefix is made likelier."""
    return PrefixBias(share, onnx.op("Greater", onnx.op("ReduceMax", share, keepdims=0), 0.0))


def still_forced(onnx: OnnxEmitter, forced: str, bias: PrefixBias, absent: int) -> str:
    """The forced tokens [batch], `absent` for sentences whose prefix is made likelier."""
    return onnx.op("Where", onnx.op("Greater", bias.share, 0.0), absent, forced)


def emit_biased(onnx: OnnxEmitter, scores: str, texts: str, bias: PrefixBias, prefix: tuple[str, str, int]) -> str:
    """The log probabilities [batch, beam, 1, vocabulary] of the tokens after the texts [batch, beam, length].

    `prefix` are the tokens [batch, any] that texts begin with, padded, those of this step [batch], and the padding.
    """
    tokens, now, absent = prefix

    def biased(scope: OnnxEmitter) -> tuple[str, ...]:
        there = scope.op("And", scope.op("Not", scope.op("Equal", now, absent)), scope.op("Greater", bias.share, 0.0))
        follows = scope.op("And", scope.op("Unsqueeze", there, [1]), _follows(scope, texts, tokens))
        share, token = scope.op("Unsqueeze", bias.share, [1, 2, 3]), scope.op("Unsqueeze", now, [1, 2, 3])
        rest = scope.op("Sub", 1.0, share)
        others = scope.op("Add", scores, scope.op("Log", rest))
        own = scope.op("Log", scope.op("Add", scope.op("Mul", rest, scope.op("Exp", scores)), share))
        ids = scope.op("Range", 0, scope.op("Squeeze", scope.op("Shape", scores, start=3)), 1)
        changed = scope.op("Where", scope.op("Equal", ids, token), own, others)
        return (scope.op("Where", scope.op("Unsqueeze", follows, [2, 3]), changed, scores),)

    (found,) = onnx.choose(bias.used, biased, lambda _: (scores,), ("float32",))
    return found


def _follows(onnx: OnnxEmitter, texts: str, prefix: str) -> str:
    """Whether the texts, after their begin token, are the first tokens of the prefix, [batch, beam]."""
    written = onnx.op("Sub", onnx.op("Shape", texts, start=2), [1])
    count = onnx.op("Min", written, onnx.op("Shape", prefix, start=1))
    own = onnx.op("Slice", texts, [1], onnx.op("Add", count, [1]), [2])
    given = onnx.op("Unsqueeze", onnx.op("Slice", prefix, [0], count, [1]), [1])
    same = onnx.op("Cast", onnx.op("Equal", own, given), to=_INT64)
    return onnx.op(
        "Greater", onnx.op("ReduceMin", onnx.op("Concat", same, _ones(onnx, texts), axis=2), [2], keepdims=0), 0
    )


def _ones(onnx: OnnxEmitter, texts: str) -> str:
    """[batch, beam, 1]: an empty text follows any prefix."""
    return onnx.op("Expand", 1, onnx.op("Concat", onnx.op("Shape", texts, end=2), [1], axis=0))
