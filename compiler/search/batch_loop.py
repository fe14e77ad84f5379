"""The two loops of beam search with growing values.

The inner loop decodes a batch of sentences token by token until enough of them are finished. The outer loop then stores
their results, keeps only the rows of the other sentences, and starts the inner loop again.
"""

from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, fields, replace
from types import MappingProxyType

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.graph import Value
from xformc.compiler.graph.rules import OnnxEmitter, Operand
from xformc.compiler.passes.coverage import COVERAGE
from xformc.compiler.passes.step import Decoder
from xformc.compiler.search.automaton import Automaton, emit_room
from xformc.compiler.search.candidates import BeamOptions, Pool, Rules, emit_count, emit_lengths, emit_limit, is_end
from xformc.compiler.search.carried import (
    NEVER,
    BeamScores,
    BeamTokens,
    Flags,
    GroupIntegers,
    Integer,
    Integers,
    Tokens,
)
from xformc.compiler.search.decoder_step import emit_positions, emit_prepare, moving
from xformc.compiler.search.edits import EditInputs, Edits, emit_edits, suppressed_at_first
from xformc.compiler.search.groups import Groups, emit_groups
from xformc.compiler.search.loops import Collected, Fields, Names, Record, bind_fields, emit_loop, fields_of, mapped
from xformc.compiler.search.phrases import Phrases, emit_used
from xformc.compiler.search.phrases import emit_lengths as emit_phrase_lengths
from xformc.compiler.search.prefix_bias import PrefixBias, emit_bias
from xformc.compiler.search.shortlist import Asked, ShortlistInputs, emit_allowed
from xformc.compiler.search.timestamps import any_timed, is_timed
from xformc.format.speech import Times
from xformc.format.tokens import SpecialTokens

_KEPT = frozenset({"batch", "beam", "source"})
"""The axes whose sizes do not change in the inner loop, if it begins with all hypotheses."""


@dataclass(frozen=True)
class SearchInputs:
    """The ONNX names of the search's inputs, as defined in docs/search.md.

    Options other than the beam size and `n_best` have a row for each sentence, or one for all. `default` is the prefix
    of sentences without one, `suppress_first` are the tokens that never come right after a prefix. A search after a
    `prompt` has no prefix. `times` is None for a model that knows none. `prompted`: prefixes are no part of scores and
    lengths, as prompts are. Without a `shortlist` all tokens may follow.
    """

    beam_size: str
    n_best: str
    length_penalty: str
    max_length_factor: str
    max_length_offset: str
    min_length: str
    length_penalty_kind: str
    stop_rule: str
    patience: str
    end_token: str
    prefix: str
    phrases: str
    automaton: str
    automaton_needs: str
    automaton_start: str
    edits: EditInputs
    beam_groups: str
    diversity_penalty: str
    prefix_bias: str = ""
    coverage_penalty: str = ""
    default: tuple[int, ...] = ()
    suppress_first: tuple[int, ...] = ()
    prompt: str = ""
    times: Times | None = None
    prompted: bool = False
    shortlist: ShortlistInputs | None = None


@dataclass(frozen=True)
class SearchResult:
    """The ONNX names of the n-best lists: tokens [batch, n_best, length], lengths and scores [batch, n_best]."""

    tokens: str
    lengths: str
    scores: str


Written = tuple[SearchResult, Names]
"""The n-best lists, and the names of the decoder's heads."""


@dataclass(frozen=True)
class Read:
    """Prompts that were read up to the length of the shortest one.

    start: the position of the next token to feed, []. given: the number of tokens of each text behind the first that
    come from its prompt, [batch]. tokens: those of each text up to `start`, [batch, start + 1]. states: those of a
    decoder without a beam. caches: those of kernels.
    """

    start: str
    given: str
    tokens: str
    states: Names
    caches: Names


