"""Sampling as ONNX operators around a derived step, as defined in docs/search.md; temperature 0 is greedy.

There are two loops. The first reads the tokens up to the length of the shortest prompt, many at a time, only to update
the states. The second goes on position by position: it reads longer prompts, and samples after the end of a prompt.
"""

from dataclasses import dataclass, replace

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.graph import Value, pruned
from xformc.compiler.graph.rules import OnnxEmitter, Operand
from xformc.compiler.ops.native import DOMAIN, AttendCached
from xformc.compiler.passes.step import Decoder
from xformc.compiler.search.carried import NEVER, Integer, Tokens
from xformc.compiler.search.decoder_step import (
    emit_positions,
    emit_prepare,
    emit_resident,
    emit_states,
    emit_step,
    state_types,
    step_inputs,
)
from xformc.compiler.search.draw_token import (
    Temperature,
    Text,
    append_token,
    below_highest,
    count,
    cumulate,
    draw,
    emit_fed,
    emit_temperature,
    ended_texts,
    log_probability,
    real,
    subtract_highest,
    vocabulary_of,
    weigh,
)
from xformc.compiler.search.edits import EditInputs, Edits, edit_scores, edits_at_first, emit_edits
from xformc.compiler.search.loops import Collected, Names, Record, emit_loop, fields_of, some_open
from xformc.compiler.search.parts import READ_TOGETHER, emit_parts
from xformc.compiler.search.random_numbers import emit_stream, emit_uniform
from xformc.format.tokens import SpecialTokens

_INT64, _FLOAT = 7, 1
READ_AT_LEAST = 16
"""The minimum number of tokens of each prompt that are read at once."""

KEPT = frozenset({"batch"})
"""The axes with constant sizes in the loops."""


@dataclass(frozen=True)
class SampleInputs:
    """The ONNX names of the inputs of sampling, as defined in docs/search.md.

    Options have a row for each text, or one for all. `suppress_first` are tokens that never come right after a prompt.
    kernels: draw by the operator of docs/kernels.md.
    """

    prompt: str
    seed: str
    max_new_tokens: str
    temperature: str
    top_k: str
    top_p: str
    end_token: str
    edits: EditInputs
    suppress_first: tuple[int, ...] = ()
    kernels: bool = False


@dataclass(frozen=True)
class SampleResult:
    """The ONNX names of the continuations: tokens [batch, length], lengths and scores [batch]."""

    tokens: str
    lengths: str
    scores: str


@dataclass(frozen=True)
class Prompts:
    """The begin token, if any, and the tokens of each prompt, [batch, length], and their number, [batch]."""

    tokens: str
    lengths: str
    special: SpecialTokens


@dataclass(frozen=True)
class _Filters:
    """The filters of the tokens to draw: the number of best tokens to rank, the share of their weight to reach, and
    whether there is a threshold at all, [rows, 1] each; `most` is the largest number to rank, as a vector. `any`:
    whether any text has a filter, besides that of temperature 0."""

    temperature: Temperature
    ranked: str
    most: str
    reach: str
    filtered: str
    any: str


@dataclass(frozen=True)
class _Reading(Record):
    """The carried values of the first loop."""

    position: Integer
    state: Names


@dataclass(frozen=True)
class Sampling(Record):
    """The carried values of the second loop; `read` [batch, length] are all tokens so far, if scores are edited."""

    text: Text
    read: Tokens
    state: Names


@dataclass(frozen=True)
class Begun:
    """Prompts that have been read as far as all of them go: what the steps know, the states, and the texts.

    positions: the number of tokens to feed for the longest text. start: the position of the next one.
    """

    prompts: Prompts
    positions: str
    start: str
    known: Names
    now: Sampling


