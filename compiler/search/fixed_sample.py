"""Sampling with fixed shapes, as defined in docs/search.md, with random numbers drawn by the runtime.

The top-k and top-p filters are applied as a threshold, which is found by narrowing an interval. A list of the best
tokens would have a length that depends on data.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from xformc.compiler.graph.rules import OnnxEmitter
from xformc.compiler.ops.keys import ROOM
from xformc.compiler.passes.step import Decoder
from xformc.compiler.search.candidates import end_type
from xformc.compiler.search.carried import Flags, Float, Integer, Integers, Places, RoomFloats, RoomTokens, Sums
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
    vocabulary_of,
    weigh,
)
from xformc.compiler.search.fixed_search import FixedDecoder, FixedSearch, following, inputs_of, written
from xformc.compiler.search.loops import Names, Record, fields_of, names_of, record_of, some_open
from xformc.format.interfaces import END_TOKEN
from xformc.format.names import CACHE
from xformc.format.tokens import SpecialTokens

_FLOAT = 1
PARTS, ROUNDS = 16, 9
"""An interval of logits is divided into PARTS, ROUNDS times: a width of 2^8 shrinks to 2^-28. Logits that are closer
to each other count as equal."""


@dataclass(frozen=True)
class _Inputs(Record):
    """The runtime's inputs besides the given ones: `prompt` is padded to the capacity, `draws` has a random number
    for each row and position."""

    prompt: RoomTokens
    draws: RoomFloats
    places: Places
    max_new_tokens: Integer
    temperature: Float
    top_k: Integer
    top_p: Float
    end_token: Integer


@dataclass(frozen=True)
class _Carried(Record):
    """The carried values: `newest` is the token to feed, `done` whether the text has ended; `tokens`, `lengths` and
    `scores` belong to the sampled continuation."""

    position: Integer
    newest: Integers
    done: Flags
    tokens: RoomTokens
    lengths: Integers
    scores: Sums
    state: Names
    cache: Names


def fixed_sampling(decoder: Decoder) -> FixedSearch:
    """Sampling from a decoder with fixed caches."""
    fixed, vocabulary, special = FixedDecoder(decoder), vocabulary_of(decoder), decoder.written
    carried = fields_of(_Carried, **fixed.states)

    def step(onnx: OnnxEmitter, names: Names) -> tuple[str, Names]:
        now, given = record_of(_Carried, {name: names[name] for name in carried}), record_of(_Inputs, names)
        token = emit_fed(onnx, onnx.op("Unsqueeze", now.newest, [1]), special)
        logits, state = fixed.step(
            onnx, names, token, now.position, given.places, {"state": now.state, CACHE: now.cache}
        )
        below = below_highest(onnx, logits)
        drawn = _draw(onnx, given, vocabulary, below, _here(onnx, given.draws, now.position))
        new = _advance(onnx, (given, special), now, below, drawn, state)
        return some_open(onnx, new.done), names_of(new)

    inputs = {**fixed.given, **fields_of(_Inputs), END_TOKEN: end_type(special)}
    return FixedSearch(inputs, fixed.constants, carried, lambda onnx: _prepare(onnx, fixed), step)


def _prepare(onnx: OnnxEmitter, fixed: FixedDecoder) -> tuple[Names, Names]:
    given = inputs_of(_Inputs)
    batch, room = onnx.op("Shape", given.prompt, start=0, end=1), onnx.op("Shape", given.places)
    constants, states, heads = fixed.prepare(onnx, given.places, {"batch": batch, ROOM: room})
    zeros = onnx.op("Expand", 0, batch)
    carried = _Carried(
        position=onnx.op("Squeeze", [0]),
        newest=_first(onnx, given, fixed.decoder.written, batch),
        done=onnx.op("Less", zeros, 0),
        tokens=onnx.op("Expand", 0, onnx.op("Concat", batch, room, axis=0)),
        lengths=zeros,
        scores=onnx.op("Expand", 0.0, batch),
        **states,
    )
    return {**constants, **names_of(carried)}, heads


def _first(onnx: OnnxEmitter, given: _Inputs, special: SpecialTokens, batch: str) -> str:
    """The token of each text that is read first, [batch]."""
    if special.begun:
        return onnx.op("Expand", special.begun[0], batch)
    return onnx.op("Gather", given.prompt, 0, axis=1)


def _next_given(onnx: OnnxEmitter, given: _Inputs, special: SpecialTokens, position: str) -> str:
    """The token of the prompts that follows the one at a position, [batch]; absent after the end of a prompt."""
    place = position if special.begun else following(onnx, given.places, position)
    return _here(onnx, given.prompt, place)


def _advance(
    onnx: OnnxEmitter,
    inputs: tuple[_Inputs, SpecialTokens],
    now: _Carried,
    below: str,
    drawn: str,
    states: Mapping[str, Names],
) -> _Carried:
    """Write the rest of a step, from the drawn tokens; return the new carried values.

    `inputs` are the runtime's, and the special tokens of the text.
    """
    given, special = inputs
    before = Text(now.newest, now.done, now.lengths, now.scores)
    sampled, text = append_token(
        onnx,
        before,
        _next_given(onnx, given, special, now.position),
        (drawn, log_probability(onnx, below, drawn)),
        special,
    )
    place, column = onnx.op("Unsqueeze", now.lengths, [1]), onnx.op("Unsqueeze", text.newest, [1])
    tokens = written(onnx, given.places, place, column, now.tokens)
    room = onnx.op("Squeeze", onnx.op("Shape", given.places))
    last = onnx.op("GreaterOrEqual", onnx.op("Add", now.position, 1), room)
    ended = ended_texts(onnx, text, sampled, given.end_token, given.max_new_tokens, special)
    done = onnx.op("Or", ended, last)
    return _Carried(
        position=following(onnx, given.places, now.position),
        newest=text.newest,
        done=done,
        tokens=onnx.op("Where", onnx.op("Unsqueeze", sampled, [1]), tokens, now.tokens),
        lengths=text.lengths,
        scores=text.scores,
        **states,
    )


def _draw(onnx: OnnxEmitter, given: _Inputs, vocabulary: int, below: str, uniform: str) -> str:
    """The token drawn for each text, [batch]."""
    temperature = emit_temperature(onnx, given.temperature)
    weights = weigh(onnx, below, temperature)
    threshold = _threshold(onnx, given, vocabulary, below, weights, temperature)
    reached = cumulate(onnx, weights, below, onnx.op("Where", temperature.greedy, 0.0, threshold))
    return draw(onnx, reached, onnx.op("ReduceMax", reached, [1], keepdims=1), uniform, temperature)


def _threshold(
    onnx: OnnxEmitter, given: _Inputs, vocabulary: int, below: str, weights: str, temperature: Temperature
) -> str:
    """The lowest value that may be drawn, [batch, 1].

    First the `top_k`-th highest; then the value down to which the weights add up to `top_p` of the weight of the
    `top_k` highest.
    """
    ones = onnx.op("Cast", onnx.op("LessOrEqual", below, 0.0), to=_FLOAT)
    wanted = _wanted(onnx, given.top_k, vocabulary)
    best = _highest(onnx, below, ones, wanted)
    above = onnx.op("Greater", below, best)
    alike = onnx.op("Mul", onnx.op("Sub", wanted, count(onnx, above, keepdims=1)), weigh(onnx, best, temperature))
    whole = onnx.op("Add", onnx.op("ReduceSum", onnx.op("Where", above, weights, 0.0), [1], keepdims=1), alike)
    nucleus = _highest(onnx, below, weights, onnx.op("Mul", whole, given.top_p))
    return onnx.op("Where", onnx.op("Less", given.top_p, 1.0), onnx.op("Max", best, nucleus), best)


def _wanted(onnx: OnnxEmitter, top_k: str, vocabulary: int) -> str:
    """The number of tokens that `top_k` allows, as a float."""
    wanted = onnx.op("Where", onnx.op("Equal", top_k, 0), vocabulary, onnx.op("Min", top_k, vocabulary))
    return onnx.op("Cast", wanted, to=_FLOAT)


def _highest(onnx: OnnxEmitter, values: str, weights: str, wanted: str) -> str:
    """The highest of the values [batch, n] at which the weights of all values not below it reach `wanted`: [batch, 1].

    The values are at most 0; `wanted` is [batch, 1] or a scalar, and at most the total weight.
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
    """The column [batch] of values [batch, room] at the position."""
    return onnx.op("Gather", values, position, axis=1)
