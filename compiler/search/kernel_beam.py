"""Beam search with the kernels of docs/kernels.md: two nodes per step besides the decoder's, and no cache is moved.

A hypothesis carries its beam index at each earlier position, and the states that are not caches.
"""

from dataclasses import asdict, astuple, replace

from xformc.compiler.graph.rules import OnnxEmitter
from xformc.compiler.ops.native import DOMAIN, emit_project_candidates
from xformc.compiler.passes.lower import ANCESTORS
from xformc.compiler.passes.step import Decoder
from xformc.compiler.search.batch_loop import (
    Beam,
    Begun,
    Decoding,
    Live,
    SearchInputs,
    Written,
    allowed_by_sentence,
    asked_of,
    best,
    decode_batch,
    emit_coverage,
    heads_of,
    names_of_edits,
    widened,
)
from xformc.compiler.search.candidates import BeamOptions, Pool, forced_token, reorder, rows_of, unscored
from xformc.compiler.search.decoder_step import emit_states, emit_step, moving, state_types
from xformc.compiler.search.loops import Names
from xformc.compiler.search.prompted import beam_caches, begin_search
from xformc.compiler.search.shortlist import Lists, emit_lists, only_listed
from xformc.format.speech import Times

Offered = tuple[str, ...]
"""The results of the operators that compute candidates: scores, tokens and parents, [batch, candidates]."""


def emit_kernel_search(
    onnx: OnnxEmitter, decoder: Decoder, inputs: SearchInputs, longest: int | None, reader: Decoder | None = None
) -> Written:
    """Like `emit_beam_search`, for a lowered decoder with caches that are updated in place.

    The first step has one hypothesis in each group, as no other can be continued.
    """
    begun = begin_search(onnx, decoder, inputs, longest, reader)
    width, opened = begun.options.width, begun.groups.count
    controls = (inputs.phrases, inputs.prefix_bias, inputs.automaton, inputs.automaton_needs, inputs.automaton_start)
    types = {ANCESTORS.name: ANCESTORS.type, **state_types(decoder)}
    states, caches = _entering(onnx, decoder, begun)
    given = begun.given or ""
    lists = emit_listed(onnx, decoder, inputs, begun)
    apart = (opened, inputs.diversity_penalty, inputs.end_token)

    def step(scope: OnnxEmitter, live: Live, now: Decoding) -> tuple[str, Decoding]:
        slots = {} if decoder.resident is None else {decoder.resident.slots.name: live.sentence}
        known = {**begun.prepared, **live.constant, **now.state, **caches, **slots}
        newest = scope.op("Last", now.beam.tokens, domain=DOMAIN)
        result, states = emit_step(scope, decoder, newest, now.position, known)
        edits = names_of_edits(scope, inputs, begun.prefix, now.position, decoder.written)
        limit = live.limit if inputs.automaton else ""
        rest = (live.prefix, now.position, now.beam.tokens, *edits, live.sentence, *controls, limit, *apart)
        if isinstance(lists, str):
            result = only_listed(scope, result, scope.op("Gather", lists, live.sentence, axis=0))
        offered = emit_candidates(scope, decoder, result, (now.beam.scores, width), rest, inputs.times, lists=lists)
        if inputs.default and not given:
            forced = forced_token(scope, live.prefix, now.position)
            offered = unscored(scope, offered, forced, (now.position, len(inputs.default)), decoder.written.absent)
        coverage = emit_coverage(scope, begun, live, states)
        go_on, following = emit_advance(scope, begun.options, live, now, offered, (coverage or "", given))
        moved = emit_moved(scope, moving(types, states), (following.state[ANCESTORS.name], None), now.beam.scores)
        return go_on, replace(following, state={**following.state, **states, **moved})

    found = decode_batch(onnx, decoder, begun, states, types, step, opened=opened)
    return best(onnx, found, inputs.n_best, None if begun.read is None else given), heads_of(decoder, begun)


def _entering(onnx: OnnxEmitter, decoder: Decoder, begun: Begun) -> tuple[dict[str, str], Names]:
    """The first states, the ancestors among them, and the caches."""
    batch, opened, read = begun.batch, begun.groups.count, begun.read
    if read is not None:
        past = onnx.op("Unsqueeze", read.start, [0])
        states, caches = widened(onnx, state_types(decoder), read.states, opened), read.caches
    else:
        past = [0]
        states = emit_states(onnx, decoder, {"batch": batch, "beam": opened}, begun.prepared)
        caches = beam_caches(onnx, decoder.resident, begun.options, batch, begun.longest)
    ancestors = onnx.op("Expand", 0, onnx.op("Concat", batch, opened, past, axis=0))
    return {ANCESTORS.name: ancestors, **states}, caches