@dataclass(frozen=True)
class Sampler:
    """Samples one token of each text: the decoder and what its steps know, the prompts [batch, length] with their begin
    token, or None if the texts go on behind them, and the options. `kept` is 1 if scores are edited, else 0, as a
    vector. `padded`: shorter texts have negative numbers in front. `first`: the place of the first token after each
    prompt, [batch], if some tokens are suppressed there."""

    decoder: Decoder
    known: Names
    prompts: str | None
    stream: str
    filters: _Filters
    edits: Edits
    kept: str
    inputs: SampleInputs
    padded: bool = False
    first: str | None = None

    def enter(self, onnx: OnnxEmitter, now: Sampling) -> Sampling:
        """Write the values that enter the loop: without the tokens so far, if no scores are edited."""
        length = onnx.op("Mul", self.kept, onnx.op("Shape", now.read, start=1))
        return replace(now, read=onnx.op("Slice", now.read, [0], length, [1]))

    def turn(self, onnx: OnnxEmitter, position: str, now: Sampling) -> Sampling:
        """Write the step at a position, or at that of each text; return the texts and the states after it."""
        logits, state = _step(onnx, self.decoder, now.text.newest, position, {**self.known, **now.state})
        return self.write(onnx, logits, position, replace(now, state=state))

    def write(self, onnx: OnnxEmitter, logits: str, position: str, now: Sampling) -> Sampling:
        """Write how the texts go on by the logits [batch, 1, vocabulary] of a position."""
        special = self.decoder.written
        place = onnx.op("Add", position, 1)
        uniform = emit_uniform(onnx, self.stream, place)
        edits = self.edits
        if self.first is not None:
            here = onnx.op("Equal", self.first, place)
            edits = edits_at_first(onnx, edits, self.inputs.suppress_first, here)
        drawn = (self._drawn if self.inputs.kernels else self._draw)(onnx, logits, now.read, uniform, edits)
        given = onnx.operand(special.absent) if self.prompts is None else _given(onnx, self.prompts, place)
        sampled, text = append_token(onnx, now.text, given, drawn, special)
        done = ended_texts(onnx, text, sampled, self.inputs.end_token, self.inputs.max_new_tokens, special)
        newest = onnx.op("Slice", onnx.op("Unsqueeze", text.newest, [1]), [0], self.kept, [1])
        read = onnx.op("Concat", now.read, newest, axis=1)
        return Sampling(replace(text, done=done), read, now.state)

    def _drawn(self, onnx: OnnxEmitter, logits: str, read: str, uniform: str, edits: Edits) -> tuple[str, str]:
        """As `_draw`, by the kernel."""

        def edited(scope: OnnxEmitter) -> tuple[str, ...]:
            changed, highest = self._changed(scope, logits, read, edits)
            scores = scope.op("Squeeze", logits, [1])
            return by_kernel(scope, scope.op("Where", scope.op("Equal", highest, NEVER), scores, changed))

        def by_kernel(scope: OnnxEmitter, scores: str | None = None) -> tuple[str, ...]:
            def threshold(inner: OnnxEmitter) -> str:
                below = below_highest(inner, logits) if scores is None else subtract_highest(inner, scores)
                return _threshold(inner, below, self.filters)

            least = scope.either(self.filters.any, threshold, lambda inner: inner.operand(NEVER))
            more = () if scores is None else (scores,)
            return scope.ops("DrawToken", 2, logits, uniform, self.inputs.temperature, least, *more, domain=DOMAIN)

        token, gain = onnx.choose(edits.used, edited, by_kernel, ("int64", "float32"))
        return token, gain

    def _changed(self, onnx: OnnxEmitter, logits: str, read: str, edits: Edits) -> tuple[str, str]:
        """The logits after the edits [batch, vocabulary], and their highest [batch, 1]."""
        changed = edit_scores(onnx, onnx.op("Squeeze", logits, [1]), read, edits.inputs, padded=self.padded)
        return changed, onnx.op("ReduceMax", changed, [1], keepdims=1)

    def _draw(self, onnx: OnnxEmitter, logits: str, read: str, uniform: str, edits: Edits) -> tuple[str, str]:
        """The token drawn for each text, by its logits after the edits, if there are any, [batch], and its log
        probability by the logits before them. If all tokens are banned, the edits do not hold.

        logits: [batch, 1, vocabulary].
        """
        below = below_highest(onnx, logits)

        def edited(scope: OnnxEmitter) -> tuple[str, ...]:
            changed, highest = self._changed(scope, logits, read, edits)
            changed = scope.op("Where", scope.op("Equal", highest, NEVER), below, scope.op("Sub", changed, highest))
            return (_draw(scope, changed, uniform, self.filters),)

        def plain(scope: OnnxEmitter) -> tuple[str, ...]:
            return (_draw(scope, below, uniform, self.filters),)

        (drawn,) = onnx.choose(edits.used, edited, plain, ("int64",))
        return drawn, log_probability(onnx, below, drawn, vocabulary_of(self.decoder))


