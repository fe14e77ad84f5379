"""Beam search with fixed shapes, as defined in docs/search.md; a batch runs until its last sentence is done."""

from dataclasses import dataclass, replace

from xformc.compiler.graph.rules import OnnxEmitter
from xformc.compiler.ops.keys import ROOM
from xformc.compiler.passes.step import Decoder
from xformc.compiler.search.candidates import (
    BeamOptions,
    Pool,
    Standing,
    emit_count,
    emit_limit,
    end_type,
    reorder,
    select,
    settle,
)
from xformc.compiler.search.carried import (
    NEVER,
    BeamIntegers,
    BeamRoomTokens,
    BeamScores,
    Flags,
    Float,
    Integer,
    Integers,
    Places,
    Ranks,
)
from xformc.compiler.search.decoder_step import moving
from xformc.compiler.search.fixed_search import FixedDecoder, FixedSearch, following, inputs_of, written
from xformc.compiler.search.loops import Fields, Names, Record, fields_of, names_of, record_of, some_open
from xformc.format.interfaces import END_TOKEN
from xformc.format.names import CACHE
from xformc.format.tokens import SpecialTokens

ANCESTORS = "ancestors"


@dataclass(frozen=True)
class _Inputs(Record):
    """The runtime's inputs besides the given ones; `places` are 0, 1, .. below the capacity, `ranks` 0, 1, .. below the
    beam size."""

    places: Places
    ranks: Ranks
    length_penalty: Float
    max_length_factor: Float
    max_length_offset: Integer
    end_token: Integer


@dataclass(frozen=True)
class _Constants(Record):
    """The results of `prepare` besides the decoder's constants."""

    limit: Integers


@dataclass(frozen=True)
class _Carried(Record):
    """The carried values. Open hypotheses: `hypotheses`, `open_scores`, and `newest`, their last tokens. Finished ones:
    `tokens`, `lengths` and `scores` of the best, and `found`, their number. `lineage` has the `ancestors` of open
    hypotheses, if the entries of caches stay where they are."""

    position: Integer
    done: Flags
    newest: BeamIntegers
    hypotheses: BeamRoomTokens
    open_scores: BeamScores
    tokens: BeamRoomTokens
    lengths: BeamIntegers
    scores: BeamScores
    found: Integers
    lineage: Names
    state: Names
    cache: Names


def fixed_beam_search(decoder: Decoder) -> FixedSearch:
    """The search for a decoder with the axis `beam` and fixed caches."""
    fixed, lineage = FixedDecoder(decoder), decoder.lineage
    ancestors = {} if lineage is None else {ANCESTORS: lineage.ancestors.type}
    carried = fields_of(_Carried, **fixed.states, lineage=ancestors)

    def step(onnx: OnnxEmitter, names: Names) -> tuple[str, Names]:
        now = record_of(_Carried, {name: names[name] for name in carried})
        given, constants = record_of(_Inputs, names), record_of(_Constants, names)
        token, own = onnx.op("Unsqueeze", now.newest, [2]), dict[str, str]()
        if lineage is not None:
            ranks = onnx.op("Unsqueeze", given.ranks, [1])
            own[ANCESTORS] = written(onnx, given.places, now.position, ranks, now.lineage[ANCESTORS])
            names = {**names, lineage.ancestors.name: own[ANCESTORS], lineage.ranks.name: given.ranks}
        states = {"state": now.state, CACHE: now.cache}
        logits, states = fixed.step(onnx, names, token, now.position, given.places, states)
        now = replace(now, lineage=own, **states)
        go_on, new = _advance(onnx, (given, decoder.written), constants.limit, now, logits, fixed.states["state"])
        return go_on, names_of(new)

    return FixedSearch(
        inputs={**fixed.given, **fields_of(_Inputs), END_TOKEN: end_type(decoder.written)},
        constants={**fields_of(_Constants), **fixed.constants},
        carried=carried,
        prepare=lambda onnx: _prepare(onnx, fixed),
        step=step,
    )


