"""The ONNX models of a program: the engine for each task, and the models that only certificates need."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import onnx

from xformc.compiler.backends.onnx.emitter import Emitter, model
from xformc.compiler.backends.onnx.graphs import taken_names
from xformc.compiler.backends.onnx.initializers import Initializers
from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.graph import Graph, Value
from xformc.compiler.ops.keys import PAST, ROOM
from xformc.compiler.passes.step import Decoder
from xformc.compiler.pipeline import (
    begin_alignments,
    run_alignments,
    run_beams,
    run_passes,
    run_rows,
    run_samples,
    run_scores,
)
from xformc.compiler.program import Program
from xformc.compiler.results.kind import KINDS
from xformc.compiler.search.batch_loop import SearchInputs, SearchResult
from xformc.compiler.search.beam import emit_beam_search
from xformc.compiler.search.check_draft import DRAFTED_TYPE, emit_check
from xformc.compiler.search.decoder_step import emit_begin, step_inputs
from xformc.compiler.search.edits import EditInputs
from xformc.compiler.search.fixed_beam import fixed_beam_search
from xformc.compiler.search.fixed_sample import fixed_sampling
from xformc.compiler.search.fixed_search import FixedSearch, emit_whole
from xformc.compiler.search.kernel_beam import emit_kernel_search
from xformc.compiler.search.loops import bind_fields
from xformc.compiler.search.refill import after_types, emit_refill, emit_slots, ragged, refill_types
from xformc.compiler.search.refill_beam import (
    emit_join,
    emit_refilled_search,
    joined_types,
    refill_search_types,
    refilled_search_types,
)
from xformc.compiler.search.sample import SampleInputs, emit_sampling
from xformc.compiler.search.shortlist import ShortlistInputs
from xformc.compiler.search.token_scores import Scored, emit_token_scores
from xformc.compiler.search.token_stream import Streamed, emit_first, emit_next, fixed_types, moving_types
from xformc.compiler.shortlist import in_model
from xformc.compiler.spec.alignment import SOURCE
from xformc.errors import UserError
from xformc.format.interfaces import (
    ATTENTION,
    AUTOMATON,
    CAPACITY,
    COUNT,
    DRAFTED,
    END_TOKEN,
    NEEDS,
    PHRASES,
    PREFIX,
    PROMPTS,
    RAGGED,
    RESULTS,
    SCORES_BY_STEP,
    SLOTS,
    START,
    STREAMED,
    TOKEN_SCORES,
)
from xformc.format.manifest import SampleOptions, SearchOptions, numbers
from xformc.format.names import (
    ADVANCE,
    ALIGNMENTS,
    BEAMS,
    CACHES,
    CHECK,
    CONTINUE,
    GO_ON,
    JOIN,
    MODEL,
    NEXT,
    OF_TEXT,
    PREPARE,
    PROMPT,
    REFILL,
    SAMPLES,
    SCORES,
    STEP,
)
from xformc.format.search_options import EDITS, SHAPES
from xformc.format.targets import Target
from xformc.format.tokens import SpecialTokens

SPLIT = "split"
"""The input of an extended model: the number of tokens in the first part."""


def emit_engine(program: Program, weights: Initializers) -> dict[str, onnx.ModelProto]:
    """The models of an engine by file name, without weights; `program` has a target.

    docs/engine.md defines their inputs and outputs.
    """
    assert weights.rounded == program.rounded, "the number formats of the weights differ from the program's"
    derived, late = program, program.of_text
    program = run_passes(derived)
    if program.steps is not None and program.traits.fixed:
        models = fixed_models(program, weights)
    else:
        models = {MODEL: _MODELS[program.decoding](program, weights)}
    if late is not None:
        models[OF_TEXT] = results_model(program, run_passes(program.alone(late)).graph, weights)
    if derived.scores_texts:
        models[SCORES] = scores_model(derived, weights)
    if program.streams:
        models |= {PROMPT: prompt_model(program, weights), CONTINUE: continue_model(program, weights)}
        models[CHECK] = check_model(program, weights)
    if (sampled := run_samples(derived)) is not None:
        models[SAMPLES] = sampling_model(sampled, weights)
    if (beams := run_beams(derived)) is not None:
        models[BEAMS] = beams_model(program, beams, weights)
    if (rows := run_rows(derived)) is not None:
        models |= (refill_models if program.streams else refill_search_models)(program, rows, weights)
    if (aligned := begin_alignments(derived)) is not None:
        models[ALIGNMENTS] = alignments_model(aligned, weights)
    return models


def search_model(program: Program, weights: Initializers) -> onnx.ModelProto:
    """From source tokens to n-best targets; the search options are inputs with default values."""
    emitter, decoder = _emitter(program, weights), program.decoder
    for value in decoder.given:
        emitter.bind(value, value.name)
    options = {**_options(emitter, program.search, decoder.written), PREFIX: emitter.default_tokens(PREFIX)}
    options[PHRASES] = emitter.default_phrases(PHRASES)
    options |= emitter.default_automaton((AUTOMATON, NEEDS, START), decoder.logits.type.axes[-1].size or 1)
    emit_search = emit_kernel_search if program.traits.kernels else emit_beam_search
    given = SearchInputs(
        **_alone(options), edits=_EDITS, default=program.prefix, suppress_first=program.suppress_first,
        times=program.times, prompted=program.prompted, shortlist=_shortlist(program, weights),
    )  # fmt: skip
    result, heads = emit_search(emitter, decoder, given, program.longest)
    outputs = [*_n_best(emitter, result), *_emit_results(emitter, program, heads)]
    inputs = [*((value.name, value.type) for value in decoder.given), *options.items()]
    return model(emitter, "engine", inputs, outputs)


def _shortlist(program: Program, weights: Initializers) -> ShortlistInputs | None:
    """Store the program's shortlist."""
    found = program.shortlist
    if found is None:
        return None
    common, likely = (weights.table(in_model(name), rows) for name, rows in found.tensors.items())
    return ShortlistInputs(SOURCE, common, likely, program.inputs[str(program.written)].pieces)


