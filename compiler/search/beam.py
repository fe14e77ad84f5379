"""Beam search around a derived step, as ONNX operators: the whole of docs/search.md; width 1 is greedy search.

Two loops. The inner one decodes a batch of sentences token by token until enough of them are finished; the outer one
then files what they found, keeps the rows of the others only, and starts the inner loop again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.graph import Value
from xformc.compiler.graph.rules import OnnxEmitter, Turn
from xformc.compiler.passes.step import Decoder
from xformc.compiler.search.states import emit_positions, emit_states
from xformc.format.tokens import BEGIN, PAD

NEVER = float("-inf")
FINISHED_SHARE = 8
"""The inner loop ends when a share of 1/8 of its sentences is finished."""

_B, _W, _T = Axis("batch"), Axis("beam"), Axis("length")
_ID, _FLAG = Type("int64"), Type("bool")
_TOKENS = Type("int64", (_B, _W, _T))
_SCORES = Type("float32", (_B, _W))
_LENGTHS = Type("int64", (_B, _W))
_PER_SENTENCE = Type("int64", (_B,))
_DONE = Type("bool", (_B,))


@dataclass(frozen=True)
class SearchInputs:
    """The ONNX names of the search's inputs; see docs/search.md for what they mean."""

    source: str
    beam_width: str
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
class Live:
    """The sentences that are still being decoded: hypotheses, what they have finished, and their states."""

    tokens: str
    scores: str
    pool_tokens: str
    pool_lengths: str
    pool_scores: str
    found: str
    limit: str
    rows: list[str]

    @staticmethod
    def types(rows: Sequence[Type]) -> list[Type]:
        """The types of the fields in their order, with those of `rows` at the end."""
        return [_TOKENS, _SCORES, _TOKENS, _LENGTHS, _SCORES, _PER_SENTENCE, _PER_SENTENCE, *rows]

    @staticmethod
    def of(names: Sequence[str]) -> "Live":
        """The values of these names, in the order of the fields."""
        return Live(*names[:7], rows=list(names[7:]))

    def names(self) -> list[str]:
        """The names of the values, in the order of the fields."""
        return [
            self.tokens,
            self.scores,
            self.pool_tokens,
            self.pool_lengths,
            self.pool_scores,
            self.found,
            self.limit,
            *self.rows,
        ]


@dataclass(frozen=True)
class Candidates:
    """The best continuations of each sentence [batch, 2 * width], best first."""

    scores: str
    tokens: str
    parents: str
    ended: str


@dataclass(frozen=True)
class _Found:
    """What the whole batch has found so far, in the order of the sources."""

    tokens: str
    lengths: str
    scores: str


