"""The two loops of a beam search whose values grow.

The inner one decodes a batch of sentences token by token until enough of them are finished; the outer one then files
what they found, keeps the rows of the others only, and starts the inner loop again.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from xformc.compiler.graph.graph import Value
from xformc.compiler.graph.rules import OnnxEmitter
from xformc.compiler.passes.step import Decoder
from xformc.compiler.search.candidates import BeamOptions, Pool, emit_limit
from xformc.compiler.search.carried import NEVER, BeamScores, BeamTokens, Flags, Integer, Integers
from xformc.compiler.search.decoder_step import emit_positions, emit_prepare
from xformc.compiler.search.loops import Collected, Fields, Names, Record, bind_fields, emit_loop, fields_of, mapped
from xformc.format.tokens import BEGIN, PAD

_KEPT = frozenset({"batch", "beam", "source"})
"""The axes whose sizes do not change in the inner loop."""


@dataclass(frozen=True)
class SearchInputs:
    """The ONNX names of the search's inputs; see docs/search.md for what they mean."""

    source: str
    beam_size: str
    n_best: str
    length_penalty: str
    max_length_factor: str
    max_length_offset: str
    end_token: str


@dataclass(frozen=True)
class SearchResult:
    """The ONNX names of the n-best lists: tokens [batch, n_best, length], lengths and scores [batch, n_best]."""

    tokens: str
    lengths: str
    scores: str


@dataclass(frozen=True)
class Begun:
    """What is written before the loops: the limit of each sentence [batch], the largest of them, what `prepare` made,
    and the size of the batch as a vector."""

    options: BeamOptions
    limit: str
    longest: str
    prepared: Names
    batch: str


@dataclass(frozen=True)
class Beam(Record):
    """The open hypotheses of sentences, the best that they have finished, and how many those were."""

    tokens: BeamTokens
    scores: BeamScores
    pool: Pool
    found: Integers


@dataclass(frozen=True)
class Live(Record):
    """The sentences that are still being decoded: their rows in the batch of the sources, and all they have.

    `constant` are those of the decoder's that have an axis of the batch, `state` what a step leaves to the next.
    """

    sentence: Integers
    beam: Beam
    limit: Integers
    constant: Names
    state: Names


@dataclass(frozen=True)
class Decoding(Record):
    """What the inner loop carries."""

    position: Integer
    done: Flags
    beam: Beam
    state: Names


@dataclass(frozen=True)
class _Epoch(Record):
    """What the outer loop carries; `filed` is what the whole batch has found so far, in the order of the sources."""

    position: Integer
    live: Live
    filed: Pool


Step = Callable[[OnnxEmitter, Live, Decoding], tuple[str, Decoding]]
"""Writes a step for the live sentences: whether to go on, and what is carried to the next."""


def begin(onnx: OnnxEmitter, decoder: Decoder, inputs: SearchInputs, longest: int | None) -> Begun:
    """Write what comes before the loops.

    `decoder` has the axis `beam` (see `with_beam`); `longest` is the most tokens that it can decode, or None.
    """
    width = onnx.op("Unsqueeze", inputs.beam_size, [0])
    options = BeamOptions(width, onnx.op("Mul", width, [2]), inputs.end_token, inputs.length_penalty)
    limit = emit_limit(onnx, inputs.source, inputs.max_length_factor, inputs.max_length_offset, longest)
    longest_limit = onnx.op("ReduceMax", limit, keepdims=0)
    given = {value.name: inputs.source for value in decoder.given}
    prepared = emit_prepare(onnx, decoder, given | emit_positions(onnx, decoder, longest_limit))
    return Begun(options, limit, longest_limit, prepared, onnx.op("Shape", inputs.source, start=0, end=1))