@dataclass(frozen=True)
class Begun:
    """Values from before the loops: the length limit of each sentence and its least length [batch], the largest limit,
    the results of `prepare`, and the size of the batch as a vector. `options` have the rows of the inputs. `prefix`
    [batch, prefix] are the tokens that each text begins with, padded, with a last column of padding. `coverage_penalty`
    [batch] is None without coverage. `read` are the prompts of a language model, whose tokens are the prefix. So many
    tokens of each text as `given` [batch] are no part of its score and length; None for none."""

    options: BeamOptions
    limit: str
    least: str
    longest: str
    prefix: str
    prepared: Names
    batch: str
    groups: Groups
    coverage_penalty: str | None = None
    read: Read | None = None
    given: str | None = None


@dataclass(frozen=True)
class Beam(Record):
    """The open hypotheses of each sentence, its best finished ones, and the number of finished ones of each group."""

    tokens: BeamTokens
    scores: BeamScores
    pool: Pool
    found: GroupIntegers


@dataclass(frozen=True)
class Live(Record):
    """The sentences still being decoded: their rows in the batch of sources, and their values.

    `constant` are the decoder's constants with the axis batch, `state` its states. `option` are the options of each
    sentence; there are none for kernels, which look them up.
    """

    sentence: Integers
    beam: Beam
    limit: Integers
    least: Integers
    prefix: Tokens
    option: Names
    constant: Names
    state: Names


@dataclass(frozen=True)
class Decoding(Record):
    """The carried values of the inner loop."""

    position: Integer
    done: Flags
    beam: Beam
    state: Names


@dataclass(frozen=True)
class _Epoch(Record):
    """The carried values of the outer loop; `filed` are the results of the whole batch, in the order of the sources."""

    position: Integer
    live: Live
    filed: Pool


_NUMBER, _COUNT = Type("float32", (Axis("batch"),)), Type("int64", (Axis("batch"),))

OPTION_TYPES: Mapping[str, Type] = {
    "length_penalty": _NUMBER,
    "penalty_offset": _NUMBER,
    "stop_rule": _COUNT,
    "patience": _NUMBER,
    "suppress_tokens": Type("int64", (Axis("batch"), Axis("suppressed"))),
    "no_repeat_ngram_size": _COUNT,
    "repetition_penalty": _NUMBER,
    "presence_penalty": _NUMBER,
    "frequency_penalty": _NUMBER,
    "edited": Type("bool", (Axis("batch"),)),
    "phrases": Type("int64", (Axis("batch"), Axis("phrases"), Axis("phrase_length"))),
    "prefix_bias": _NUMBER,
    "automaton_start": _COUNT,
    "diversity_penalty": _NUMBER,
    "given": _COUNT,
    "allowed": Type("bool", (Axis("batch"), Axis("vocabulary"))),
}
"""The options of a sentence: the fields of `Rules` and `EditInputs`, whether scores are edited, and the other ones; the
last two are there with prompts and with a shortlist alone."""

Step = Callable[[OnnxEmitter, Live, Decoding], tuple[str, Decoding]]
"""Writes a step for the live sentences; returns whether to continue, and the new carried values."""