def _n_best(emitter: Emitter, result: SearchResult) -> list[tuple[str, Type]]:
    """Write the outputs of a search."""
    for name, value in asdict(result).items():
        emitter.op("Identity", value, name=name)
    n_best, length, batch = Axis("n_best"), Axis("length"), Axis("batch")
    types = [Type("int64", (batch, n_best, length)), Type("int64", (batch, n_best)), Type("float32", (batch, n_best))]
    return list(zip(RESULTS, types, strict=True))


def sampling_model(program: Program, weights: Initializers) -> onnx.ModelProto:
    """From other inputs, prompts and seeds to continuations; the sampling options are inputs with default values."""
    emitter, decoder = _emitter(program, weights), program.decoder
    for value in decoder.given:
        emitter.bind(value, value.name)
    options = _options(emitter, program.sampling, decoder.written)
    given = _sampled(program, options, "prompt", program.suppress_first)
    result, heads = emit_sampling(emitter, decoder, given, program.longest)
    for name, value in asdict(result).items():
        emitter.op("Identity", value, name=name)
    batch = Axis("batch")
    rows = Type("int64", (batch,))
    written = [("prompt", Type("int64", (batch, Axis("prompt")))), ("seed", rows), *options.items()]
    inputs = [*((value.name, value.type) for value in decoder.given), *written]
    types = [Type("int64", (batch, Axis("length"))), rows, Type("float32", (batch,))]
    outputs = [*zip(RESULTS, types, strict=True), *_emit_results(emitter, program, heads)]
    return model(emitter, "engine", inputs, outputs)


