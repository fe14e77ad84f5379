"""The log probability of each token of given texts, by the derived step of several tokens (docs/search.md).

A text is read in parts, each from the states after the one before, so that its length does not bound the memory.
"""

from dataclasses import dataclass

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.graph import Graph, Value
from xformc.compiler.graph.rules import OnnxEmitter
from xformc.compiler.ops.native import DOMAIN, emit_project_candidates
from xformc.compiler.passes.step import Decoder
from xformc.compiler.search.carried import Integer, Tokens
from xformc.compiler.search.decoder_step import emit_begin, state_types, step_inputs
from xformc.compiler.search.draw_token import log_probability, subtract_highest, vocabulary_of
from xformc.compiler.search.loops import Collected, Names, Record, emit_loop, fields_of
from xformc.compiler.search.parts import READ_TOGETHER, emit_parts

_NO_PAD = -1
"""The padding of a prefix that has none, so that every token is forced."""

LOGITS_TOGETHER, READ_AT_LEAST = 2**22, 4
"""The number of logits of all texts that are stored at once, and the minimum number of tokens of each text."""


@dataclass(frozen=True)
class Scored:
    """The step of several tokens of a decoder.

    kernels: the operators of docs/kernels.md compute the scores, as they do in searches and in sampling.
    unscored: so many tokens at the beginning of a text have the score 0, those of the default prefix.
    """

    decoder: Decoder
    extend: Graph
    kernels: bool
    unscored: int = 0

    def together(self) -> int:
        """The maximum number of tokens of all texts to read at once."""
        fit = LOGITS_TOGETHER // vocabulary_of(self.decoder)
        return READ_TOGETHER if self.decoder.projection is not None else max(1, min(READ_TOGETHER, fit))


@dataclass(frozen=True)
class _Reading(Record):
    """The carried values of the loop: the position, the scores so far [batch, position], and the states."""

    position: Integer
    scores: Tokens
    state: Names


def emit_token_scores(onnx: OnnxEmitter, scored: Scored, tokens: str) -> str:
    """Write the loop; return the log probability of each token of the texts `tokens` [batch, length].

    That of the first, which is the begin token, is left out. The model's inputs have the names that they have in the
    decoder.
    """
    decoder, text = scored.decoder, scored.extend.inputs[0]
    before, after = onnx.op("Slice", tokens, [0], [-1], [1]), onnx.op("Slice", tokens, [1], [2**31], [1])
    known, states = emit_begin(onnx, decoder, Value(text.name, text.type), before)
    rows, count = (onnx.op("Squeeze", onnx.op("Shape", before, start=axis, end=axis + 1)) for axis in (0, 1))
    parts = emit_parts(onnx, count, rows, scored.together(), READ_AT_LEAST)
    pasts = [state.past.name for state in decoder.states]

    def body(scope: OnnxEmitter, _: str, now: _Reading) -> tuple[str, _Reading, Collected]:
        end, bounds = parts.bounds(scope, now.position)
        fed, following = (scope.op("Slice", name, *bounds, [1]) for name in (before, after))
        found, *new = scope.graph(scored.extend, step_inputs(decoder, fed, now.position, {**known, **now.state}))
        scores = scope.op("Concat", now.scores, _scores_of(scope, scored, found, following), axis=1)
        return scope.op("Identity", True), _Reading(end, scores, dict(zip(pasts, new, strict=False))), []

    types = {**fields_of(_Reading, state=state_types(decoder)), "scores": _SCORES}
    nothing = onnx.op("Expand", 0.0, onnx.op("Concat", onnx.op("Unsqueeze", rows, [0]), [0], axis=0))
    kept = {"batch", *(axis.name for value in decoder.given for axis in value.type.axes)} - {text.type.axes[1].name}
    last, _ = emit_loop(onnx, parts.trips, types, _Reading(onnx.operand(0), nothing, states), body, frozenset(kept))
    if not scored.unscored:
        return last.scores
    places = onnx.op("Range", 0, count, 1)
    return onnx.op("Where", onnx.op("Less", places, scored.unscored), 0.0, last.scores)


_SCORES = Type("float32", (Axis("batch"), Axis("length")))


def _scores_of(onnx: OnnxEmitter, scored: Scored, found: str, tokens: str) -> str:
    """The log probabilities of tokens [batch, positions] by the step's first output at these positions."""
    flat, shape = onnx.op("Reshape", tokens, [-1]), onnx.op("Shape", tokens)
    scores = _chosen(onnx, scored, found, flat) if scored.kernels else _summed(onnx, scored, found, flat)
    return onnx.op("Reshape", scores, shape)


def _summed(onnx: OnnxEmitter, scored: Scored, logits: str, tokens: str) -> str:
    """The log probabilities as sampling computes them, [tokens]."""
    rows = onnx.op("Reshape", logits, [-1, vocabulary_of(scored.decoder)])
    return log_probability(onnx, subtract_highest(onnx, rows), tokens, vocabulary_of(scored.decoder))


def _chosen(onnx: OnnxEmitter, scored: Scored, found: str, tokens: str) -> str:
    """The log probabilities as the candidates' kernels compute them, [tokens]: each position is a sentence whose only
    hypothesis has the score 0, and whose prefix is its token."""
    prefix = onnx.op("Unsqueeze", tokens, [1])
    nothing = onnx.op("Expand", 0.0, onnx.op("Shape", prefix))
    projection = scored.decoder.projection
    if projection is None:
        logits = onnx.op("Reshape", found, [-1, 1, 1, vocabulary_of(scored.decoder)])
        scores, *_ = onnx.ops("Candidates", 3, logits, nothing, [1], prefix, 0, domain=DOMAIN, pad=_NO_PAD)
    else:
        beam, given = (nothing, onnx.operand([1])), (prefix, onnx.operand(0))
        scores, *_ = emit_project_candidates(onnx, projection, found, beam, given, {"pad": _NO_PAD})
    return onnx.op("Squeeze", onnx.op("Slice", scores, [0], [1], [1]), [1])