def begin(onnx: OnnxEmitter, decoder: Decoder, inputs: SearchInputs, longest: int | None) -> Begun:
    """Write the part before the loops. The model's inputs have the names that they have in the decoder.

    `decoder` has the axis `beam` (see `with_beam`); `longest` is its maximum number of tokens, or None.
    """
    options = emit_options(onnx, inputs, decoder.written)
    phrases, automaton = options.phrases, options.automaton
    count = emit_count(onnx, decoder)
    batch = onnx.op("Shape", count, start=0, end=1)
    asked = onnx.op("Expand", inputs.prefix, onnx.op("Concat", batch, [1], axis=0))
    prefix = emit_prefix(onnx, asked, inputs.default, decoder.written, timed_of(onnx, inputs))
    limit = emit_limit(onnx, count, inputs.max_length_factor, inputs.max_length_offset, longest)
    limit = onnx.op("Max", limit, emit_lengths(onnx, asked, decoder.written))
    if phrases is not None:
        limit = _with_room(onnx, limit, emit_lengths(onnx, prefix, decoder.written), phrases.tokens, longest)
    if automaton is not None:
        limit = emit_room(onnx, limit, emit_lengths(onnx, prefix, decoder.written), automaton, longest)
    least = _emit_least(onnx, inputs, prefix, limit, decoder.written)
    longest_limit = onnx.op("ReduceMax", limit, keepdims=0)
    given = {value.name: value.name for value in decoder.given}
    prepared = emit_prepare(onnx, decoder, given | emit_positions(onnx, decoder, longest_limit))
    return Begun(
        options,
        limit,
        least,
        longest_limit,
        onnx.op("Pad", prefix, [0, 0, 0, 1], decoder.written.absent),
        prepared,
        batch,
        emit_groups(onnx, inputs.beam_groups, options.width, inputs.diversity_penalty),
        onnx.op("Expand", inputs.coverage_penalty, batch) if inputs.coverage_penalty else None,
        given=_emit_given(onnx, inputs, prefix, decoder.written) if inputs.prompted else None,
    )


def emit_options(onnx: OnnxEmitter, inputs: SearchInputs, special: SpecialTokens) -> BeamOptions:
    """Write what the options are for all steps."""
    width = onnx.op("Unsqueeze", inputs.beam_size, [0])
    rules, penalty = Rules(inputs.length_penalty_kind, inputs.stop_rule, inputs.patience), inputs.length_penalty
    edits, bias = emit_edits(onnx, inputs.edits), emit_bias(onnx, inputs.prefix_bias or onnx.operand([0.0]))
    phrases = Phrases(inputs.phrases, emit_used(onnx, inputs.phrases)) if inputs.phrases else None
    ends = (inputs.end_token, penalty, special, rules)
    automaton = _automaton(onnx, inputs) if inputs.automaton else None
    if automaton is not None:
        edits = _changed(onnx, edits, bias, automaton, timed_of(onnx, inputs))
    return BeamOptions(
        width, onnx.op("Mul", width, [special.choices]), *ends, edits, phrases, bias, automaton, inputs.times
    )


def timed_of(onnx: OnnxEmitter, inputs: SearchInputs) -> str | None:
    """Which sentences have timestamps, [rows]; None if none can."""
    return is_timed(onnx, inputs.automaton_start) if inputs.times is not None and inputs.automaton_start else None


def _automaton(onnx: OnnxEmitter, inputs: SearchInputs) -> Automaton:
    used = onnx.op("Greater", onnx.op("Size", inputs.automaton_needs), 0)
    return Automaton(inputs.automaton, inputs.automaton_needs, inputs.automaton_start, used)


def _changed(onnx: OnnxEmitter, edits: Edits, bias: PrefixBias, automaton: Automaton, timed: str | None) -> Edits:
    """The edits, in use also for a prefix that is made likelier, an automaton, and the rows that are `timed`."""
    rows = onnx.op("Or", edits.rows, onnx.op("Greater", bias.share, 0.0))
    used = onnx.op("Or", onnx.op("Or", edits.used, bias.used), automaton.used)
    if timed is not None:
        rows = onnx.op("Or", rows, timed)
        used = onnx.op("Or", used, any_timed(onnx, timed))
    return replace(edits, rows=onnx.op("Or", rows, onnx.op("GreaterOrEqual", automaton.start, 0)), used=used)


def _with_room(onnx: OnnxEmitter, limit: str, begun: str, phrases: str, longest: int | None) -> str:
    """The limit of each sentence [batch] with room for all of its phrases, behind `begun` tokens, and an end token."""
    wanted = onnx.op("ReduceSum", emit_phrase_lengths(onnx, phrases), [1], keepdims=0)
    needed = onnx.op("Add", onnx.op("Add", begun, wanted), 1)
    needed = needed if longest is None else onnx.op("Min", needed, longest)
    return onnx.op("Where", onnx.op("Greater", wanted, 0), onnx.op("Max", limit, needed), limit)


