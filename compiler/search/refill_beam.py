"""Beam search of a batch whose texts join and leave between calls: docs/search.md, "Batches that refill".

A text joins with what `prepare` makes of its source, by a model of its own, and begins with a full beam of which only
the first hypothesis can go on. Each step is that of `kernel_beam.py`, at a position for each row.
"""

from dataclasses import dataclass, replace

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.graph import Value, pruned
from xformc.compiler.graph.rules import OnnxEmitter
from xformc.compiler.passes.lower import ANCESTORS
from xformc.compiler.passes.lower import SLOTS as SLOT_AXIS
from xformc.compiler.passes.rows import FURTHEST
from xformc.compiler.passes.step import Decoder
from xformc.compiler.search.batch_loop import (
    Beam,
    Decoding,
    Live,
    SearchInputs,
    begin,
    emit_prefix,
    first_beam,
    names_of_edits,
)
from xformc.compiler.search.candidates import BeamOptions, Rules, forced_tokens, unscored
from xformc.compiler.search.carried import Flags, Integers
from xformc.compiler.search.decoder_step import emit_states, emit_step, moving, state_types
from xformc.compiler.search.kernel_beam import emit_advance, emit_candidates, emit_listed, emit_moved
from xformc.compiler.search.loops import (
    Collected,
    Names,
    Record,
    bind_fields,
    emit_loop,
    fields_of,
    names_of,
    record_of,
)
from xformc.compiler.search.refill import before_type, resized
from xformc.compiler.search.shortlist import ShortlistInputs, from_slots, in_slots, only_listed
from xformc.compiler.search.shortlist import slot_types as list_types
from xformc.format.interfaces import AT, DONE, JOINED, KEPT, LEAST, LIMIT, PREFIX_SO_FAR, SLOTS

_BATCH = Axis("batch")
_INTEGERS, _TOKENS = Type("int64", (_BATCH,)), Type("int64", (_BATCH, Axis("prefix")))
_END = [2**31]


@dataclass(frozen=True)
class _Refilled(Record):
    """The carried values of the loop; the states include the ancestors."""

    at: Integers
    done: Flags
    beam: Beam
    state: Names


def slot_types(decoder: Decoder, shortlist: ShortlistInputs | None) -> dict[str, Type]:
    """The types of what the runtime keeps in slots, by name: the constants with a row for each text, and its list."""
    constants = {
        value.name: Type(value.type.dtype, (Axis(SLOT_AXIS), *value.type.axes[1:]))
        for value in decoder.constants
        if value.type.names[:1] in (("batch",), (SLOT_AXIS,))
    }
    return constants | list_types(shortlist, decoder.projection)


def joined_types(decoder: Decoder, shortlist: ShortlistInputs | None) -> dict[str, Type]:
    """The types of what a text brings when it joins, by the name of the input of the call: its limit and least number
    of tokens, its row of each slot, and the initial states that are not zero."""
    slots = {name: Type(type.dtype, (_BATCH, *type.axes[1:])) for name, type in slot_types(decoder, shortlist).items()}
    initial = {JOINED + value.name: value.type for value in decoder.initial}
    return {LIMIT: _INTEGERS, LEAST: _INTEGERS, **slots, **initial}


def emit_join(onnx: OnnxEmitter, decoder: Decoder, inputs: SearchInputs, longest: int | None) -> dict[str, str]:
    """Write `prepare` of texts that join; return the names of the `joined_types`."""
    begun = begin(onnx, decoder, inputs, longest)
    lists = emit_listed(onnx, decoder, inputs, begun)
    listed = {} if lists is None else in_slots(onnx, lists)
    slots = {name: begun.prepared[name] for name in slot_types(decoder, None)} | listed
    initial = {JOINED + value.name: begun.prepared[value.name] for value in decoder.initial}
    return {LIMIT: begun.limit, LEAST: begun.least, **slots, **initial}


