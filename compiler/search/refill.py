"""Sampling of a batch whose texts join and leave between calls: docs/search.md, "A batch that refills".

A call reads the prompts of the texts that join, puts their states behind those of the texts that stay, and samples a
few tokens of each, at its own position. Each token is computed as in `sample.py`.
"""

from dataclasses import dataclass, replace

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.graph import Value
from xformc.compiler.graph.rules import OnnxEmitter
from xformc.compiler.ops.keys import PAST, ROOM, Grow
from xformc.compiler.passes.rows import FURTHEST
from xformc.compiler.passes.step import Decoder
from xformc.compiler.search.carried import Integers
from xformc.compiler.search.decoder_step import emit_caches, emit_positions, emit_prepare, emit_states, state_types
from xformc.compiler.search.draw_token import Text
from xformc.compiler.search.loops import Collected, Names, Record, bind_fields, emit_loop, fields_of
from xformc.compiler.search.sample import KEPT as KEPT_AXES
from xformc.compiler.search.sample import SampleInputs, Sampling, emit_sampler, read_together
from xformc.format.interfaces import AT, DONE, FROM, JOINING, KEPT, LENGTHS, NEWEST, READ, SCORES_SO_FAR

_INT64, _END = 7, [2**31]
BEFORE = -1
"""What stands in front of shorter texts in `READ`: no token has this number."""


@dataclass(frozen=True)
class _Refilled(Record):
    """The carried values of the loop: the position of each row, and its text."""

    at: Integers
    sampling: Sampling


def refill_types(decoder: Decoder) -> dict[str, Type]:
    """The types of the inputs, by name: those that a call is given, those of each row, and the states of the rows of
    the call before, whose axis is `rows`. Kernels write into their caches."""
    batch = Axis("batch")
    integers, tokens = Type("int64", (batch,)), Type("int64", (Axis("joining"), Axis("length")))
    texts = {AT: integers, NEWEST: integers, LENGTHS: integers, SCORES_SO_FAR: Type("float32", (batch,))}
    resident = () if decoder.resident is None else (decoder.resident.slots, *decoder.resident.caches)
    return {
        JOINING: tokens,
        FROM: Type("int64"),
        KEPT: Type("int64", (Axis("kept"),)),
        **texts,
        READ: Type("int64", (batch, Axis("read"))),
        **{value.name: value.type for value in resident},
        **{name: before_type(type) for name, type in state_types(decoder).items()},
    }


def after_types(decoder: Decoder) -> dict[str, Type]:
    """The types of the values that a call returns beside its tokens, by name."""
    sampling = fields_of(Sampling, state=state_types(decoder))
    texts = {DONE: sampling["text_done"], LENGTHS: sampling["text_lengths"], SCORES_SO_FAR: sampling["text_scores"]}
    return {**texts, **state_types(decoder)}


def ragged(reading: Decoder) -> bool:
    """Whether prompts of different lengths may be read together, padded at the end: all states are caches of which a
    step reads no position that it has not written."""
    assert reading.extend is not None, "prompts are read by the step of several tokens"
    caches = all(PAST in state.past.type.names for state in reading.states)
    return caches and not any(isinstance(node.op, Grow) for node in reading.extend.nodes)


def emit_refill(
    onnx: OnnxEmitter, decoder: Decoder, reading: Decoder, inputs: SampleInputs, count: str
) -> tuple[str, str, dict[str, str]]:
    """Write the reading of prompts and a loop of at most `count` tokens, fewer if an eighth of the texts have ended;
    return the tokens and the scores after each of them, both [steps, batch], and what goes on: which texts have ended,
    their lengths, scores and states.

    `decoder` has a position for each row (`with_rows`); `reading` is the same decoder with states that grow, if those
    of `decoder` do not. The rows of a call are those KEPT of the call before, by number, and then those JOINING.
    """
    types = refill_types(decoder)
    onnx.bind(Value(AT, types[AT]), AT)
    bind_fields(onnx, {name: types[name] for name in types if name not in state_types(decoder)}, {n: n for n in types})
    room = onnx.op("Add", onnx.op("ReduceMax", AT, keepdims=0), count)
    known = emit_prepare(onnx, decoder, emit_positions(onnx, decoder, room))
    caches = () if decoder.resident is None else (decoder.resident.slots, *decoder.resident.caches)
    known |= {value.name: value.name for value in caches}
    read, joined = _read(onnx, reading, known)
    state = {name: _gathered(onnx, name, type, joined[name], room) for name, type in state_types(decoder).items()}
    sampler = emit_sampler(onnx, decoder, inputs, known, None, padded=True)
    none = onnx.op("Less", LENGTHS, 0)
    text = Text(onnx.op("Identity", NEWEST), none, onnx.op("Identity", LENGTHS), onnx.op("Identity", SCORES_SO_FAR))
    # The steps wait until the prompts are in the caches: kernels write them in place.
    at = onnx.op("Add", AT, onnx.op("Sub", read, read))
    carried = fields_of(_Refilled, state=state_types(decoder))

    def body(scope: OnnxEmitter, _: str, now: _Refilled) -> tuple[str, _Refilled, Collected]:
        furthest = scope.op("ReduceMax", now.at, keepdims=0)
        now_known = replace(sampler, known={**known, FURTHEST.name: furthest})
        after = now_known.turn(scope, now.at, now.sampling)
        open_rows = scope.op("Cast", scope.op("Not", after.text.done), to=_INT64)
        collected = [(types[AT], after.text.newest), (types[SCORES_SO_FAR], after.text.scores)]
        return _most_open(scope, open_rows), _Refilled(scope.op("Add", now.at, open_rows), after), collected

    entering = _Refilled(at, sampler.enter(onnx, Sampling(text, READ, state)))
    last, (tokens, scores) = emit_loop(onnx, count, carried, entering, body, KEPT_AXES)
    text = last.sampling.text
    return tokens, scores, {DONE: text.done, LENGTHS: text.lengths, SCORES_SO_FAR: text.scores, **last.sampling.state}


