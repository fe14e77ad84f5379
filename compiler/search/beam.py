"""Beam search as ONNX operators around a derived step, as defined in docs/search.md; width 1 is greedy search."""

from dataclasses import replace

from xformc.compiler.graph.rules import OnnxEmitter
from xformc.compiler.passes.step import Decoder
from xformc.compiler.search.batch_loop import (
    Beam,
    Decoding,
    Live,
    SearchInputs,
    Written,
    allowed_by_sentence,
    best,
    decode_batch,
    emit_coverage,
    heads_of,
    is_first,
    newest,
    options_by_sentence,
    options_of,
    widened,
)
from xformc.compiler.search.candidates import (
    BeamOptions,
    Candidates,
    Pool,
    Standing,
    Texts,
    forced_token,
    read_on,
    reorder,
    unscored,
)
from xformc.compiler.search.decoder_step import emit_states, emit_step, moving, state_types
from xformc.compiler.search.edits import edits_at_first
from xformc.compiler.search.groups import Groups, Step, choose
from xformc.compiler.search.loops import Names
from xformc.compiler.search.prompted import begin_search
from xformc.compiler.search.shortlist import only_listed

FINISHED_SHARE = 8
"""The inner loop ends when 1/8 of its sentences are finished."""


def emit_beam_search(
    onnx: OnnxEmitter, decoder: Decoder, inputs: SearchInputs, longest: int | None, reader: Decoder | None = None
) -> Written:
    """Write prepare, the search and the selection of the n best; return the n-best lists and the heads.

    `decoder` has the axis `beam` (see `with_beam`); `longest` is its maximum number of tokens, or None. `reader` is the
    same decoder without a beam, which reads the prompts of a language model; None for a search without prompts.
    """
    begun, types = begin_search(onnx, decoder, inputs, longest, reader), state_types(decoder)
    option = options_by_sentence(onnx, begun)
    if (allowed := allowed_by_sentence(onnx, inputs, begun)) is not None:
        option["allowed"] = allowed
    if begun.read is None:
        states = emit_states(onnx, decoder, {"batch": begun.batch, "beam": begun.options.width}, begun.prepared)
    else:
        states = widened(onnx, types, begun.read.states, begun.options.width)

    def step(scope: OnnxEmitter, live: Live, now: Decoding) -> tuple[str, Decoding]:
        known = {**begun.prepared, **live.constant, **now.state}
        logits, state = emit_step(scope, decoder, newest(scope, now.beam), now.position, known)
        if allowed is not None:
            logits = only_listed(scope, logits, live.option["allowed"])
        texts = Texts(now.beam.tokens, live.prefix, forced_token(scope, live.prefix, now.position), live.limit)
        options = options_of(begun.options, live.option)
        if inputs.suppress_first:
            here = is_first(scope, live.prefix, now.position, decoder.written)
            edits = edits_at_first(scope, options.needed_edits, inputs.suppress_first, here)
            options = replace(options, edits=edits)
        groups = replace(begun.groups, penalty=live.option["diversity_penalty"])

        def given(scope: OnnxEmitter, found: Candidates) -> Candidates:
            if "given" in live.option:
                return read_on(scope, found, scope.op("Less", now.position, live.option["given"]))
            if not inputs.default:
                return found
            place = now.position, len(inputs.default)
            (scores,) = unscored(scope, (found.scores,), texts.forced, place, decoder.written.absent)
            return replace(found, scores=scores)

        offered = Step(logits, now.beam.scores, texts, given, emit_coverage(scope, begun, live, state))
        go_on, new = advance(scope, (options, groups), live, now, offered, moving(types, state))
        return go_on, replace(new, state={**state, **new.state})

    found = decode_batch(onnx, decoder, begun, states, types, step, option=option)
    given = None if begun.read is None else begun.read.given
    return best(onnx, found, inputs.n_best, given), heads_of(decoder, begun)


def advance(
    onnx: OnnxEmitter, choice: tuple[BeamOptions, Groups], live: Live, now: Decoding, step: Step, state: Names
) -> tuple[str, Decoding]:
    """Write the rest of a step, from the logits; return whether to continue, and the new carried values.

    `state` are the new states, in the order of the old hypotheses.
    """
    beam, length = now.beam, onnx.op("Add", now.position, 1)
    pool, given = _longer(onnx, beam.pool), live.option.get("given")
    standing = Standing(length, live.limit, now.done, beam.found, pool, live.least, step.coverage, given)
    new = choose(onnx, *choice, step, standing, _continued)
    moved = {name: reorder(onnx, value, new.chosen.rows) for name, value in state.items()}
    hypotheses = Beam(new.tokens, new.chosen.scores, new.pool, new.found)
    return _go_on(onnx, new.done), Decoding(length, new.done, hypotheses, moved)


def _continued(onnx: OnnxEmitter, texts: str, rows: str, tokens: str) -> str:
    """The tokens of the hypotheses in these rows, each with one more token at its end."""
    return onnx.op("Concat", reorder(onnx, texts, rows), onnx.op("Unsqueeze", tokens, [-1]), axis=-1)


def _longer(onnx: OnnxEmitter, pool: Pool) -> Pool:
    """The pool, padded by one token."""
    return Pool(onnx.op("Pad", pool.tokens, [0, 0, 0, 0, 0, 1]), pool.lengths, pool.scores)


def _go_on(onnx: OnnxEmitter, done: str) -> str:
    count = onnx.op("ReduceSum", onnx.op("Cast", done, to=7), keepdims=0)
    return onnx.op("Less", onnx.op("Mul", count, FINISHED_SHARE), onnx.op("Size", done))