def emit_listed(onnx: OnnxEmitter, decoder: Decoder, inputs: SearchInputs, begun: Begun) -> Lists | str | None:
    """The lists of the sentences with their weights, or which tokens may follow [batch, vocabulary] where logits are no
    plain projection; None without a shortlist."""
    if inputs.shortlist is None or decoder.projection is None:
        return allowed_by_sentence(onnx, inputs, begun)
    return emit_lists(onnx, inputs.shortlist, asked_of(onnx, inputs, begun), decoder.projection)


def emit_candidates(
    onnx: OnnxEmitter,
    decoder: Decoder,
    result: str,
    beam: tuple[str, str],
    rest: tuple[str, ...],
    times: Times | None = None,
    *,
    lists: Lists | str | None = None,
) -> Offered:
    """The candidates, from logits or, if the projection onto the vocabulary is split off, from its input.

    `beam` are the scores of the hypotheses and the width, `rest` the tokens that the texts begin with, the position of
    the step, the tokens of the hypotheses, and the options that edit scores, the rows of the options in which the
    sentences find their own, phrases, and the groups; for `lists` see `emit_listed`.
    """
    attributes = {"pad": decoder.written.absent, **attributes_of(times)}
    if (ends := len(decoder.written.end)) > 1:
        attributes["ends"] = ends
    if decoder.projection is None:
        return onnx.ops("Candidates", 3, result, *beam, *rest, domain=DOMAIN, **attributes)
    own = astuple(lists) if isinstance(lists, Lists) else None
    return emit_project_candidates(onnx, decoder.projection, result, beam, rest, attributes, lists=own)


def attributes_of(times: Times | None) -> dict[str, int]:
    """The attributes of Candidates and its kin for texts with timestamps."""
    return {} if times is None else {f"times_{name}": value for name, value in asdict(times).items()}


def emit_advance(
    onnx: OnnxEmitter,
    options: BeamOptions,
    live: Live,
    now: Decoding,
    offered: Offered,
    rest: tuple[str, str] = ("", ""),
) -> tuple[str, Decoding]:
    """Like `advance` of beam.py; of the states, it updates only the ancestors.

    `rest` is the coverage (see `emit_coverage`), and the number of tokens that come from the prompt of each row of the
    batch, behind the first.
    """
    beam, pool, rules = now.beam, now.beam.pool, options.needed_rules
    last = ["" if options.phrases is None else options.phrases.tokens, *rest]
    while last and not last[-1]:
        last.pop()
    go_on, position, done, tokens, scores, pool_tokens, pool_lengths, pool_scores, found, ancestors = onnx.ops(
        "Advance",
        10,
        *(options.width, options.end_token, options.length_penalty, now.position, now.done, live.limit),
        *(*offered, beam.tokens, now.state[ANCESTORS.name]),
        *(pool.tokens, pool.lengths, pool.scores, beam.found, live.least),
        *(rules.penalty_offset, rules.stop_rule, rules.patience, live.sentence),
        *last,
        domain=DOMAIN,
    )
    beam = Beam(tokens, scores, Pool(pool_tokens, pool_lengths, pool_scores), found)
    return go_on, Decoding(position, done, beam, {ANCESTORS.name: ancestors})


def emit_moved(onnx: OnnxEmitter, states: Names, ancestors: tuple[str, str | None], before: str) -> dict[str, str]:
    """The states, reordered for the new hypotheses; the parent of each is its ancestor at the step's position: the
    newest one, unless there are positions by row [batch], which come with the ancestors.

    `before` are the scores of the old hypotheses.
    """
    if not states:
        return {}
    found, positions = ancestors
    if positions is None:
        parents = onnx.op("Squeeze", onnx.op("Slice", found, [-1], [2**31], [2]), [2])
    else:
        places = onnx.op(
            "Expand", onnx.op("Unsqueeze", positions, [1, 2]), onnx.op("Concat", onnx.op("Shape", before), [1], axis=0)
        )
        parents = onnx.op("Squeeze", onnx.op("GatherElements", found, places, axis=2), [2])
    rows = rows_of(onnx, parents, onnx.op("Shape", before, start=1, end=2))
    return {name: reorder(onnx, value, rows) for name, value in states.items()}