Continued = tuple[SampleResult, Names]
"""The continuations, and the names of the decoder's heads."""


def emit_sampling(onnx: OnnxEmitter, decoder: Decoder, inputs: SampleInputs, longest: int | None) -> Continued:
    """Write prepare, the loop that reads the prompts, and the sampling loop.

    The model's inputs have the names that they have in the decoder. `longest` is the maximum number of positions of the
    model, or None.
    """
    begun = emit_begun(onnx, decoder, inputs.prompt, inputs.max_new_tokens, longest)
    sampler, types = emit_sampler(onnx, decoder, inputs, begun.known, begun.prompts.tokens), sampling_types(decoder)
    sampler = replace(sampler, first=begun.prompts.lengths) if inputs.suppress_first else sampler

    def body(scope: OnnxEmitter, iteration: str, now: Sampling) -> tuple[str, Sampling, Collected]:
        after = sampler.turn(scope, scope.op("Add", iteration, begun.start), now)
        return some_open(scope, after.text.done), after, [(types["text_newest"], after.text.newest)]

    trips = onnx.op("Sub", begun.positions, begun.start)
    last, (steps,) = emit_loop(onnx, trips, types, sampler.enter(onnx, begun.now), body, KEPT)
    heads = {value.name: begun.known[value.name] for value in decoder.heads}
    return _continuations(onnx, begun.prompts, begun.start, steps, last.text), heads


def emit_begun(
    onnx: OnnxEmitter, decoder: Decoder, prompt: str, max_new_tokens: str, longest: int | None, *, named: bool = False
) -> Begun:
    """Write prepare and the loop that reads the prompts. `named`: caches have the names of their values."""
    prompts = emit_prompts(onnx, prompt, decoder.written)
    positions = _count_positions(onnx, prompts, max_new_tokens, longest)
    given = {value.name: value.name for value in decoder.given}
    known = emit_prepare(onnx, decoder, given | emit_positions(onnx, decoder, positions))
    batch, capacity = onnx.op("Shape", prompt, start=0, end=1), onnx.op("Unsqueeze", positions, [0])
    known |= emit_resident(onnx, decoder.resident, batch, capacity, named=named)
    states = emit_states(onnx, decoder, {"batch": batch}, known)
    shortest = onnx.op("Sub", onnx.op("ReduceMin", prompts.lengths, keepdims=0), 1)
    given = prompts.tokens, onnx.op("Min", shortest, positions)
    start, states = read_together(onnx, decoder, known, states, given, KEPT)
    read = onnx.op("Slice", prompts.tokens, [0], onnx.op("Unsqueeze", onnx.op("Add", start, 1), [0]), [1])
    return Begun(prompts, positions, start, known, Sampling(_first_text(onnx, prompts, start), read, states))


def emit_sampler(
    onnx: OnnxEmitter,
    decoder: Decoder,
    inputs: SampleInputs,
    known: Names,
    prompts: str | None,
    *,
    padded: bool = False,
) -> Sampler:
    """Write what the options are for all steps. For `prompts` and `padded` see `Sampler`."""
    stream, filters = emit_stream(onnx, inputs.seed), _emit_filters(onnx, decoder, inputs)
    edits = emit_edits(onnx, inputs.edits)
    kept = onnx.op("Where", edits.used, [1], [0])
    return Sampler(decoder, known, prompts, stream, filters, edits, kept, inputs, padded)


