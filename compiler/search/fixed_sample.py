"""Sampling in fixed shapes: the definition of docs/search.md, with random numbers that a runtime draws.

Of the filters that choose what may be drawn only their threshold is computed, by narrowing an interval: there is no
list of the best tokens, whose length would depend on data.
"""

from collections.abc import Mapping

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.rules import OnnxEmitter
from xformc.compiler.ops.keys import ROOM
from xformc.compiler.passes.step import Decoder
from xformc.compiler.search.fixed import PLACES, POSITION, FixedDecoder, Names, following, written
from xformc.format.tokens import BEGIN, PAD

_B, _R = Axis("batch"), Axis(ROOM)
_ROWS, _FLAGS, _SUMS = Type("int64", (_B,)), Type("bool", (_B,)), Type("float32", (_B,))
_TOKENS = Type("int64", (_B, _R))
_OPTIONS: Mapping[str, Type] = {
    "max_new_tokens": Type("int64"),
    "temperature": Type("float32"),
    "top_k": Type("int64"),
    "top_p": Type("float32"),
    "end_token": Type("int64"),
}
_FLOAT, _INT64 = 1, 7
NEVER = float("-inf")
PARTS, ROUNDS = 16, 9
"""An interval of logits is cut into so many parts, so often: 2^8 wide at first, it is 2^-28 wide at the end. Two logits
that near to each other count as equal."""


class FixedSampling:
    """Sampling from a decoder that has fixed caches; a `FixedSearch`.

    Its input `prompt` is padded to the room, and `draws` has the random number of each row at each place. The carried
    `newest` is the token to feed, `done` whether the text has ended; `tokens`, `lengths` and `scores` are what was
    sampled.
    """

    def __init__(self, decoder: Decoder) -> None:
        self.decoder = FixedDecoder(decoder)
        self.inputs = {"prompt": _TOKENS, "draws": Type("float32", (_B, _R)), "places": PLACES, **_OPTIONS}
        self.constants = self.decoder.constants
        self.results = {"tokens": _TOKENS, "lengths": _ROWS, "scores": _SUMS}
        self.carried = {
            **{"position": POSITION, "newest": _ROWS, "done": _FLAGS},
            **self.results,
            **self.decoder.states,
        }

    def prepare(self, onnx: OnnxEmitter) -> list[str]:
        """See `FixedSearch`."""
        batch, room = onnx.op("Shape", "prompt", start=0, end=1), onnx.op("Shape", "places")
        constants, states = self.decoder.prepare(onnx, {"batch": batch, ROOM: room})
        zeros, begin = onnx.op("Expand", 0, batch), onnx.op("Expand", BEGIN, batch)
        empty = onnx.op("Expand", PAD, onnx.op("Concat", batch, room, axis=0))
        done, nothing = onnx.op("Less", zeros, 0), onnx.op("Expand", 0.0, batch)
        return [*constants, onnx.op("Squeeze", [0]), begin, done, empty, zeros, nothing, *states]

    def step(self, onnx: OnnxEmitter, names: Names) -> tuple[str, list[str]]:
        """See `FixedSearch`."""
        position, places = names["position"], names["places"]
        logits, states = self.decoder.step(onnx, names, onnx.op("Unsqueeze", names["newest"], [1]))
        logits = onnx.op("Squeeze", logits, [1])
        below = onnx.op("Sub", logits, onnx.op("ReduceMax", logits, [1], keepdims=1))
        drawn = self._draw(onnx, names, below, _here(onnx, names["draws"], position))
        given = _here(onnx, names["prompt"], position)
        reading = onnx.op("Not", onnx.op("Equal", given, PAD))
        sampled = onnx.op("Not", onnx.op("Or", reading, names["done"]))
        token = onnx.op("Where", sampled, drawn, given)
        total = onnx.op("ReduceSum", onnx.op("Exp", below), [1], keepdims=0)
        gain = onnx.op("Sub", _at(onnx, below, drawn), onnx.op("Log", total))
        scores = onnx.op("Add", names["scores"], onnx.op("Where", sampled, gain, 0.0))
        before = onnx.op("Unsqueeze", names["lengths"], [1])
        column, old = onnx.op("Unsqueeze", token, [1]), names["tokens"]
        tokens = onnx.op("Where", onnx.op("Unsqueeze", sampled, [1]), written(onnx, places, before, column, old), old)
        lengths = onnx.op("Add", names["lengths"], onnx.op("Cast", sampled, to=_INT64))
        ended = onnx.op("And", sampled, onnx.op("Equal", token, names["end_token"]))
        full = onnx.op("GreaterOrEqual", lengths, names["max_new_tokens"])
        last = onnx.op("GreaterOrEqual", onnx.op("Add", position, 1), onnx.op("Squeeze", onnx.op("Shape", places)))
        done = onnx.op("Or", onnx.op("Or", names["done"], last), onnx.op("Or", ended, full))
        waiting = onnx.op("ReduceMax", onnx.op("Cast", onnx.op("Not", done), to=_INT64), keepdims=0)
        new = [following(onnx, places, position), token, done, tokens, lengths, scores, *states]
        return onnx.op("Greater", waiting, 0), new

    def _draw(self, onnx: OnnxEmitter, names: Names, below: str, uniform: str) -> str:
        """The token drawn for each text, [batch]; `below` is how far each logit is below the highest of its text."""
        greedy = onnx.op("Equal", names["temperature"], 0.0)
        temperature = onnx.op("Where", greedy, 1.0, names["temperature"])
        weights = onnx.op("Exp", onnx.op("Div", below, temperature))
        threshold = onnx.op("Where", greedy, 0.0, self._threshold(onnx, names, below, weights, temperature))
        weights = onnx.op("Where", onnx.op("GreaterOrEqual", below, threshold), weights, 0.0)
        reached = onnx.op("CumSum", weights, 1)
        goal = onnx.op("Mul", onnx.op("Unsqueeze", uniform, [1]), onnx.op("ReduceMax", reached, [1], keepdims=1))
        goal = onnx.op("Where", greedy, 0.0, goal)
        return onnx.op("Cast", _sum(onnx, onnx.op("LessOrEqual", reached, goal), keepdims=0), to=_INT64)

    def _threshold(self, onnx: OnnxEmitter, names: Names, below: str, weights: str, temperature: str) -> str:
        """The lowest of the values that may be drawn, [batch, 1].

        First the `top_k`-th highest; then the one at which the best reach the share `top_p` of the weight that the
        `top_k` highest have.
        """
        (vocabulary,) = Type("float32", self.decoder.decoder.logits.type.axes[-1:]).sizes()
        all_of_them = onnx.op("Equal", names["top_k"], 0)
        wanted = onnx.op("Where", all_of_them, vocabulary, onnx.op("Min", names["top_k"], vocabulary))
        wanted = onnx.op("Cast", wanted, to=_FLOAT)
        ones = onnx.op("Cast", onnx.op("LessOrEqual", below, 0.0), to=_FLOAT)
        best = _highest(onnx, below, ones, wanted)
        above = onnx.op("Greater", below, best)
        alike = onnx.op("Sub", wanted, _sum(onnx, above, keepdims=1))
        alike = onnx.op("Mul", alike, onnx.op("Exp", onnx.op("Div", best, temperature)))
        whole = onnx.op("Add", onnx.op("ReduceSum", onnx.op("Where", above, weights, 0.0), [1], keepdims=1), alike)
        nucleus = _highest(onnx, below, weights, onnx.op("Mul", whole, names["top_p"]))
        return onnx.op("Where", onnx.op("Less", names["top_p"], 1.0), onnx.op("Max", best, nucleus), best)