def emit_prefix(
    onnx: OnnxEmitter, given: str, default: tuple[int, ...], special: SpecialTokens, timed: str | None = None
) -> str:
    """The tokens that each text begins with, padded, [batch, prefix]: those given, or the default, which texts with
    timestamps, `timed` [rows], do not have."""
    if not default:
        return given
    longest, more = onnx.op("Shape", given, start=1), [0, 0, 0, len(default)]
    tokens = onnx.op("Unsqueeze", [*default], [0])
    usual = onnx.op("Pad", tokens, onnx.op("Concat", [0, 0, 0], longest, axis=0), special.absent)
    is_empty = onnx.op("Equal", emit_lengths(onnx, given, special), 0)
    is_empty = is_empty if timed is None else onnx.op("And", is_empty, onnx.op("Not", timed))
    padded = onnx.op("Pad", given, more, special.absent)
    return onnx.op("Where", onnx.op("Unsqueeze", is_empty, [1]), usual, padded)


def _emit_given(onnx: OnnxEmitter, inputs: SearchInputs, prefix: str, special: SpecialTokens) -> str:
    """The tokens of each prefix but an end token, [batch]."""
    return onnx.op("Sub", emit_lengths(onnx, prefix, special), _emit_ends(onnx, inputs, prefix, special))


def _emit_least(onnx: OnnxEmitter, inputs: SearchInputs, prefix: str, limit: str, special: SpecialTokens) -> str:
    """The least tokens of each sentence, [batch]; 0 for one whose prefix is a whole text."""
    is_whole = _emit_whole(onnx, inputs, prefix, special)
    least = onnx.op("Expand", inputs.min_length, onnx.op("Shape", limit))
    return onnx.op("Where", is_whole, 0, least)


def _emit_whole(onnx: OnnxEmitter, inputs: SearchInputs, prefix: str, special: SpecialTokens) -> str:
    """Which prefixes have an end token, bool [batch]: they are whole texts."""
    return onnx.op("Greater", _emit_ends(onnx, inputs, prefix, special), 0)


def _emit_ends(onnx: OnnxEmitter, inputs: SearchInputs, prefix: str, special: SpecialTokens) -> str:
    """The number of end tokens of each prefix, [batch]."""
    ends = onnx.op("Cast", is_end(onnx, prefix, inputs.end_token, special), to=7)
    return onnx.op("ReduceSum", ends, [1], keepdims=0)


def options_by_sentence(onnx: OnnxEmitter, begun: Begun) -> dict[str, str]:
    """The options of `OPTION_TYPES`, with a row for each sentence of the batch."""
    options, (tokens, *numbers) = begun.options, begun.options.needed_edits.inputs.names
    names = [options.length_penalty, *astuple(options.needed_rules), tokens, *numbers, options.needed_edits.rows]
    assert options.bias is not None and options.automaton is not None
    names += [options.needed_phrases.tokens, options.bias.share, options.automaton.start, begun.groups.penalty]
    names += [] if begun.given is None else [begun.given]
    pairs = zip(OPTION_TYPES, names, strict=False)
    return {
        name: onnx.op(
            "Expand", value, onnx.op("Concat", begun.batch, *[[1]] * (len(OPTION_TYPES[name].axes) - 1), axis=0)
        )
        for name, value in pairs
    }


def allowed_by_sentence(onnx: OnnxEmitter, inputs: SearchInputs, begun: Begun) -> str | None:
    """Which tokens may follow in each sentence, bool [batch, vocabulary]; None without a shortlist."""
    if inputs.shortlist is None:
        return None
    return emit_allowed(onnx, inputs.shortlist, asked_of(onnx, inputs, begun), begun.batch)