def refill_search_types(decoder: Decoder, shortlist: ShortlistInputs | None) -> dict[str, Type]:
    """The types of the inputs of a call, by name: those of each row, the slots, and the values of the rows of the call
    before, whose first axis is `rows_before`. Kernels write into their caches."""
    rows = {AT: _INTEGERS, LIMIT: _INTEGERS, LEAST: _INTEGERS, PREFIX_SO_FAR: _TOKENS, SLOTS: _INTEGERS}
    caches = () if decoder.resident is None else decoder.resident.caches
    joining = Axis("joining")
    initial = {
        JOINED + value.name: Type(value.type.dtype, (joining, *value.type.axes[1:])) for value in decoder.initial
    }
    return {
        KEPT: Type("int64", (Axis("kept"),)),
        **rows,
        **slot_types(decoder, shortlist),
        **initial,
        **{value.name: value.type for value in caches},
        **{name: before_type(type) for name, type in _carried_types(decoder).items()},
    }


def refilled_search_types(decoder: Decoder) -> dict[str, Type]:
    """The types of the values that a call returns, by name."""
    return {AT: _INTEGERS, DONE: Type("bool", (_BATCH,)), **_carried_types(decoder)}


def emit_refilled_search(onnx: OnnxEmitter, decoder: Decoder, inputs: SearchInputs, count: str) -> dict[str, str]:
    """Write at most `count` steps of a batch, fewer if an eighth of its texts are done; return the names of the
    `refilled_search_types`.

    `decoder` has a position for each row. The rows of a call are those KEPT of the call before, and then those that
    join, at position 0. A row without a prefix has the default one.
    """
    types = refill_search_types(decoder, inputs.shortlist)
    own = {name: type for name, type in types.items() if type.names[:1] != ("rows_before",)}
    bind_fields(onnx, own, {name: name for name in own})
    entering = _entering(onnx, decoder, inputs)
    onnx.bind(Value("hypotheses", fields_of(Beam)["scores"]), entering.beam.scores)
    width = onnx.op("Unsqueeze", inputs.beam_size, [0])
    rules = Rules(inputs.length_penalty_kind, inputs.stop_rule, inputs.patience)
    options = BeamOptions(width, width, inputs.end_token, inputs.length_penalty, decoder.written, rules)
    sentence = onnx.op("Range", 0, onnx.op("Squeeze", onnx.op("Shape", AT)), 1)
    known = _known(onnx, decoder, inputs.shortlist)
    lists = from_slots(onnx, known)
    prefix = emit_prefix(onnx, PREFIX_SO_FAR, inputs.default, decoder.written)
    kept_states = state_types(decoder)

    def body(scope: OnnxEmitter, _: str, now: _Refilled) -> tuple[str, _Refilled, Collected]:
        furthest = scope.op("ReduceMax", now.at, keepdims=0)
        given = {**known, **now.state, FURTHEST.name: furthest}
        result, states = emit_step(scope, decoder, _newest(scope, now), now.at, given)
        edits = names_of_edits(scope, inputs, prefix, now.at, decoder.written)
        rest = (prefix, now.at, now.beam.tokens, *edits, sentence, "", inputs.prefix_bias)
        result = only_listed(scope, result, lists) if isinstance(lists, str) else result
        offered = emit_candidates(scope, decoder, result, (now.beam.scores, width), rest, lists=lists)
        if inputs.default:
            forced = forced_tokens(scope, prefix, now.at)
            offered = unscored(scope, offered, forced, (now.at, len(inputs.default)), decoder.written.absent)
        live = Live(sentence, now.beam, LIMIT, LEAST, prefix, {}, {}, {})
        go_on, after = emit_advance(scope, options, live, Decoding(now.at, now.done, now.beam, now.state), offered)
        ancestors = after.state[ANCESTORS.name]
        moved = emit_moved(scope, moving(kept_states, states), (ancestors, now.at), now.beam.scores)
        state = {ANCESTORS.name: ancestors, **states, **moved}
        return go_on, _Refilled(after.position, after.done, after.beam, state), []

    keeps = frozenset({"batch", "beam", *(axis for type in slot_types(decoder, None).values() for axis in type.names)})
    carried = fields_of(_Refilled, state={ANCESTORS.name: ANCESTORS.type, **kept_states})
    last, _ = emit_loop(onnx, count, carried, entering, body, keeps)
    return {
        AT: last.at,
        DONE: last.done,
        **{_input(name): value for name, value in names_of(last.beam).items()},
        **last.state,
    }


