"""Beam search in fixed shapes: the definition of docs/search.md, all sentences of a batch until the last is done."""

from collections.abc import Mapping

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.rules import OnnxEmitter
from xformc.compiler.ops.keys import ROOM
from xformc.compiler.passes.step import Decoder
from xformc.compiler.search.beam import NEVER, BeamSearch, Candidates, SearchInputs
from xformc.compiler.search.fixed import PLACES, POSITION, FixedDecoder, Names, following, written
from xformc.format.tokens import BEGIN, PAD

_B, _W, _R = Axis("batch"), Axis("beam"), Axis(ROOM)
_ROWS, _FLAGS = Type("int64", (_B,)), Type("bool", (_B,))
_IDS, _SCORES = Type("int64", (_B, _W)), Type("float32", (_B, _W))
_TOKENS = Type("int64", (_B, _W, _R))
_OPTIONS: Mapping[str, Type] = {
    "length_penalty": Type("float32"),
    "max_length_factor": Type("float32"),
    "max_length_offset": Type("int64"),
    "end_token": Type("int64"),
}


class FixedBeamSearch:
    """The search of a decoder that has the axis `beam` and fixed caches; a `FixedSearch`.

    Its inputs `places` and `ranks` count the positions that there is room for and the hypotheses. The carried
    `hypotheses` and `open_scores` are those that are still open, `newest` their last tokens; `tokens`, `lengths` and
    `scores` the best that are finished, and `found` how many were.
    """

    def __init__(self, decoder: Decoder) -> None:
        self.decoder = FixedDecoder(decoder)
        (source,) = decoder.given
        self.source = source.name
        self.inputs = {source.name: source.type, "places": PLACES, "ranks": Type("int64", (_W,)), **_OPTIONS}
        self.constants = {"limit": _ROWS, **self.decoder.constants}
        self.results = {"tokens": _TOKENS, "lengths": _IDS, "scores": _SCORES}
        search = {"position": POSITION, "done": _FLAGS, "newest": _IDS, "hypotheses": _TOKENS, "open_scores": _SCORES}
        self.carried = {**search, **self.results, "found": _ROWS, **self.decoder.states}

    def prepare(self, onnx: OnnxEmitter) -> list[str]:
        """See `FixedSearch`."""
        batch = onnx.op("Shape", self.source, start=0, end=1)
        width, room = onnx.op("Shape", "ranks"), onnx.op("Shape", "places")
        limit = onnx.op("Min", _Step(onnx, self, {name: name for name in self.inputs}).limit_of_source(onnx), room)
        constants, states = self.decoder.prepare(onnx, {"batch": batch, "beam": width, ROOM: room})
        shape = onnx.op("Concat", batch, width, axis=0)
        empty = onnx.op("Expand", PAD, onnx.op("Concat", shape, room, axis=0))
        zeros, nothing = onnx.op("Expand", 0, shape), onnx.op("Expand", NEVER, shape)
        first = onnx.op("Expand", onnx.op("Where", onnx.op("Equal", "ranks", 0), 0.0, NEVER), shape)
        begin = onnx.op("Expand", BEGIN, shape)
        done, found = onnx.op("Less", limit, 0), onnx.op("Expand", 0, batch)
        search = [onnx.op("Squeeze", [0]), done, begin, empty, first, empty, zeros, nothing, found]
        return [limit, *constants, *search, *states]

    def step(self, onnx: OnnxEmitter, names: Names) -> tuple[str, list[str]]:
        """See `FixedSearch`."""
        return _Step(onnx, self, names).turn(onnx)


class _Step(BeamSearch):
    """One step of the search; candidates and order of hypotheses are those of `BeamSearch`."""

    def __init__(self, onnx: OnnxEmitter, search: FixedBeamSearch, names: Names) -> None:
        width = onnx.op("Squeeze", onnx.op("Shape", names["ranks"]))
        options = {name: names[name] for name in _OPTIONS}
        inputs = SearchInputs(names.get(search.source, ""), width, width, **options)
        super().__init__(onnx, search.decoder.decoder, inputs, None)
        self.search, self.names = search, names

    def turn(self, onnx: OnnxEmitter) -> tuple[str, list[str]]:
        """Whether another step is wanted, and the new carried values."""
        names, places = self.names, self.names["places"]
        position, done = names["position"], names["done"]
        token = onnx.op("Unsqueeze", names["newest"], [2])
        logits, states = self.search.decoder.step(onnx, names, token)
        candidates = self.candidates_of(onnx, logits, names["open_scores"])
        length = onnx.op("Add", position, 1)
        last = onnx.op("LessOrEqual", names["limit"], length)
        pool, found = self._offer(onnx, candidates, last, length)
        finished = onnx.op("Or", onnx.op("Or", done, last), onnx.op("GreaterOrEqual", found, self.width))
        scores, chosen = onnx.ops(
            "TopK", 2, onnx.op("Where", candidates.ended, NEVER, candidates.scores), self.width, axis=-1
        )
        rows = self.rows_of(onnx, onnx.op("GatherElements", candidates.parents, chosen, axis=-1))
        newest = onnx.op("GatherElements", candidates.tokens, chosen, axis=-1)
        kept = self.reorder(onnx, names["hypotheses"], rows)
        hypotheses = written(onnx, places, position, onnx.op("Unsqueeze", newest, [2]), kept)
        moved = [self.reorder(onnx, name, rows) for name in states]
        waiting = onnx.op("ReduceMax", onnx.op("Cast", onnx.op("Not", finished), to=7), keepdims=0)
        new = [following(onnx, places, position), finished, newest, hypotheses, scores, *pool, found, *moved]
        return onnx.op("Greater", waiting, 0), new

    def _offer(self, onnx: OnnxEmitter, candidates: Candidates, last: str, length: str) -> tuple[list[str], str]:
        """The `width` best of what was finished before and of the candidates that end here; how many have ended."""
        names = self.names
        top = self.first_of(onnx, candidates)
        ends, offered = self.ending(onnx, top, last, names["done"], length)
        both = onnx.op("Concat", names["scores"], offered, axis=-1)
        scores, chosen = onnx.ops("TopK", 2, both, self.width, axis=-1)
        there = onnx.op("Greater", scores, NEVER)
        lengths = onnx.op("Concat", names["lengths"], onnx.op("Expand", length, onnx.op("Shape", offered)), axis=-1)
        lengths = onnx.op("Where", there, onnx.op("GatherElements", lengths, chosen, axis=-1), 0)
        kept = self.reorder(onnx, names["hypotheses"], self.rows_of(onnx, top.parents))
        sequences = written(onnx, names["places"], names["position"], onnx.op("Unsqueeze", top.tokens, [2]), kept)
        every = onnx.op("Concat", names["tokens"], sequences, axis=1)
        index = onnx.op("Expand", onnx.op("Unsqueeze", chosen, [2]), onnx.op("Shape", names["tokens"]))
        tokens = onnx.op("GatherElements", every, index, axis=1)
        tokens = onnx.op("Where", onnx.op("Unsqueeze", there, [2]), tokens, PAD)
        count = onnx.op("ReduceSum", onnx.op("Cast", ends, to=7), [1], keepdims=0)
        return [tokens, lengths, scores], onnx.op("Add", names["found"], count)