def asked_of(onnx: OnnxEmitter, inputs: SearchInputs, begun: Begun) -> Asked:
    """The tokens that calls ask for: all in a sentence with an automaton, or whose text is given whole: its prefix,
    which is forced, has an end token or reaches the limit."""
    special, bias = begun.options.special, begun.options.bias
    at_limit = onnx.op("GreaterOrEqual", emit_lengths(onnx, begun.prefix, special), begun.limit)
    whole = onnx.op("Or", _emit_whole(onnx, inputs, begun.prefix, special), at_limit)
    if bias is not None:
        whole = onnx.op("And", whole, onnx.op("Equal", bias.share, 0.0))
    all_follow = onnx.op("Where", whole, 0, inputs.automaton_start or -1)
    return Asked(begun.prefix, special.absent, inputs.phrases, all_follow)


def options_of(options: BeamOptions, option: Names) -> BeamOptions:
    """The options of the live sentences; `options` are those of the batch."""
    assert options.bias is not None and options.automaton is not None
    bias = replace(options.bias, share=option["prefix_bias"])
    automaton = replace(options.automaton, start=option["automaton_start"])
    rest = {name: value for name, value in option.items() if name not in _APART}
    rules = Rules(*(rest.pop(field.name) for field in fields(Rules)))
    edits = replace(options.needed_edits, inputs=EditInputs(**rest), rows=option["edited"])
    phrases = replace(options.needed_phrases, tokens=option["phrases"])
    own = replace(options, length_penalty=option["length_penalty"], rules=rules, edits=edits, phrases=phrases)
    return replace(own, bias=bias, automaton=automaton)


_APART = frozenset(
    {"length_penalty", "edited", "phrases", "prefix_bias", "automaton_start", "diversity_penalty", "given", "allowed"}
)


def is_first(onnx: OnnxEmitter, prefix: str, position: str, special: SpecialTokens) -> str:
    """In which texts the token at a position, one or that of each, is the first after the prefix, [batch]."""
    return onnx.op("Equal", emit_lengths(onnx, prefix, special), position)


def names_of_edits(
    onnx: OnnxEmitter, inputs: SearchInputs, prefix: str, position: str, special: SpecialTokens
) -> tuple[str, ...]:
    """The inputs of kernels that edit scores, with the tokens that never come right after a prefix; see `is_first`."""
    suppressed, *others = inputs.edits.names
    if inputs.suppress_first:
        here = is_first(onnx, prefix, position, special)
        suppressed = suppressed_at_first(onnx, suppressed, inputs.suppress_first, here)
    return suppressed, *others


def emit_coverage(onnx: OnnxEmitter, begun: Begun, live: Live, states: Names) -> str | None:
    """What each hypothesis adds to the score of a text that ends with it [batch, beam], from the new states of a step;
    None without coverage."""
    if begun.coverage_penalty is None:
        return None
    own = onnx.op("Gather", begun.coverage_penalty, live.sentence, axis=0)
    return onnx.op("Mul", onnx.op("Squeeze", states[COVERAGE], [-1]), onnx.op("Unsqueeze", own, [1]))


def heads_of(decoder: Decoder, begun: Begun) -> Names:
    """The names of the decoder's heads, which `prepare` computed."""
    return {value.name: begun.prepared[value.name] for value in decoder.heads}