def _prepare(onnx: OnnxEmitter, fixed: FixedDecoder) -> tuple[Names, Names]:
    given = inputs_of(_Inputs)
    batch = onnx.op("Shape", next(iter(fixed.given)), start=0, end=1)
    width, room = onnx.op("Shape", given.ranks), onnx.op("Shape", given.places)
    limit = emit_limit(onnx, emit_count(onnx, fixed.decoder), given.max_length_factor, given.max_length_offset, room)
    constants, states, heads = fixed.prepare(onnx, given.places, {"batch": batch, "beam": width, ROOM: room})
    shape = onnx.op("Concat", batch, width, axis=0)
    empty = onnx.op("Expand", 0, onnx.op("Concat", shape, room, axis=0))
    first = onnx.op("Where", onnx.op("Equal", given.ranks, 0), 0.0, NEVER)
    carried = _Carried(
        position=onnx.op("Squeeze", [0]),
        done=onnx.op("Less", limit, 0),
        newest=onnx.op("Expand", fixed.decoder.written.begun[0], shape),
        hypotheses=empty,
        open_scores=onnx.op("Expand", first, shape),
        tokens=empty,
        lengths=onnx.op("Expand", 0, shape),
        scores=onnx.op("Expand", NEVER, shape),
        found=onnx.op("Expand", 0, batch),
        lineage={} if fixed.decoder.lineage is None else {ANCESTORS: empty},
        **states,
    )
    return {**names_of(_Constants(limit)), **constants, **names_of(carried)}, heads


def _advance(
    onnx: OnnxEmitter, inputs: tuple[_Inputs, SpecialTokens], limit: str, now: _Carried, logits: str, types: Fields
) -> tuple[str, _Carried]:
    """Write the rest of a step, from the logits; return whether to continue, and the new carried values.

    `inputs` are the runtime's, and the special tokens of the text; `now` has the new states, of these types.
    """
    given, special = inputs
    width, length = onnx.op("Shape", given.ranks), onnx.op("Add", now.position, 1)
    options = BeamOptions(
        width, onnx.op("Mul", width, [special.choices]), given.end_token, given.length_penalty, special
    )
    candidates = select(onnx, logits, now.open_scores, options)
    standing = Standing(length, limit, now.done, now.found, Pool(now.tokens, now.lengths, now.scores))
    new = settle(onnx, options, standing, candidates, lambda rows, tokens: _continued(onnx, given, now, rows, tokens))
    pool = _blanked(onnx, new.pool)

    def moved(values: Names) -> Names:
        return {name: reorder(onnx, value, new.chosen.rows) for name, value in values.items()}

    return some_open(onnx, new.done), _Carried(
        position=following(onnx, given.places, now.position),
        done=new.done,
        newest=new.chosen.tokens,
        hypotheses=new.tokens,
        open_scores=new.chosen.scores,
        tokens=pool.tokens,
        lengths=pool.lengths,
        scores=pool.scores,
        found=new.found,
        lineage=moved(now.lineage),
        state={**now.state, **moved(moving(types, now.state))},
        cache=now.cache,
    )


def _continued(onnx: OnnxEmitter, given: _Inputs, now: _Carried, rows: str, tokens: str) -> str:
    """The tokens of the hypotheses in these rows, each with a new token at the position."""
    kept = reorder(onnx, now.hypotheses, rows)
    return written(onnx, given.places, now.position, onnx.op("Unsqueeze", tokens, [2]), kept)


def _blanked(onnx: OnnxEmitter, pool: Pool) -> Pool:
    """The pool with tokens and lengths cleared in empty entries."""
    there = onnx.op("Greater", pool.scores, NEVER)
    tokens = onnx.op("Where", onnx.op("Unsqueeze", there, [2]), pool.tokens, 0)
    return Pool(tokens, onnx.op("Where", there, pool.lengths, 0), pool.scores)
