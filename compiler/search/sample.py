"""Sampling around a derived step, as ONNX operators: the second half of docs/search.md; temperature 0 is greedy.

Two loops over positions. The first reads the tokens that every prompt of the batch has, for the states alone; the
second reads on where a prompt is longer, and samples where it has ended.
"""

from dataclasses import dataclass, replace

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.graph import Graph, Value, pruned
from xformc.compiler.graph.rules import OnnxEmitter, Turn
from xformc.compiler.ops.native import AttendCached
from xformc.compiler.passes.step import Decoder
from xformc.compiler.search.kernel_beam import emit_resident
from xformc.compiler.search.random_numbers import emit_stream, emit_uniform
from xformc.compiler.search.states import emit_positions, emit_states
from xformc.format.tokens import BEGIN, PAD

_B = Axis("batch")
_ROWS, _SUMS, _FLAGS = Type("int64", (_B,)), Type("float32", (_B,)), Type("bool", (_B,))
_INT64, _FLOAT = 7, 1
NEVER = float("-inf")


@dataclass(frozen=True)
class SampleInputs:
    """The ONNX names of the inputs of sampling; see docs/search.md for what they mean."""

    prompt: str
    seed: str
    max_new_tokens: str
    temperature: str
    top_k: str
    top_p: str
    end_token: str


@dataclass(frozen=True)
class SampleResult:
    """The ONNX names of the continuations: tokens [batch, length], lengths and scores [batch]."""

    tokens: str
    lengths: str
    scores: str


@dataclass(frozen=True)
class _Row:
    """What the second loop carries for each text, beside the states: the token to feed and what was sampled."""

    newest: str
    done: str
    lengths: str
    scores: str


def emit_sampling(onnx: OnnxEmitter, decoder: Decoder, inputs: SampleInputs, longest: int | None) -> SampleResult:
    """Write prepare, the reading of the prompts, and the sampling.

    `longest` is the most positions that the model has, if there is a bound.
    """
    return _Sampling(onnx, decoder, inputs, longest).emit()