class BeamSearch:
    """Writes prepare, the search and the choice of the n best."""

    def __init__(self, onnx: OnnxEmitter, decoder: Decoder, inputs: SearchInputs, longest: int | None) -> None:
        """`decoder` has the axis `beam` (see `with_beam`); `longest` is the most tokens that it can decode, or None."""
        self.decoder = decoder
        self.inputs = inputs
        self.longest = longest
        self.root = onnx
        self.row_constants = [value for value in decoder.constants if "batch" in value.type.names]
        self.states = [state.past for state in decoder.states]
        self.width = onnx.op("Unsqueeze", inputs.beam_width, [0])
        self.candidates = onnx.op("Mul", self.width, [2])

    def emit(self) -> SearchResult:
        """Write everything."""
        onnx, source = self.root, self.inputs.source
        self.limit = self.limit_of_source(onnx)
        self.longest_limit = onnx.op("ReduceMax", self.limit, keepdims=0)
        names = {value.name: source for value in self.decoder.given}
        names |= emit_positions(onnx, self.decoder, self.longest_limit)
        constants = onnx.graph(self.decoder.prepare, names)
        self.constants = dict(zip((value.name for value in self.decoder.prepared), constants, strict=True))
        batch = onnx.op("Shape", source, start=0, end=1)
        live = self._start(onnx, batch)
        rows = onnx.op("Range", 0, onnx.op("Squeeze", batch), 1)
        found = _Found(live.pool_tokens, live.pool_lengths, live.pool_scores)
        types = [_PER_SENTENCE, _ID, *Live.types(self._row_types()), _TOKENS, _LENGTHS, _SCORES]
        entering = [rows, 0, *live.names(), found.tokens, found.lengths, found.scores]
        results = onnx.loop("", list(zip(types, entering, strict=True)), self._epoch)
        return self._best(onnx, _Found(*results[-3:]))

    def _row_types(self) -> list[Type]:
        return [*(value.type for value in self.row_constants), *self._state_types()]

    def _state_types(self) -> list[Type]:
        return [value.type for value in self.states]

    def _start(self, onnx: OnnxEmitter, batch: str) -> Live:
        shape = onnx.op("Concat", batch, self.width, axis=0)
        tokens_shape = onnx.op("Concat", shape, [1], axis=0)
        nothing = onnx.op("Expand", NEVER, shape)
        zeros = onnx.op("Expand", 0, shape)
        ranks = onnx.op("Range", 0, onnx.op("Squeeze", self.width), 1)
        first = onnx.op("Where", onnx.op("Equal", ranks, [0]), [0.0], [NEVER])
        return Live(
            tokens=onnx.op("Expand", BEGIN, tokens_shape),
            scores=onnx.op("Expand", first, shape),
            pool_tokens=onnx.op("Expand", PAD, tokens_shape),
            pool_lengths=zeros,
            pool_scores=nothing,
            found=onnx.op("Expand", 0, batch),
            limit=self.limit,
            rows=[*(self.constants[value.name] for value in self.row_constants), *self._initial_states(onnx, batch)],
        )

    def _initial_states(self, onnx: OnnxEmitter, batch: str) -> list[str]:
        return emit_states(onnx, self.decoder, {"batch": batch, "beam": self.width}, self.constants)

    def limit_of_source(self, onnx: OnnxEmitter) -> str:
        """The most tokens that each sentence may have, by the search's inputs, [batch]."""
        real = onnx.op("Not", onnx.op("Equal", self.inputs.source, PAD))
        count = onnx.op("ReduceSum", onnx.op("Cast", real, to=1), [1], keepdims=0)
        scaled = onnx.op("Floor", onnx.op("Mul", count, self.inputs.max_length_factor))
        limit = onnx.op("Add", onnx.op("Cast", scaled, to=7), self.inputs.max_length_offset)
        limit = onnx.op("Max", limit, 1)
        return limit if self.longest is None else onnx.op("Min", limit, self.longest)

    def _epoch(self, onnx: OnnxEmitter, iteration: str, entering: list[str]) -> Turn:
        """Decode until some sentences are finished, file their results and keep the rows of the others."""
        sentences, position = entering[:2]
        live, found = Live.of(entering[2:-3]), _Found(*entering[-3:])
        constants = len(self.row_constants)
        for value, name in zip(self.row_constants, live.rows[:constants], strict=True):
            onnx.bind(value, name)
        onnx.bind(Value("hypotheses", _SCORES), live.scores)
        carried = [
            (_ID, position),
            (_DONE, onnx.op("Less", live.limit, 0)),
            *zip(Live.types([])[:6], live.names()[:6], strict=True),
            *zip(self._state_types(), live.rows[constants:], strict=True),
        ]

        self.sentences = sentences

        def step(scope: OnnxEmitter, _: str, names: list[str]) -> Turn:
            now = Live.of([*names[2:8], live.limit, *names[8:]])
            return self._step(scope, names[0], names[1], now)

        position, done, *rest = onnx.loop("", carried, step, frozenset({"batch", "beam", "source"}))
        live = Live.of([*rest[:6], live.limit, *live.rows[:constants], *rest[6:]])
        found = self._file(onnx, sentences, live, found)
        kept = onnx.op("Squeeze", onnx.op("NonZero", onnx.op("Not", done)), [0])
        rows = [onnx.op("Gather", name, kept, axis=0) for name in (sentences, *live.names())]
        alive = onnx.op("Greater", onnx.op("Squeeze", onnx.op("Shape", kept)), 0)
        return alive, [rows[0], position, *rows[1:], found.tokens, found.lengths, found.scores], []

    def _file(self, onnx: OnnxEmitter, sentences: str, live: Live, found: _Found) -> _Found:
        """Write what the live sentences have found into the rows of the batch that are theirs."""
        place = onnx.op("Unsqueeze", sentences, [1])
        more = onnx.op("Sub", onnx.op("Shape", live.pool_tokens, start=2), onnx.op("Shape", found.tokens, start=2))
        padded = onnx.op("Pad", found.tokens, onnx.op("Concat", [0, 0, 0, 0, 0], more, axis=0))
        return _Found(
            onnx.op("ScatterND", padded, place, live.pool_tokens),
            onnx.op("ScatterND", found.lengths, place, live.pool_lengths),
            onnx.op("ScatterND", found.scores, place, live.pool_scores),
        )

    def _step(self, onnx: OnnxEmitter, position: str, done: str, live: Live) -> Turn:
        newest = onnx.op("Slice", live.tokens, [-1], [2**31], [2])
        logits, states = self._decode(onnx, newest, position, live, {})
        candidates = self.candidates_of(onnx, logits, live.scores)
        length = onnx.op("Add", position, 1)
        last = onnx.op("LessOrEqual", live.limit, length)
        pool, found = self._finish(onnx, live, candidates, last, done, length)
        finished = onnx.op("Or", onnx.op("Or", done, last), onnx.op("GreaterOrEqual", found, self.width))

        open_scores = onnx.op("Where", candidates.ended, NEVER, candidates.scores)
        next_scores, chosen = onnx.ops("TopK", 2, open_scores, self.width, axis=-1)
        parents = onnx.op("GatherElements", candidates.parents, chosen, axis=-1)
        rows = self.rows_of(onnx, parents)
        grown = onnx.op(
            "Concat",
            self.reorder(onnx, live.tokens, rows),
            onnx.op("Unsqueeze", onnx.op("GatherElements", candidates.tokens, chosen, axis=-1), [-1]),
            axis=-1,
        )
        moved = [self.reorder(onnx, name, rows) for name in states]
        return (self._go_on(onnx, finished), [length, finished, grown, next_scores, *pool, found, *moved], [])

    def _decode(
        self, onnx: OnnxEmitter, newest: str, position: str, live: Live, extra: Mapping[str, str]
    ) -> tuple[str, list[str]]:
        constants = {value.name: self.constants[value.name] for value in self.decoder.constants}
        names = {**constants, self.decoder.token.name: newest, self.decoder.position.name: position}
        names |= {value.name: onnx.name_of(value) for value in self.row_constants}
        names |= {value.name: name for value, name in zip(self.states, live.rows, strict=True)}
        names |= extra
        logits, *states = onnx.graph(self.decoder.step, names)
        return logits, states

    def candidates_of(self, onnx: OnnxEmitter, logits: str, before: str) -> Candidates:
        """The best continuations, given the logits of the step and the scores of the hypotheses [batch, beam]."""
        best, ids = onnx.ops("TopK", 2, logits, self.candidates, axis=-1)
        first = onnx.op("GatherElements", onnx.op("LogSoftmax", logits, axis=-1), _leading(onnx, ids), axis=-1)
        normalizer = onnx.op("Sub", _leading(onnx, best), first)  # ten times as fast as ReduceLogSumExp
        total = onnx.op("Add", onnx.op("Sub", best, normalizer), onnx.op("Unsqueeze", before, [2, 3]))
        flat = onnx.op("Concat", onnx.op("Shape", before, end=1), [-1], axis=0)
        scores, chosen = onnx.ops("TopK", 2, onnx.op("Reshape", total, flat), self.candidates, axis=-1)
        tokens = onnx.op("GatherElements", onnx.op("Reshape", ids, flat), chosen, axis=-1)
        ended = onnx.op("Equal", tokens, self.inputs.end_token)
        return Candidates(scores, tokens, onnx.op("Div", chosen, self.candidates), ended)

    def _finish(
        self, onnx: OnnxEmitter, live: Live, candidates: Candidates, last: str, done: str, length: str
    ) -> tuple[list[str], str]:
        """Move the candidates among the first `width` that end here into the pool of the `width` best finished."""
        top = self.first_of(onnx, candidates)
        ends, offered = self.ending(onnx, top, last, done, length)
        pool_scores, chosen = onnx.ops(
            "TopK", 2, onnx.op("Concat", live.pool_scores, offered, axis=-1), self.width, axis=-1
        )
        lengths = onnx.op("Add", onnx.op("Mul", live.pool_lengths, 0), length)
        both = onnx.op("Concat", live.pool_lengths, lengths, axis=-1)
        pool_lengths = onnx.op("GatherElements", both, chosen, axis=-1)
        sequences = onnx.op(
            "Concat",
            self.reorder(onnx, live.tokens, self.rows_of(onnx, top.parents)),
            onnx.op("Unsqueeze", top.tokens, [-1]),
            axis=-1,
        )
        padded = onnx.op("Pad", live.pool_tokens, [0, 0, 0, 0, 0, 1])
        every = onnx.op("Concat", padded, sequences, axis=1)
        index = onnx.op(
            "Expand",
            onnx.op("Unsqueeze", chosen, [-1]),
            onnx.op("Concat", [1, 1], onnx.op("Shape", every, start=2), axis=0),
        )
        pool_tokens = onnx.op("GatherElements", every, index, axis=1)
        count = onnx.op("ReduceSum", onnx.op("Cast", ends, to=7), [1], keepdims=0)
        return [pool_tokens, pool_lengths, pool_scores], onnx.op("Add", live.found, count)

    def ending(self, onnx: OnnxEmitter, top: Candidates, last: str, done: str, length: str) -> tuple[str, str]:
        """Which of the candidates end here, and the scores of those with their penalty; NEVER of the others."""
        ends = onnx.op("Or", top.ended, onnx.op("Unsqueeze", last, [1]))
        ends = onnx.op("And", ends, onnx.op("Not", onnx.op("Unsqueeze", done, [1])))
        penalised = onnx.op("Div", onnx.op("Add", onnx.op("Cast", length, to=1), 5.0), 6.0)
        penalty = onnx.op("Pow", penalised, self.inputs.length_penalty)
        return ends, onnx.op("Where", ends, onnx.op("Div", top.scores, penalty), NEVER)

    def first_of(self, onnx: OnnxEmitter, candidates: Candidates) -> Candidates:
        """The first `width` of the candidates."""
        names = (candidates.scores, candidates.tokens, candidates.parents, candidates.ended)
        return Candidates(*(self._first(onnx, name) for name in names))

    def _first(self, onnx: OnnxEmitter, name: str) -> str:
        return onnx.op("Slice", name, [0], self.width, [1])

    def rows_of(self, onnx: OnnxEmitter, parents: str) -> str:
        """Parents [batch, beam] as numbers of rows of a value whose batch and beam are one axis."""
        rows = onnx.op("Squeeze", onnx.op("Shape", parents, end=1))
        starts = onnx.op("Mul", onnx.op("Range", 0, rows, 1), self.width)
        return onnx.op("Add", parents, onnx.op("Unsqueeze", starts, [1]))

    def reorder(self, onnx: OnnxEmitter, name: str, rows: str) -> str:
        """A value [batch, beam, ..] with its hypotheses taken from these rows [batch, beam]."""
        tail = onnx.op("Shape", name, start=2)
        flat = onnx.op("Reshape", name, onnx.op("Concat", [-1], tail, axis=0))
        return onnx.op("Gather", flat, rows, axis=0)

    def _go_on(self, onnx: OnnxEmitter, finished: str) -> str:
        done = onnx.op("ReduceSum", onnx.op("Cast", finished, to=7), keepdims=0)
        share = onnx.op("Mul", done, FINISHED_SHARE)
        return onnx.op("Less", share, onnx.op("Size", finished))

    def _best(self, onnx: OnnxEmitter, found: _Found) -> SearchResult:
        """The n best of each sentence, without the begin token, cut to the longest."""
        zero, one = [0], [1]
        n_best = onnx.op("Unsqueeze", self.inputs.n_best, zero)
        scores = onnx.op("Slice", found.scores, zero, n_best, one)
        lengths = onnx.op("Slice", found.lengths, zero, n_best, one)
        longest = onnx.op("Unsqueeze", onnx.op("ReduceMax", lengths, keepdims=0), zero)
        ends = onnx.op("Concat", n_best, onnx.op("Add", longest, one), axis=0)
        tokens = onnx.op("Slice", found.tokens, [0, 1], ends, [1, 2])
        return SearchResult(tokens, lengths, scores)


def _leading(onnx: OnnxEmitter, name: str) -> str:
    """The first along the last axis of a value with four axes, which stays."""
    return onnx.op("Slice", name, [0], [1], [3])
