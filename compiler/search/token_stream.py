"""Sampling in calls of a few tokens: a model that reads prompts, and one that goes on where the call before ended.

The values that go on are named alike in both. Each token is computed as in one call of sampling: see `sample.py`.
"""

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.rules import OnnxEmitter
from xformc.compiler.passes.step import Decoder
from xformc.compiler.search.decoder_step import state_types
from xformc.compiler.search.draw_token import Text
from xformc.compiler.search.loops import Collected, bind_fields, emit_loop, names_of, some_open
from xformc.compiler.search.sample import (
    KEPT,
    SampleInputs,
    Sampler,
    Sampling,
    emit_begun,
    emit_sampler,
    sampling_types,
)
from xformc.format.interfaces import AT, DONE, LENGTHS, NEWEST, POSITIONS, READ, SCORES_SO_FAR

PROMPTS = "step/prompts"

_TEXT = {"newest": NEWEST, "done": DONE, "lengths": LENGTHS, "scores": SCORES_SO_FAR}
"""The names of the values of the texts; no value of a spec is called step/..."""

Streamed = tuple[str, dict[str, str]]
"""The tokens of a call [steps, batch], and the names of the values that go on."""


def fixed_types(decoder: Decoder) -> dict[str, Type]:
    """The types of the values that every call is given as the first one made them; kernels write into the caches."""
    known = [*decoder.constants]
    if decoder.resident is not None:
        known += [decoder.resident.slots, *decoder.resident.caches]
    prompts = Type("int64", (Axis("batch"), Axis("prompts")))
    return {POSITIONS: Type("int64"), PROMPTS: prompts, **{value.name: value.type for value in known}}


def moving_types(decoder: Decoder) -> dict[str, Type]:
    """The types of the values that each call gives to the next."""
    types = sampling_types(decoder)
    texts = {name: types[f"text_{field}"] for field, name in _TEXT.items()}
    return {AT: Type("int64"), **texts, READ: types["read"], **state_types(decoder)}


def emit_first(
    onnx: OnnxEmitter, decoder: Decoder, prompt: str, max_new_tokens: str, longest: int | None
) -> dict[str, str]:
    """Write what reads the prompts; return the names of the values of both kinds."""
    begun = emit_begun(onnx, decoder, prompt, max_new_tokens, longest, named=True)
    found = {POSITIONS: begun.positions, PROMPTS: begun.prompts.tokens, **begun.known}
    return {**{name: found[name] for name in fixed_types(decoder)}, **moving_values(begun.start, begun.now)}


def emit_next(onnx: OnnxEmitter, decoder: Decoder, inputs: SampleInputs, count: str) -> Streamed:
    """Write a loop of at most `count` tokens; return the tokens [steps, batch], and the names of the moving values.

    The inputs have the names of the values of both kinds.
    """
    sampler, now = emit_resumed(onnx, decoder, inputs)
    types = sampling_types(decoder)

    def body(scope: OnnxEmitter, iteration: str, now: Sampling) -> tuple[str, Sampling, Collected]:
        after = sampler.turn(scope, scope.op("Add", iteration, AT), now)
        return some_open(scope, after.text.done), after, [(types["text_newest"], after.text.newest)]

    trips = onnx.op("Min", count, onnx.op("Sub", POSITIONS, AT))
    last, (tokens,) = emit_loop(onnx, trips, types, now, body, KEPT)
    steps = onnx.op("Squeeze", onnx.op("Shape", tokens, start=0, end=1), [0])
    return tokens, moving_values(onnx.op("Add", AT, steps), last)


def emit_resumed(onnx: OnnxEmitter, decoder: Decoder, inputs: SampleInputs) -> tuple[Sampler, Sampling]:
    """Write where the call before ended, from the values of both kinds, which the inputs are named after."""
    fixed, moving = fixed_types(decoder), moving_types(decoder)
    bind_fields(onnx, {**fixed, **moving}, {name: name for name in (*fixed, *moving)})
    sampler = emit_sampler(onnx, decoder, inputs, {name: name for name in fixed}, PROMPTS)
    text = Text(**{field: onnx.op("Identity", name) for field, name in _TEXT.items()})
    return sampler, sampler.enter(onnx, Sampling(text, READ, {name: name for name in state_types(decoder)}))


def moving_values(position: str, now: Sampling) -> dict[str, str]:
    """The values that go on, by name."""
    texts = names_of(now.text)
    return {AT: position, **{name: texts[field] for field, name in _TEXT.items()}, READ: now.read, **now.state}