def beams_model(program: Program, beams: Program, weights: Initializers) -> onnx.ModelProto:
    """From prompts to their n best continuations; the search options are inputs with default values.

    `program` is that of `sampling_model`, and `beams` is from `run_beams`.
    """
    emitter, decoder, defaults = _emitter(beams, weights), beams.decoder, program.beams
    assert defaults is not None, "the program has no search for continuations"
    options = _options(emitter, defaults, decoder.written)
    given = dict.fromkeys((PHRASES, AUTOMATON, NEEDS, START), "")
    if not beams.traits.kernels:  # these are optional inputs of kernels, and no inputs of the model
        emitter.default_phrases(PHRASES)
        emitter.default_automaton((AUTOMATON, NEEDS, START), decoder.logits.type.axes[-1].size or 1)
        given = {name: name for name in given}
    emit_search = emit_kernel_search if beams.traits.kernels else emit_beam_search
    none: tuple[int, ...] = ()
    inputs = SearchInputs(
        **_alone(options), **given, prefix="", edits=_EDITS, prompt=PROMPTS, default=none, suppress_first=none,
        times=None, prompted=False, shortlist=None,
    )  # fmt: skip
    result, _ = emit_search(emitter, decoder, inputs, beams.longest, program.decoder)
    outputs = _n_best(emitter, result)
    return model(
        emitter, "engine", [(PROMPTS, Type("int64", (Axis("batch"), Axis("prompt")))), *options.items()], outputs
    )


def scores_model(program: Program, weights: Initializers) -> onnx.ModelProto:
    """From other inputs and texts, with their begin tokens, to the log probability of each further token.

    `program` is an engine's after the pass `step`.
    """
    program = run_scores(program)
    decoder, kernels = program.decoder, program.traits.kernels
    assert decoder.extend is not None, "the decoder has no step of several tokens"
    emitter, token = _emitter(program, weights), decoder.extend.inputs[0]
    for value in decoder.given:
        emitter.bind(value, value.name)
    scores = emit_token_scores(emitter, Scored(decoder, decoder.extend, kernels, len(program.prefix)), token.name)
    inputs = [(value.name, value.type) for value in (*decoder.given, token)]
    outputs = [
        (emitter.op("Identity", scores, name=TOKEN_SCORES), Type("float32", (token.type.axes[0], Axis("scored"))))
    ]
    return model(emitter, "scores", inputs, outputs)


def prompt_model(program: Program, weights: Initializers) -> onnx.ModelProto:
    """From prompts to the values from which a stream of tokens goes on; `program` is that of `sampling_model`."""
    emitter, decoder = _emitter(program, weights), program.decoder
    options = _options(emitter, program.sampling, decoder.written)
    found = emit_first(emitter, decoder, "prompt", "max_new_tokens", program.longest)
    types = {**fixed_types(decoder), **moving_types(decoder)}
    for name, value in found.items():
        if name != value:
            emitter.op("Identity", value, name=name)
    inputs = [("prompt", Type("int64", (Axis("batch"), Axis("prompt")))), ("max_new_tokens", options["max_new_tokens"])]
    return _needing_defaults(model(emitter, "prompt", inputs, [*types.items()]))


def continue_model(program: Program, weights: Initializers) -> onnx.ModelProto:
    """From the values of `prompt_model`, or those of the call before, to further tokens and the next values."""
    return _continuing(program, weights, "continue", emit_next, (COUNT, Type("int64")))


def check_model(program: Program, weights: Initializers) -> onnx.ModelProto:
    """As `continue_model`, by tokens that may follow."""
    return _continuing(program, weights, "check", emit_check, (DRAFTED, DRAFTED_TYPE))


def _continuing(
    program: Program, weights: Initializers, name: str, emit: Callable[..., Streamed], last: tuple[str, Type]
) -> onnx.ModelProto:
    """A model that continues a stream; `last` is its own input."""
    emitter, decoder = _emitter(program, weights), program.decoder
    options = _options(emitter, program.sampling, decoder.written)
    given = _sampled(program, options)
    tokens, after = emit(emitter, decoder, given, last[0])
    moving = moving_types(decoder)
    outputs = [(emitter.op("Identity", tokens, name=STREAMED), Type("int64", (Axis("steps"), Axis("batch"))))]
    outputs += [(emitter.op("Identity", after[name], name=f"{name}{NEXT}"), type) for name, type in moving.items()]
    calls = {"seed": Type("int64", (Axis("batch"),)), last[0]: last[1], **options}
    return model(emitter, name, [*fixed_types(decoder).items(), *moving.items(), *calls.items()], outputs)