def sampling_types(decoder: Decoder) -> dict[str, Type]:
    """The types of the values that the second loop carries, by name."""
    return fields_of(Sampling, state=state_types(decoder))


def _emit_filters(onnx: OnnxEmitter, decoder: Decoder, inputs: SampleInputs) -> _Filters:
    names = (inputs.temperature, inputs.top_k, inputs.top_p)
    divisor, top_k, top_p = (onnx.op("Unsqueeze", name, [1]) for name in names)
    temperature = emit_temperature(onnx, divisor)
    best, nucleus = onnx.op("Greater", top_k, 0), onnx.op("Less", top_p, 1.0)
    vocabulary = vocabulary_of(decoder)
    ranked = onnx.op("Where", nucleus, vocabulary, 1)
    ranked = onnx.op("Where", best, onnx.op("Min", top_k, vocabulary), ranked)
    ranked = onnx.op("Where", temperature.greedy, 1, ranked)
    most = onnx.op("ReduceMax", onnx.op("Reshape", ranked, [-1]), keepdims=1)
    reach = onnx.op("Where", nucleus, top_p, 2.0)
    chosen = onnx.op("Or", best, nucleus)
    filtered = onnx.op("Or", temperature.greedy, chosen)
    any_chosen = some_open(onnx, onnx.op("Or", temperature.greedy, onnx.op("Not", chosen)))
    return _Filters(temperature, ranked, most, reach, filtered, any_chosen)


def emit_prompts(onnx: OnnxEmitter, prompt: str, special: SpecialTokens) -> Prompts:
    """Write the prompts with their begin token and a last column without tokens, and their lengths."""
    onnx.bind(Value("prompt", Type("int64", (Axis("batch"), Axis("prompt")))), prompt)
    tokens = onnx.op("Pad", prompt, [0, 0, 0, 1], special.absent)
    lengths = onnx.op("ReduceSum", onnx.op("Cast", real(onnx, tokens, special), to=_INT64), [1], keepdims=0)
    for token in special.begun:
        tokens = onnx.op("Pad", tokens, [0, 1, 0, 0], token)
        lengths = onnx.op("Add", lengths, 1)
    return Prompts(tokens, lengths, special)


def _count_positions(onnx: OnnxEmitter, prompts: Prompts, max_new_tokens: str, longest: int | None) -> str:
    """The number of tokens to feed for the longest text."""
    fed = onnx.op("Add", onnx.op("Sub", prompts.lengths, 1), max_new_tokens)
    positions = onnx.op("ReduceMax", fed, keepdims=0)
    return positions if longest is None else onnx.op("Min", positions, longest)


def _step(onnx: OnnxEmitter, decoder: Decoder, token: str, position: str, known: Names) -> tuple[str, dict[str, str]]:
    return emit_step(onnx, decoder, emit_fed(onnx, onnx.op("Unsqueeze", token, [1]), decoder.written), position, known)


def read_together(
    onnx: OnnxEmitter,
    decoder: Decoder,
    known: Names,
    states: Names,
    given: tuple[str, str],
    keeps: frozenset[str] = frozenset(),
    *,
    start: Operand = 0,
) -> tuple[str, Names]:
    """Read tokens [batch, length] of prompts, of each those from `start` up to the number that is given with them;
    return that number and the states after them. `keeps` are the axes with the same sizes outside."""
    prompts, count = given
    if not decoder.states and decoder.resident is None:
        return count, states
    assert decoder.extend is not None
    _, *new = decoder.extend.outputs
    written = (node.outputs[0] for node in decoder.extend.nodes if isinstance(node.op, AttendCached))
    silent = pruned(replace(decoder.extend, outputs=(*new, *written)))
    pasts = [state.past.name for state in decoder.states]
    rows = onnx.op("Max", onnx.op("Squeeze", onnx.op("Shape", prompts, start=0, end=1), [0]), 1)
    parts = emit_parts(onnx, count, rows, READ_TOGETHER, READ_AT_LEAST, start)

    def body(scope: OnnxEmitter, _: str, now: _Reading) -> tuple[str, _Reading, Collected]:
        end, bounds = parts.bounds(scope, now.position)
        tokens = scope.op("Slice", prompts, *bounds, [1])
        results = scope.graph(silent, step_inputs(decoder, tokens, now.position, {**known, **now.state}))
        return scope.op("Identity", True), _Reading(end, dict(zip(pasts, results, strict=False))), []

    types = fields_of(_Reading, state=state_types(decoder))
    last, _ = emit_loop(onnx, parts.trips, types, _Reading(onnx.operand(start), states), body, keeps)
    return last.position, last.state