def _highest(onnx: OnnxEmitter, values: str, weights: str, wanted: str) -> str:
    """The highest of the values [batch, n] such that those at or above it have the wanted weight together: [batch, 1].

    The values are 0 and below; `wanted` is [batch, 1] or has no axes, and at most the weight of all.
    """
    low, high = onnx.op("ReduceMin", values, [1], keepdims=1), onnx.op("ReduceMax", values, [1], keepdims=1)
    cuts = [index / PARTS for index in range(1, PARTS)]
    column, weight = onnx.op("Unsqueeze", values, [2]), onnx.op("Unsqueeze", weights, [2])
    for _ in range(ROUNDS):
        bounds = onnx.op("Add", low, onnx.op("Mul", onnx.op("Sub", high, low), cuts))
        inside = onnx.op("GreaterOrEqual", column, onnx.op("Unsqueeze", bounds, [1]))
        reached = onnx.op("ReduceSum", onnx.op("Where", inside, weight, 0.0), [1], keepdims=0)
        enough = onnx.op("GreaterOrEqual", reached, wanted)
        high = onnx.op("ReduceMin", onnx.op("Where", enough, high, bounds), [1], keepdims=1)
        below = onnx.op("And", enough, onnx.op("Less", bounds, high))
        low = onnx.op("ReduceMax", onnx.op("Where", below, bounds, low), [1], keepdims=1)
    return onnx.op("ReduceMin", onnx.op("Where", onnx.op("GreaterOrEqual", values, low), values, 0.0), [1], keepdims=1)


def _here(onnx: OnnxEmitter, values: str, position: str) -> str:
    """The numbers [batch] of [batch, room] at the position."""
    return onnx.op("Gather", values, position, axis=1)


def _at(onnx: OnnxEmitter, values: str, tokens: str) -> str:
    """The value of each text's token: of [batch, vocabulary] by [batch], [batch]."""
    return onnx.op("Squeeze", onnx.op("GatherElements", values, onnx.op("Unsqueeze", tokens, [1]), axis=1), [1])


def _sum(onnx: OnnxEmitter, flags: str, *, keepdims: int) -> str:
    return onnx.op("ReduceSum", onnx.op("Cast", flags, to=_FLOAT), [1], keepdims=keepdims)