def refill_models(program: Program, rows: Program, weights: Initializers) -> dict[str, onnx.ModelProto]:
    """The model of a batch whose texts join and leave, and with kernels the one that makes its caches, by file name.

    `program` is that of `sampling_model`, and `rows` is from `run_rows`.
    """
    emitter, decoder = _emitter(rows, weights), rows.decoder
    reading = decoder if rows.traits.kernels else replace(decoder, states=program.decoder.states)
    options = {
        **_options(emitter, program.sampling, decoder.written),
        "max_new_tokens": Type("int64", (Axis("batch"),)),
    }
    given = _sampled(program, options)
    tokens, scores, after = emit_refill(emitter, decoder, reading, given, COUNT)
    types, steps = after_types(decoder), (Axis("steps"), Axis("batch"))
    outputs = [
        (emitter.op("Identity", tokens, name=STREAMED), Type("int64", steps)),
        (emitter.op("Identity", scores, name=SCORES_BY_STEP), Type("float32", steps)),
    ]
    outputs += [(emitter.op("Identity", one, name=f"{name}{NEXT}"), types[name]) for name, one in after.items()]
    calls = {"seed": Type("int64", (Axis("batch"),)), COUNT: Type("int64"), **options}
    emitter.initializers = [value for value in emitter.initializers if value.name != "max_new_tokens"]
    refill = model(emitter, "refill", [*refill_types(decoder).items(), *calls.items()], outputs)
    onnx.helper.set_model_props(refill, {RAGGED: str(int(ragged(reading)))})
    if decoder.resident is None:
        return {REFILL: refill}
    caches = _emitter(rows, weights)
    emit_slots(caches, decoder, SLOTS, CAPACITY)
    inputs = [(name, Type("int64")) for name in (SLOTS, CAPACITY)]
    made = [(value.name, value.type) for value in decoder.resident.caches]
    return {REFILL: refill, CACHES: model(caches, "caches", inputs, made)}


def refill_search_models(program: Program, rows: Program, weights: Initializers) -> dict[str, onnx.ModelProto]:
    """The models of a batch of searches whose texts join and leave, by file name: that of the texts that join, that of
    a call, and the one that makes its caches.

    `program` is that of `search_model`, and `rows` is from `run_rows`.
    """
    decoder, join, refill = rows.decoder, _emitter(rows, weights), _emitter(rows, weights)
    for value in decoder.given:
        join.bind(value, value.name)
    options = {**_options(join, program.search, decoder.written), PREFIX: join.default_tokens(PREFIX)}
    none = dict.fromkeys((PHRASES, AUTOMATON, NEEDS, START), "")
    given = SearchInputs(
        **_alone(options), **none, edits=_EDITS, default=program.prefix, suppress_first=program.suppress_first,
        shortlist=_shortlist(program, weights),
    )  # fmt: skip
    found, types = emit_join(join, decoder, given, program.longest), joined_types(decoder, given.shortlist)
    outputs = [(join.op("Identity", one, name=f"{name}{NEXT}"), types[name]) for name, one in found.items()]
    inputs = [*((value.name, value.type) for value in decoder.given), *options.items()]
    models = {JOIN: _needing_defaults(_needing(model(join, "join", inputs, outputs)))}
    options = _options(refill, program.search, decoder.written)
    after, types = (
        emit_refilled_search(refill, decoder, replace(given, prefix=""), COUNT),
        refilled_search_types(decoder),
    )
    outputs = [(refill.op("Identity", one, name=f"{name}{NEXT}"), types[name]) for name, one in after.items()]
    calls = {COUNT: Type("int64"), **options}
    models[ADVANCE] = _needing_defaults(
        _needing(
            model(refill, "advance", [*refill_search_types(decoder, given.shortlist).items(), *calls.items()], outputs)
        )
    )
    if decoder.resident is None or not decoder.resident.caches:
        return models
    caches, width = _emitter(rows, weights), "beam_size"
    emit_slots(caches, decoder, SLOTS, CAPACITY, caches.op("Unsqueeze", width, [0]))
    inputs = [(name, Type("int64")) for name in (SLOTS, CAPACITY, width)]
    made = [(value.name, value.type) for value in decoder.resident.caches]
    return {**models, CACHES: model(caches, "caches", inputs, made)}