def emit_slots(
    onnx: OnnxEmitter, decoder: Decoder, slots: str, capacity: str, beam: str | None = None
) -> dict[str, str]:
    """Write the caches for this number of texts of at most this number of positions; return their names.

    `beam`: the beam size as a vector, if there is a beam.

    One position more is never written, so that a cache keeps the mark by which kernels know it.
    """
    assert decoder.resident is not None
    sizes = onnx.op("Unsqueeze", slots, [0]), onnx.op("Unsqueeze", onnx.op("Add", capacity, 1), [0])
    return emit_caches(onnx, decoder.resident, *sizes, [1] if beam is None else beam, named=True)


def _most_open(onnx: OnnxEmitter, open_rows: str) -> str:
    """Whether fewer than an eighth of the texts have ended, from 1 for each that goes on and 0 for the others."""
    ended = onnx.op("ReduceSum", onnx.op("Sub", 1, open_rows), keepdims=0)
    return onnx.op("Less", onnx.op("Mul", ended, 8), onnx.op("Squeeze", onnx.op("Shape", open_rows)))


def _read(onnx: OnnxEmitter, reading: Decoder, known: Names) -> tuple[str, Names]:
    """Read the prompts of the texts that join, in their slots, from the tokens on that were read before; return their
    number of tokens and the states."""
    rows = onnx.op("Shape", JOINING, start=0, end=1)
    count = onnx.op("Squeeze", onnx.op("Shape", JOINING, start=1))
    begun = emit_states(onnx, reading, {"batch": rows}, known)
    if reading.resident is not None:
        slots = onnx.op("Slice", reading.resident.slots.name, onnx.op("Shape", KEPT), _END, [0])
        known = {**known, reading.resident.slots.name: slots}
    return read_together(onnx, reading, known, begun, (JOINING, count), start=FROM)


def _gathered(onnx: OnnxEmitter, name: str, type: Type, joined: str, room: str) -> str:
    """A state of the rows that stay, followed by that of the rows that join; its axis of positions has the size
    `room`.

    Of the rows that join, positions behind their prompts are 0: padding was read there, and a number that is not finite
    would reach the results of steps that hide it.
    """
    stayed = onnx.op("Gather", name, KEPT, axis=0)
    if ROOM in type.names:
        index, vector = type.names.index(ROOM), onnx.op("Unsqueeze", room, [0])
        read = onnx.op("Shape", JOINING, start=1)
        stayed = resized(onnx, onnx.op("Slice", stayed, [0], vector, [index]), [0], vector, index)
        # A window keeps the last positions only.
        before = onnx.op("Sub", read, onnx.op("Shape", joined, start=index, end=index + 1))
        joined = _up_to(onnx, type, resized(onnx, joined, before, vector, index), room)
    return onnx.op("Concat", stayed, joined, axis=0)


def _up_to(onnx: OnnxEmitter, type: Type, joined: str, room: str) -> str:
    """A state of the rows that join, with zeros from their positions on."""
    read = onnx.once("the positions that were read", lambda: _were_read(onnx, room))
    others = [place for place, axis in enumerate(type.axes) if axis.name not in ("batch", ROOM)]
    read = onnx.op("Unsqueeze", read, others) if others else read
    if type.dtype == "bool":  # ONNX Runtime has no Where of these
        return onnx.op("And", read, joined)
    return onnx.op("Where", read, joined, onnx.op("CastLike", 0.0, joined))


def _were_read(onnx: OnnxEmitter, room: str) -> str:
    """Which positions were read of each row that joins: [joining, room]."""
    at = onnx.op("Slice", AT, onnx.op("Shape", KEPT), _END, [0])
    return onnx.op("Less", onnx.op("Range", 0, room, 1), onnx.op("Unsqueeze", at, [1]))


def resized(onnx: OnnxEmitter, value: str, before: str | list[int], size: str, index: int) -> str:
    """Put zeros in front of a value along an axis, and behind it up to a size."""
    has = onnx.op("Shape", value, start=index, end=index + 1)
    after = onnx.op("Sub", size, onnx.op("Add", has, before))
    return onnx.op("Pad", value, onnx.op("Concat", before, after, axis=0), "", [index])


def before_type(type: Type) -> Type:
    """The type of a state of the call before."""
    names = {"batch": "rows_before", ROOM: f"{PAST}_{ROOM}"}
    return Type(type.dtype, tuple(Axis(names.get(axis.name, axis.name), axis.size) for axis in type.axes))