def decode_batch(
    onnx: OnnxEmitter,
    decoder: Decoder,
    begun: Begun,
    states: Names,
    types: Fields,
    step: Step,
    *,
    opened: Operand | None = None,
    option: Names = MappingProxyType({}),
) -> Pool:
    """Write both loops; return the best hypotheses of each sentence.

    `states` are the initial states. `opened` is the number of hypotheses that each sentence begins with, as a vector:
    None for the beam size, which is the number after every step. `option` [batch, ..] are the options by their names in
    `OPTION_TYPES`.
    """
    rows = {value.name: value.type for value in decoder.constants if "batch" in value.type.names}
    width, opening = begun.options.width, begun.options.special.begin or 0
    opened_size = width if opened is None else opened
    beam = first_beam(onnx, begun.batch, width, opening, opened_size, begun.groups.count)
    if begun.read is not None:
        beam = _behind(onnx, beam, begun.read, opened_size)
    keeps = _KEPT if opened is None else _KEPT - {"beam"}
    sentence = onnx.op("Range", 0, onnx.op("Squeeze", begun.batch), 1)
    constant = {name: begun.prepared[name] for name in rows}
    live = Live(sentence, beam, begun.limit, begun.least, begun.prefix, option, constant, states)

    def epoch(scope: OnnxEmitter, _: str, now: _Epoch) -> tuple[str, _Epoch, Collected]:
        bind_fields(scope, rows, now.live.constant)
        scope.bind(Value("hypotheses", fields_of(Beam)["scores"]), now.live.beam.scores)
        position, done, live = _decode_some(scope, now.position, now.live, types, step, keeps)
        filed = _file(scope, live, now.filed)
        kept = scope.op("Squeeze", scope.op("NonZero", scope.op("Not", done)), [0])
        parts = replace(live, state=moving(types, live.state))
        parts = mapped(parts, lambda name: scope.op("Gather", name, kept, axis=0))
        live = replace(parts, state={**live.state, **parts.state})
        alive = scope.op("Greater", scope.op("Squeeze", scope.op("Shape", kept)), 0)
        return alive, _Epoch(position, live, filed), []

    entering = _Epoch(onnx.operand(0) if begun.read is None else begun.read.start, live, beam.pool)
    kinds = {name: OPTION_TYPES[name] for name in option}
    last, _ = emit_loop(onnx, "", fields_of(_Epoch, option=kinds, constant=rows, state=types), entering, epoch)
    return last.filed


def first_beam(onnx: OnnxEmitter, batch: str, width: str, begin: int, opened: Operand, groups: Operand = (1,)) -> Beam:
    """Write the initial hypotheses; only the first of each group can be continued.

    The sizes are vectors; `begin` is the begin token.
    """
    shape = onnx.op("Concat", batch, width, axis=0)
    pool_shape = onnx.op("Concat", shape, [1], axis=0)
    tokens_shape = onnx.op("Concat", batch, opened, [1], axis=0)
    ranks = onnx.op("Range", 0, onnx.op("Squeeze", opened), 1)
    ranks = onnx.op("Mod", ranks, onnx.op("Div", opened, groups))
    first = onnx.op("Where", onnx.op("Equal", ranks, [0]), [0.0], [NEVER])
    tokens = onnx.op("Expand", begin, tokens_shape)
    scores = onnx.op("Expand", first, onnx.op("Concat", batch, opened, axis=0))
    pool = Pool(onnx.op("Expand", 0, pool_shape), onnx.op("Expand", 0, shape), onnx.op("Expand", NEVER, shape))
    return Beam(tokens, scores, pool, onnx.op("Expand", 0, onnx.op("Concat", batch, groups, axis=0)))


def _behind(onnx: OnnxEmitter, beam: Beam, read: Read, opened: Operand) -> Beam:
    """The initial hypotheses behind the tokens that were read."""
    tokens = onnx.op("Expand", onnx.op("Unsqueeze", read.tokens, [1]), onnx.op("Concat", [1], opened, [1], axis=0))
    length = onnx.op("Shape", read.tokens, start=1)
    shape = onnx.op("Concat", onnx.op("Shape", beam.pool.lengths), length, axis=0)
    return replace(beam, tokens=tokens, pool=replace(beam.pool, tokens=onnx.op("Expand", 0, shape)))


def widened(onnx: OnnxEmitter, types: Fields, states: Names, beam: Operand) -> dict[str, str]:
    """States without a beam as those of `beam` equal hypotheses; the `types` have the beam as their second axis."""
    found = dict(states)
    for name, type in types.items():
        if "beam" in type.names:
            shape = onnx.op("Concat", [1], beam, [1] * (len(type.axes) - 2), axis=0)
            found[name] = onnx.op("Expand", onnx.op("Unsqueeze", states[name], [1]), shape)
    return found