def _needing_defaults(model: onnx.ModelProto) -> onnx.ModelProto:
    """Remove the default values that are no inputs of the model."""
    inputs, taken = {value.name for value in model.graph.input}, taken_names(model.graph)
    for value in [value for value in model.graph.initializer if value.name not in taken | inputs]:
        model.graph.initializer.remove(value)
    return model


def alignments_model(program: Program, weights: Initializers) -> onnx.ModelProto:
    """From sources and what the decoder reads of their translations to the attention weights of each of its positions.

    `program` is one of `begin_alignments`.
    """
    program = run_alignments(program)
    emitter, (value,) = _emitter(program, weights), program.graph.outputs
    (found,) = emitter.graph(program.graph, {value.name: value.name for value in program.graph.inputs})
    inputs = [(value.name, value.type) for value in program.graph.inputs]
    return model(emitter, "alignments", inputs, [(emitter.op("Identity", found, name=ATTENTION), value.type)])


def fixed_models(program: Program, weights: Initializers) -> dict[str, onnx.ModelProto]:
    """A search with fixed shapes as one model, and as the two parts that a runtime drives, by file name."""
    search = _FIXED[program.decoding](program.decoder)
    own = {*search.constants, *search.carried, "places", "ranks"}
    for name in own & {value.name for value in program.decoder.given}:
        message = f"the input '{name}' has the name of a value of the search"
        raise UserError(message, place=program.spec.name, hint="rename the input")
    whole = _emitter(program, weights)
    found, heads = emit_whole(whole, search)
    for name, result in found.items():
        whole.op("Identity", result, name=name)
    beside = _emit_results(whole, program, heads)
    prepare = _emitter(program, weights)
    bind_fields(prepare, search.inputs, {name: name for name in search.inputs})
    made = {**search.constants, **search.carried}
    begun, heads = search.prepare(prepare)
    for name, result in begun.items():
        prepare.op("Identity", result, name=name)
    prepared = [*made.items(), *_emit_results(prepare, program, heads)]
    step = _emitter(program, weights)
    given = {**search.inputs, **made}
    names = {name: name for name in given}
    bind_fields(step, given, names)
    go_on, leaving = search.step(step, names)
    step.op("Identity", go_on, name=GO_ON)
    following = {f"{name}{NEXT}": type for name, type in search.carried.items()}
    for name, result in leaving.items():
        step.op("Identity", result, name=f"{name}{NEXT}")
    return {
        MODEL: _needing(model(whole, "engine", list(search.inputs.items()), [*search.results.items(), *beside])),
        PREPARE: _needing(model(prepare, "prepare", list(search.inputs.items()), prepared)),
        STEP: _needing(model(step, "step", list(given.items()), [(GO_ON, Type("bool")), *following.items()])),
    }


def _needing(model: onnx.ModelProto) -> onnx.ModelProto:
    """Remove the inputs that no node of the model uses."""
    taken = taken_names(model.graph)
    for value in [value for value in model.graph.input if value.name not in taken]:
        model.graph.input.remove(value)
    return model


def forward_model(
    graph: Graph, weights: Initializers, *, target: Target, show: Sequence[Value] = (), names: Sequence[str] = ()
) -> onnx.ModelProto:
    """A graph as a model, with its own inputs and outputs, and the values of `show` as further outputs.

    `names` are those of the outputs, by default output.0 and so on.
    """
    emitter = Emitter(weights, target=target)
    emitter.graph(graph, {value.name: value.name for value in graph.inputs})
    shown = [*graph.outputs, *show]
    outputs = [
        (emitter.op("Identity", emitter.name_of(value), name=name), value.type)
        for value, name in zip(shown, names or [f"output.{index}" for index in range(len(shown))], strict=True)
    ]
    return model(emitter, "forward", [(value.name, value.type) for value in graph.inputs], outputs)