class _Sampling:
    def __init__(self, onnx: OnnxEmitter, decoder: Decoder, inputs: SampleInputs, longest: int | None) -> None:
        self.root, self.decoder, self.inputs, self.longest = onnx, decoder, inputs, longest
        self.state_types = [state.past.type for state in decoder.states]
        self.stream = emit_stream(onnx, inputs.seed)
        self.greedy = onnx.op("Equal", inputs.temperature, 0.0)
        self.temperature = onnx.op("Where", self.greedy, 1.0, inputs.temperature)
        best, nucleus = onnx.op("Greater", inputs.top_k, 0), onnx.op("Less", inputs.top_p, 1.0)
        (vocabulary,) = Type("float32", decoder.logits.type.axes[-1:]).sizes()
        ranked = onnx.op("Where", nucleus, vocabulary, 1)
        ranked = onnx.op("Where", best, onnx.op("Min", inputs.top_k, vocabulary), ranked)
        self.ranked = onnx.op("Unsqueeze", onnx.op("Where", self.greedy, 1, ranked), [0])
        self.reach = onnx.op("Where", nucleus, inputs.top_p, 2.0)
        self.filtered = onnx.op("Or", self.greedy, onnx.op("Or", best, nucleus))

    def emit(self) -> SampleResult:
        onnx, prompt = self.root, self.inputs.prompt
        onnx.bind(Value("prompt", Type("int64", (_B, Axis("prompt")))), prompt)
        self.texts = onnx.op("Pad", onnx.op("Pad", prompt, [0, 1, 0, 0], BEGIN), [0, 0, 0, 1], PAD)
        self.given = onnx.op("ReduceSum", onnx.op("Cast", _real(onnx, self.texts), to=_INT64), [1], keepdims=0)
        longest = onnx.op("Sub", onnx.op("ReduceMax", self.given, keepdims=0), 1)
        positions = onnx.op("Add", longest, self.inputs.max_new_tokens)
        if self.longest is not None:
            positions = onnx.op("Min", positions, self.longest)
        prepared = onnx.graph(self.decoder.prepare, emit_positions(onnx, self.decoder, positions))
        self.constants = dict(zip((value.name for value in self.decoder.prepared), prepared, strict=True))
        batch, capacity = onnx.op("Shape", prompt, start=0, end=1), onnx.op("Unsqueeze", positions, [0])
        self.resident = emit_resident(onnx, self.decoder.resident, batch, capacity)
        shortest = onnx.op("Sub", onnx.op("ReduceMin", self.given, keepdims=0), 1)
        self.start, states = self._read(onnx, onnx.op("Min", shortest, positions))
        return self._sample(onnx, onnx.op("Sub", positions, self.start), states)

    def _read(self, onnx: OnnxEmitter, trips: str) -> tuple[str, tuple[str, ...]]:
        """How many tokens were read, the first `trips` of them, which every text has, and the states after them."""
        if not self.decoder.states and self.decoder.resident is None:
            return trips, ()
        batch = onnx.op("Shape", self.inputs.prompt, start=0, end=1)
        initial = emit_states(onnx, self.decoder, {"batch": batch}, self.constants)
        step = self.decoder.step
        written = (node.outputs[0] for node in step.nodes if isinstance(node.op, AttendCached))
        silent = pruned(replace(step, outputs=(*step.outputs[1:], *written)))

        def body(scope: OnnxEmitter, iteration: str, states: list[str]) -> Turn:
            token = scope.op("Gather", self.texts, iteration, axis=1)
            results = self._step(scope, silent, token, iteration, states[1:])
            return scope.op("Identity", True), [scope.op("Add", iteration, 1), *results[: len(states) - 1]], []

        carried = [(Type("int64"), 0), *zip(self.state_types, initial, strict=True)]
        read, *states = onnx.loop(trips, carried, body, frozenset({"batch"}))
        return read, tuple(states)

    def _sample(self, onnx: OnnxEmitter, trips: str, states: tuple[str, ...]) -> SampleResult:
        zeros = onnx.op("Sub", self.given, self.given)
        nothing = onnx.op("Cast", zeros, to=_FLOAT)
        row = [onnx.op("Gather", self.texts, self.start, axis=1), onnx.op("Greater", zeros, 0), zeros, nothing]
        types = [_ROWS, _FLAGS, _ROWS, _SUMS, *self.state_types]
        carried = list(zip(types, [*row, *states], strict=True))

        def body(scope: OnnxEmitter, iteration: str, names: list[str]) -> Turn:
            return self._turn(scope, scope.op("Add", iteration, self.start), _Row(*names[:4]), names[4:])

        results = onnx.loop(trips, carried, body, frozenset({"batch"}))
        return self._continuations(onnx, results[-1], lengths=results[2], scores=results[3])

    def _turn(self, onnx: OnnxEmitter, position: str, row: _Row, states: list[str]) -> Turn:
        logits, *states = self._step(onnx, self.decoder.step, row.newest, position, states)
        logits = onnx.op("Squeeze", logits, [1])
        place = onnx.op("Add", position, 1)
        highest = onnx.op("ReduceMax", logits, [1], keepdims=1)
        below = onnx.op("Sub", logits, highest)
        drawn = self._draw(onnx, below, emit_uniform(onnx, self.stream, place))
        last = onnx.op("Sub", onnx.op("Squeeze", onnx.op("Shape", self.texts, start=1), [0]), 1)
        given = onnx.op("Gather", self.texts, onnx.op("Min", place, last), axis=1)
        reading = _real(onnx, given)
        sampled = onnx.op("Not", onnx.op("Or", reading, row.done))
        token = onnx.op("Where", sampled, drawn, given)
        lengths = onnx.op("Add", row.lengths, onnx.op("Cast", sampled, to=_INT64))
        total = onnx.op("ReduceSum", onnx.op("Exp", below), [1], keepdims=0)
        gain = onnx.op("Sub", _at(onnx, below, drawn), onnx.op("Log", total))
        scores = onnx.op("Add", row.scores, onnx.op("Where", sampled, gain, 0.0))
        ended = onnx.op("And", sampled, onnx.op("Equal", token, self.inputs.end_token))
        full = onnx.op("GreaterOrEqual", lengths, self.inputs.max_new_tokens)
        done = onnx.op("Or", row.done, onnx.op("Or", ended, full))
        waiting = onnx.op("ReduceMax", onnx.op("Cast", onnx.op("Not", done), to=_INT64), keepdims=0)
        return onnx.op("Greater", waiting, 0), [token, done, lengths, scores, *states], [(_ROWS, token)]

    def _step(self, onnx: OnnxEmitter, step: Graph, token: str, position: str, states: list[str]) -> list[str]:
        names = {value.name: self.constants[value.name] for value in self.decoder.constants}
        names |= {self.decoder.token.name: onnx.op("Unsqueeze", token, [1]), self.decoder.position.name: position}
        names |= self.resident
        names |= {state.past.name: name for state, name in zip(self.decoder.states, states, strict=True)}
        return list(onnx.graph(step, names))

    def _draw(self, onnx: OnnxEmitter, below: str, uniform: str) -> str:
        """The token drawn for each text, [batch]; `below` is how far each logit is below the highest of its text."""
        threshold = onnx.op("Where", self.filtered, self._threshold(onnx, below), NEVER)
        weights = onnx.op("Exp", onnx.op("Div", below, self.temperature))
        weights = onnx.op("Where", onnx.op("GreaterOrEqual", below, threshold), weights, 0.0)
        reached = onnx.op("CumSum", weights, 1)
        goal = onnx.op("Mul", onnx.op("Unsqueeze", uniform, [1]), onnx.op("Slice", reached, [-1], [2**31], [1]))
        goal = onnx.op("Where", self.greedy, 0.0, goal)
        return onnx.op("Squeeze", _count(onnx, "LessOrEqual", reached, goal), [1])

    def _threshold(self, onnx: OnnxEmitter, below: str) -> str:
        """The lowest of the values that may be drawn, [batch, 1]."""
        best, _ = onnx.ops("TopK", 2, below, self.ranked, axis=1)
        reached = onnx.op("CumSum", onnx.op("Softmax", onnx.op("Div", best, self.temperature), axis=1), 1)
        last = onnx.op("Min", _count(onnx, "Less", reached, self.reach), onnx.op("Sub", self.ranked, 1))
        return onnx.op("GatherElements", best, last, axis=1)

    def _continuations(self, onnx: OnnxEmitter, steps: str, *, lengths: str, scores: str) -> SampleResult:
        """What each text was continued by: of the tokens [steps, batch], those after its own."""
        longest = onnx.op("ReduceMax", lengths, keepdims=0)
        ranks = onnx.op("Range", 0, longest, 1)
        first = onnx.op("Sub", onnx.op("Sub", self.given, 1), self.start)
        places = onnx.op("Add", onnx.op("Unsqueeze", first, [1]), ranks)
        last = onnx.op("Sub", onnx.op("Shape", steps, start=0, end=1), 1)
        taken = onnx.op(
            "GatherElements", onnx.op("Transpose", steps, perm=[1, 0]), onnx.op("Min", places, last), axis=1
        )
        inside = onnx.op("Less", ranks, onnx.op("Unsqueeze", lengths, [1]))
        return SampleResult(onnx.op("Where", inside, taken, PAD), lengths, scores)


def _real(onnx: OnnxEmitter, tokens: str) -> str:
    return onnx.op("Not", onnx.op("Equal", tokens, PAD))


def _at(onnx: OnnxEmitter, values: str, tokens: str) -> str:
    """The value of each text's token: of [batch, vocabulary] by [batch], [batch]."""
    taken = onnx.op("GatherElements", values, onnx.op("Unsqueeze", tokens, [1]), axis=1)
    return onnx.op("Squeeze", taken, [1])


def _count(onnx: OnnxEmitter, comparison: str, values: str, bound: str) -> str:
    """How many of the values [batch, ..] compare so with the bound: [batch, 1]. Floats are the fastest to add up."""
    compared = onnx.op("Cast", onnx.op(comparison, values, bound), to=_FLOAT)
    return onnx.op("Cast", onnx.op("ReduceSum", compared, [1], keepdims=1), to=_INT64)