def decode_batch(onnx: OnnxEmitter, decoder: Decoder, begun: Begun, states: Names, types: Fields, step: Step) -> Pool:
    """Write both loops: the best that each sentence has finished. `states` are those before the first step."""
    rows = {value.name: value.type for value in decoder.constants if "batch" in value.type.names}
    beam = _first_beam(onnx, begun)
    sentence = onnx.op("Range", 0, onnx.op("Squeeze", begun.batch), 1)
    live = Live(sentence, beam, begun.limit, {name: begun.prepared[name] for name in rows}, states)

    def epoch(scope: OnnxEmitter, _: str, now: _Epoch) -> tuple[str, _Epoch, Collected]:
        bind_fields(scope, rows, now.live.constant)
        scope.bind(Value("hypotheses", fields_of(Beam)["scores"]), now.live.beam.scores)
        position, done, live = _decode_some(scope, now.position, now.live, types, step)
        filed = _file(scope, live, now.filed)
        kept = scope.op("Squeeze", scope.op("NonZero", scope.op("Not", done)), [0])
        live = mapped(live, lambda name: scope.op("Gather", name, kept, axis=0))
        alive = scope.op("Greater", scope.op("Squeeze", scope.op("Shape", kept)), 0)
        return alive, _Epoch(position, live, filed), []

    entering = _Epoch(onnx.operand(0), live, beam.pool)
    last, _ = emit_loop(onnx, "", fields_of(_Epoch, constant=rows, state=types), entering, epoch)
    return last.filed


def newest(onnx: OnnxEmitter, beam: Beam) -> str:
    """The last token of each hypothesis, [batch, beam, 1]."""
    return onnx.op("Slice", beam.tokens, [-1], [2**31], [2])


def best(onnx: OnnxEmitter, found: Pool, n_best: str) -> SearchResult:
    """The n best of each sentence, without the begin token, cut to the longest."""
    zero, one = [0], [1]
    n_best = onnx.op("Unsqueeze", n_best, zero)
    scores = onnx.op("Slice", found.scores, zero, n_best, one)
    lengths = onnx.op("Slice", found.lengths, zero, n_best, one)
    longest = onnx.op("Unsqueeze", onnx.op("ReduceMax", lengths, keepdims=0), zero)
    ends = onnx.op("Concat", n_best, onnx.op("Add", longest, one), axis=0)
    tokens = onnx.op("Slice", found.tokens, [0, 1], ends, [1, 2])
    return SearchResult(tokens, lengths, scores)


def _decode_some(onnx: OnnxEmitter, position: str, live: Live, types: Fields, step: Step) -> tuple[str, str, Live]:
    """Decode until some sentences are done: the position after that, which are done, and what all have."""

    def turn(scope: OnnxEmitter, _: str, now: Decoding) -> tuple[str, Decoding, Collected]:
        return *step(scope, live, now), []

    entering = Decoding(position, onnx.op("Less", live.limit, 0), live.beam, live.state)
    last, _ = emit_loop(onnx, "", fields_of(Decoding, state=types), entering, turn, _KEPT)
    return last.position, last.done, replace(live, beam=last.beam, state=last.state)


def _file(onnx: OnnxEmitter, live: Live, filed: Pool) -> Pool:
    """Write what the live sentences have found into the rows of the batch that are theirs."""
    pool, place = live.beam.pool, onnx.op("Unsqueeze", live.sentence, [1])
    more = onnx.op("Sub", onnx.op("Shape", pool.tokens, start=2), onnx.op("Shape", filed.tokens, start=2))
    padded = onnx.op("Pad", filed.tokens, onnx.op("Concat", [0, 0, 0, 0, 0], more, axis=0))
    return Pool(
        onnx.op("ScatterND", padded, place, pool.tokens),
        onnx.op("ScatterND", filed.lengths, place, pool.lengths),
        onnx.op("ScatterND", filed.scores, place, pool.scores),
    )


def _first_beam(onnx: OnnxEmitter, begun: Begun) -> Beam:
    """Write the hypotheses before the first step, of which the first alone can be continued."""
    width = begun.options.width
    shape = onnx.op("Concat", begun.batch, width, axis=0)
    tokens_shape = onnx.op("Concat", shape, [1], axis=0)
    nothing = onnx.op("Expand", NEVER, shape)
    zeros = onnx.op("Expand", 0, shape)
    ranks = onnx.op("Range", 0, onnx.op("Squeeze", width), 1)
    first = onnx.op("Where", onnx.op("Equal", ranks, [0]), [0.0], [NEVER])
    tokens, scores = onnx.op("Expand", BEGIN, tokens_shape), onnx.op("Expand", first, shape)
    pool = Pool(onnx.op("Expand", PAD, tokens_shape), zeros, nothing)
    return Beam(tokens, scores, pool, onnx.op("Expand", 0, begun.batch))