def forward_results(program: Program, weights: Initializers) -> onnx.ModelProto:
    """From the graph's inputs to the outputs of all results."""
    return results_model(program, program.graph, weights)


def results_model(program: Program, graph: Graph, weights: Initializers) -> onnx.ModelProto:
    """From the graph's inputs to the outputs of those results of the program whose values are its outputs."""
    emitter = _emitter(program, weights)
    values = emitter.graph(graph, {value.name: value.name for value in graph.inputs})
    inputs = [(value.name, value.type) for value in graph.inputs]
    named = {value.name: name for value, name in zip(graph.outputs, values, strict=True)}
    return model(emitter, "engine", inputs, _emit_results(emitter, program, named))


def _emit_results(emitter: Emitter, program: Program, values: Mapping[str, str]) -> list[tuple[str, Type]]:
    """Write the outputs of the results that are not written text; `values` are the names of those values of the graph's
    outputs that are there."""
    outputs: list[tuple[str, Type]] = []
    for declared, value in zip(program.spec.results, program.graph.outputs, strict=True):
        if declared.kind == "text" or value.name not in values:
            continue
        made = KINDS[declared.kind].emit(emitter, values[value.name], value.type, declared.settings)
        for name, (output, type) in zip(program.results[declared.name].outputs, made, strict=True):
            outputs.append((emitter.op("Identity", output, name=name), type))
    return outputs


def stepwise_model(program: Program, weights: Initializers, *, show: Sequence[Value] = ()) -> onnx.ModelProto:
    """The program's decoder, without a beam, fed with given tokens along the time axis, one per step.

    Takes the graph's inputs; returns the logits of all steps and the values of `show`, stacked along a first axis.
    """
    emitter, decoder = _emitter(program, weights), program.decoder
    token, fixed = decoder.token, decoder.given
    given = Value(token.name, Type("int64", (token.type.axes[0], Axis(decoder.time))))
    known, states = emit_begin(emitter, decoder, given, given.name)
    steps = emitter.op("Squeeze", emitter.shape(given.type.axes[1:]))
    shown = [decoder.logits, *show]

    def body(scope: Emitter, iteration: str, states: list[str]) -> tuple[str, list[str], list[tuple[Type, str]]]:
        newest = scope.op("Gather", given.name, scope.op("Unsqueeze", iteration, [0]), axis=1)
        now = {state.past.name: name for state, name in zip(decoder.states, states, strict=True)}
        _, *new = scope.graph(decoder.step, step_inputs(decoder, newest, iteration, {**known, **now}))
        collected = [(value.type, scope.name_of(value)) for value in shown]
        return scope.op("Identity", True), new, collected

    carried = [(state.past.type, states[state.past.name]) for state in decoder.states]
    kept = {"batch", ROOM, *(axis.name for value in fixed for axis in value.type.axes)}
    results = emitter.loop(steps, carried, body, frozenset(kept))
    stacked = results[len(carried) :]
    outputs = [
        (
            emitter.op("Identity", name, name=f"output.{index}"),
            Type(value.type.dtype, (Axis("steps"), *value.type.axes)),
        )
        for index, (value, name) in enumerate(zip(shown, stacked, strict=True))
    ]
    inputs = [(value.name, value.type) for value in (*fixed, given)]
    return model(emitter, "stepwise", inputs, outputs)