def _first_text(onnx: OnnxEmitter, prompts: Prompts, start: str) -> Text:
    zeros = onnx.op("Sub", prompts.lengths, prompts.lengths)
    nothing = onnx.op("Cast", zeros, to=_FLOAT)
    return Text(onnx.op("Gather", prompts.tokens, start, axis=1), onnx.op("Greater", zeros, 0), zeros, nothing)


def _given(onnx: OnnxEmitter, prompts: str, place: str) -> str:
    """The tokens of the prompts at a position, [batch]; absent after the end of a prompt."""
    last = onnx.op("Sub", onnx.op("Squeeze", onnx.op("Shape", prompts, start=1), [0]), 1)
    return onnx.op("Gather", prompts, onnx.op("Min", place, last), axis=1)


def _draw(onnx: OnnxEmitter, below: str, uniform: str, filters: _Filters) -> str:
    """The token drawn for each text, [batch]."""
    reached = cumulate(onnx, weigh(onnx, below, filters.temperature), below, _threshold(onnx, below, filters))
    total = onnx.op("Slice", reached, [-1], [2**31], [1])
    return draw(onnx, reached, total, uniform, filters.temperature)


def _threshold(onnx: OnnxEmitter, below: str, filters: _Filters) -> str:
    """The lowest value that may be drawn, [batch, 1]; -inf without filters.

    The weights are added up from the highest on, so that the sums of a text do not depend on the most to rank.
    """
    best, _ = onnx.ops("TopK", 2, below, filters.most, axis=1)
    rows = onnx.op("Concat", onnx.op("Shape", best, end=1), [1], axis=0)
    last = onnx.op("Expand", onnx.op("Sub", filters.ranked, 1), rows)
    reached = onnx.op("CumSum", weigh(onnx, best, filters.temperature), 1)
    goal = onnx.op("Mul", onnx.op("GatherElements", reached, last, axis=1), filters.reach)
    index = onnx.op("Cast", count(onnx, onnx.op("Less", reached, goal), keepdims=1), to=_INT64)
    lowest = onnx.op("GatherElements", best, onnx.op("Min", index, last), axis=1)
    return onnx.op("Where", filters.filtered, lowest, NEVER)


def _continuations(onnx: OnnxEmitter, prompts: Prompts, start: str, steps: str, text: Text) -> SampleResult:
    """The continuation of each text: the tokens of `steps` [steps, batch] after its prompt."""
    longest = onnx.op("ReduceMax", text.lengths, keepdims=0)
    ranks = onnx.op("Range", 0, longest, 1)
    first = onnx.op("Sub", onnx.op("Sub", prompts.lengths, 1), start)
    places = onnx.op("Add", onnx.op("Unsqueeze", first, [1]), ranks)
    last = onnx.op("Sub", onnx.op("Shape", steps, start=0, end=1), 1)
    taken = onnx.op("GatherElements", onnx.op("Transpose", steps, perm=[1, 0]), onnx.op("Min", places, last), axis=1)
    inside = onnx.op("Less", ranks, onnx.op("Unsqueeze", text.lengths, [1]))
    return SampleResult(onnx.op("Where", inside, taken, 0), text.lengths, text.scores)