def newest(onnx: OnnxEmitter, beam: Beam) -> str:
    """The last token of each hypothesis, [batch, beam, 1]."""
    return onnx.op("Slice", beam.tokens, [-1], [2**31], [2])


def best(onnx: OnnxEmitter, found: Pool, n_best: str, given: str | None = None) -> SearchResult:
    """The n best of each sentence, without the begin token, cut to the length of the longest.

    `given` is the number of tokens of a prompt behind the first, [batch], which are left out as well.
    """
    zero, one = [0], [1]
    scores, order = onnx.ops("TopK", 2, found.scores, onnx.op("Unsqueeze", n_best, zero), axis=-1)
    lengths = onnx.op("GatherElements", found.lengths, order, axis=-1)
    if given is not None:
        lengths = onnx.op("Max", onnx.op("Sub", lengths, onnx.op("Unsqueeze", given, one)), 0)
    longest = onnx.op("Unsqueeze", onnx.op("ReduceMax", lengths, keepdims=0), zero)
    shape = onnx.op("Concat", onnx.op("Shape", order), longest, axis=0)
    if given is None:
        tokens = onnx.op("Slice", found.tokens, one, onnx.op("Add", longest, one), [2])
    else:
        tokens = _written(onnx, found.tokens, given, longest)
    index = onnx.op("Expand", onnx.op("Unsqueeze", order, [2]), shape)
    return SearchResult(onnx.op("GatherElements", tokens, index, axis=1), lengths, scores)


def _written(onnx: OnnxEmitter, tokens: str, given: str, longest: str) -> str:
    """The tokens [batch, beam, longest] behind the prompts, of which each has `given` behind its first; then 0."""
    padded = onnx.op("Pad", tokens, onnx.op("Concat", [0, 0, 0, 0, 0], longest, axis=0))
    ranks = onnx.op("Range", 1, onnx.op("Add", onnx.op("Squeeze", longest), 1), 1)
    places = onnx.op("Add", onnx.op("Unsqueeze", given, [1, 2]), ranks)
    shape = onnx.op("Concat", onnx.op("Shape", tokens, end=2), longest, axis=0)
    return onnx.op("GatherElements", padded, onnx.op("Expand", places, shape), axis=2)


def _decode_some(
    onnx: OnnxEmitter, position: str, live: Live, types: Fields, step: Step, keeps: frozenset[str]
) -> tuple[str, str, Live]:
    """Decode until some sentences are done; return the next position, which sentences are done, and all of them."""

    def turn(scope: OnnxEmitter, _: str, now: Decoding) -> tuple[str, Decoding, Collected]:
        return *step(scope, live, now), []

    entering = Decoding(position, onnx.op("Less", live.limit, 0), live.beam, live.state)
    last, _ = emit_loop(onnx, "", fields_of(Decoding, state=types), entering, turn, keeps)
    return last.position, last.done, replace(live, beam=last.beam, state=last.state)


def _file(onnx: OnnxEmitter, live: Live, filed: Pool) -> Pool:
    """Write the results of the live sentences into their rows of the batch."""
    pool, place = live.beam.pool, onnx.op("Unsqueeze", live.sentence, [1])
    more = onnx.op("Sub", onnx.op("Shape", pool.tokens, start=2), onnx.op("Shape", filed.tokens, start=2))
    padded = onnx.op("Pad", filed.tokens, onnx.op("Concat", [0, 0, 0, 0, 0], more, axis=0))
    return Pool(
        onnx.op("ScatterND", padded, place, pool.tokens),
        onnx.op("ScatterND", filed.lengths, place, pool.lengths),
        onnx.op("ScatterND", filed.scores, place, pool.scores),
    )