def _carried_types(decoder: Decoder) -> dict[str, Type]:
    beam = {_input(name): type for name, type in fields_of(Beam).items()}
    return {**beam, ANCESTORS.name: ANCESTORS.type, **state_types(decoder)}


def _input(name: str) -> str:
    """The name of the input of a field of `Beam`."""
    return f"beam/{name}"


def _known(onnx: OnnxEmitter, decoder: Decoder, shortlist: ShortlistInputs | None) -> dict[str, str]:
    """What the steps know: constants, of which kernels find those of a row by its slot, caches, and lists."""
    slots = slot_types(decoder, shortlist)
    rest = [value for value in decoder.constants if value.name not in slots]
    outputs = _outputs_of(decoder, {value.name for value in rest})
    alone = replace(pruned(replace(decoder.prepare, outputs=outputs)), inputs=())  # none of them depends on a source
    known = dict(zip((value.name for value in rest), onnx.graph(alone, {}), strict=True)) if rest else {}
    rows = {value.name for value in decoder.constants if value.type.names[:1] == ("batch",)}
    rows |= list_types(shortlist, decoder.projection).keys()
    known |= {name: onnx.op("Gather", name, SLOTS, axis=0) if name in rows else name for name in slots}
    if decoder.resident is not None:
        known |= {value.name: value.name for value in (decoder.resident.slots, *decoder.resident.caches)}
    return known


def _outputs_of(decoder: Decoder, names: set[str]) -> tuple[Value, ...]:
    made = zip(decoder.prepared, decoder.prepare.outputs, strict=True)
    return tuple(output for value, output in made if value.name in names)


def _newest(onnx: OnnxEmitter, now: _Refilled) -> str:
    """The token of each hypothesis at the position of its row, [batch, beam, 1]."""
    shape = onnx.op("Concat", onnx.op("Shape", now.beam.scores), [1], axis=0)
    place = onnx.op("Expand", onnx.op("Unsqueeze", now.at, [1, 2]), shape)
    return onnx.op("GatherElements", now.beam.tokens, place, axis=2)


def _entering(onnx: OnnxEmitter, decoder: Decoder, inputs: SearchInputs) -> _Refilled:
    """The values of the rows that stay, followed by those of the rows that join."""
    width, rows = onnx.op("Unsqueeze", inputs.beam_size, [0]), onnx.op("Shape", AT)
    joining = onnx.op("Sub", rows, onnx.op("Shape", KEPT))
    furthest = onnx.op("Unsqueeze", onnx.op("ReduceMax", AT, keepdims=0), [0])
    lengths = {"length": onnx.op("Add", furthest, 1), "past": furthest}
    first = names_of(first_beam(onnx, joining, width, decoder.written.begun[0], width))
    begun = {_input(name): value for name, value in first.items()}
    begun[ANCESTORS.name] = onnx.op("Expand", 0, onnx.op("Concat", joining, width, [0], axis=0))
    initial = {value.name: JOINED + value.name for value in decoder.initial}
    begun |= emit_states(onnx, decoder, {"batch": joining, "beam": width}, initial)
    found: dict[str, str] = {}
    for name, type in _carried_types(decoder).items():
        parts = onnx.op("Gather", name, KEPT, axis=0), begun[name]
        if type.names[-1] in lengths:
            size = lengths[type.names[-1]]
            cut = onnx.op("Slice", parts[0], [0], size, [2]), parts[1]
            parts = tuple(resized(onnx, part, [0], size, 2) for part in cut)
        found[name] = onnx.op("Concat", *parts, axis=0)
    beam = record_of(Beam, {name: found[_input(name)] for name in fields_of(Beam)})
    state = {name: found[name] for name in (ANCESTORS.name, *state_types(decoder))}
    at = onnx.op("Identity", AT)
    return _Refilled(at, onnx.op("Less", at, 0), beam, state)