def extended_model(program: Program, weights: Initializers) -> onnx.ModelProto:
    """The program's decoder, without a beam, fed with given tokens in two parts: the first `split`, then the others.

    Takes the graph's inputs and `split`, int64 []; returns the logits of all positions.
    """
    emitter, decoder, graph = _emitter(program, weights), program.decoder, program.decoder.extend
    assert graph is not None, "the decoder has no step of several tokens"
    token, fixed = graph.inputs[0], decoder.given
    known, states = emit_begin(emitter, decoder, token, token.name)
    count, batch = emitter.shape(token.type.axes[1:]), emitter.merged(token.type.axes[:1])
    bounds = emitter.op("Concat", [0], emitter.op("Unsqueeze", SPLIT, [0]), count, axis=0)
    logits = Type("float32", (token.type.axes[0], Axis(PAST), graph.outputs[0].type.axes[-1]))
    nothing = emitter.op("Expand", 0.0, emitter.op("Concat", batch, [0, logits.axes[-1].size or 1], axis=0))

    def body(scope: Emitter, iteration: str, carried: list[str]) -> tuple[str, list[str], list[tuple[Type, str]]]:
        before, *past = carried
        start = scope.op("Gather", bounds, iteration, axis=0)
        end = scope.op("Gather", bounds, scope.op("Add", iteration, 1), axis=0)
        tokens = scope.op("Slice", token.name, *(scope.op("Unsqueeze", bound, [0]) for bound in (start, end)), [1])
        now = {state.past.name: name for state, name in zip(decoder.states, past, strict=True)}
        found, *new = scope.graph(graph, step_inputs(decoder, tokens, start, {**known, **now}))
        return scope.op("Identity", True), [scope.op("Concat", before, found, axis=1), *new], []

    entering = [(logits, nothing), *((state.past.type, states[state.past.name]) for state in decoder.states)]
    kept = {"batch", *(axis.name for value in fixed for axis in value.type.axes)}
    found, *_ = emitter.loop(emitter.operand(2), entering, body, frozenset(kept))
    whole = Type("float32", (*token.type.axes, logits.axes[-1]))
    inputs = [(value.name, value.type) for value in (*fixed, token)]
    outputs = [(emitter.op("Identity", found, name="output.0"), whole)]
    return model(emitter, "extended", [*inputs, (SPLIT, Type("int64"))], outputs)


def step_model(program: Program, weights: Initializers) -> onnx.ModelProto:
    """A single step: from the inputs of `Decoder.step`, in order, to its results `output.0`, `output.1`, ..."""
    emitter, step = _emitter(program, weights), program.decoder.step
    results = emitter.graph(step, {value.name: value.name for value in step.inputs})
    names = [emitter.op("Identity", name, name=f"output.{index}") for index, name in enumerate(results)]
    outputs = [(name, value.type) for name, value in zip(names, step.outputs, strict=True)]
    return model(emitter, "step", [(value.name, value.type) for value in step.inputs], outputs)


def _options(emitter: Emitter, defaults: SearchOptions | SampleOptions, special: SpecialTokens) -> dict[str, Type]:
    """Add the inputs with default values, the options and the end token; return their types."""
    types = {
        name: emitter.default(name, value) if name in SHAPES else emitter.default_rows(name, value)
        for name, value in numbers(defaults).items()
    }
    return {**types, END_TOKEN: emitter.default(END_TOKEN, special.as_input(special.end))}


def _sampled(
    program: Program, options: Mapping[str, Type], prompt: str = "", suppress_first: tuple[int, ...] = ()
) -> SampleInputs:
    """The inputs of sampling, which have the names of the options."""
    names: dict[str, Any] = _alone(options)
    return SampleInputs(
        prompt, "seed", **names, edits=_EDITS, suppress_first=suppress_first, kernels=program.traits.kernels
    )


def _alone(options: Mapping[str, Type]) -> dict[str, str]:
    """The inputs of options that do not edit scores, by field."""
    return {name: name for name in options if name not in asdict(_EDITS)}


def _emitter(program: Program, weights: Initializers) -> Emitter:
    assert program.target is not None, f"{program.spec.name} was compiled for training"
    return Emitter(weights, target=program.target)


_EDITS = EditInputs(*(option.name for option in EDITS))

_MODELS: Mapping[str, Callable[[Program, Initializers], onnx.ModelProto]] = {
    "search": search_model,
    "sample": sampling_model,
    "forward": forward_results,
}
"""The engine's model, by how it computes."""

_FIXED: Mapping[str, Callable[[Decoder], FixedSearch]] = {"search": fixed_beam_search, "sample": fixed_sampling}
"""The search with fixed shapes, by how it decodes."""
