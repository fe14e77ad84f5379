"""The choices of a step of beam search, as functions; docs/search.md defines them."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.rules import OnnxEmitter, Operand
from xformc.compiler.passes.step import Decoder
from xformc.compiler.search.automaton import Automaton, only_allowed
from xformc.compiler.search.carried import NEVER, BeamIntegers, BeamScores, BeamTokens
from xformc.compiler.search.edits import EditInputs, Edits, edit_scores
from xformc.compiler.search.loops import Record
from xformc.compiler.search.phrases import Phrases, has_all, in_turn, next_tokens
from xformc.compiler.search.prefix_bias import PrefixBias, emit_biased, still_forced
from xformc.compiler.search.timestamps import only_timed
from xformc.format.search_options import STOP_RULES
from xformc.format.speech import Times
from xformc.format.tokens import SpecialTokens


@dataclass(frozen=True)
class BeamOptions:
    """Options of all steps; `width` and `candidates` (of each sentence at each step) are vectors with one element.

    `special` are the special tokens of the written text. `rules` are None for the GNMT length penalty and the stop rule
    `first`, `edits`, `phrases`, `bias` and `automaton` for a search without them, `times` for a model that knows none.
    With rules, the length penalty is [batch], otherwise a scalar.
    """

    width: str
    candidates: str
    end_token: str
    length_penalty: str
    special: SpecialTokens
    rules: "Rules | None" = None
    edits: Edits | None = None
    phrases: Phrases | None = None
    bias: PrefixBias | None = None
    automaton: Automaton | None = None
    times: Times | None = None

    @property
    def needed_rules(self) -> "Rules":
        """The rules, which must be there."""
        assert self.rules is not None
        return self.rules

    @property
    def needed_edits(self) -> Edits:
        """The edits, which must be there."""
        assert self.edits is not None
        return self.edits

    @property
    def needed_phrases(self) -> Phrases:
        """The phrases, which must be there."""
        assert self.phrases is not None
        return self.phrases


@dataclass(frozen=True)
class Rules:
    """The numbers of the kind of length penalty and of the stop rule, and the patience, [batch] each."""

    penalty_offset: str
    stop_rule: str
    patience: str


@dataclass(frozen=True)
class Texts:
    """The hypotheses of a step: their `tokens` [batch, beam, length], those that the texts of each sentence begin with
    [batch, any], padded, the one of these at this step, or absent, and the most tokens of a text, both [batch]."""

    tokens: str
    prefix: str
    forced: str
    limit: str


@dataclass(frozen=True)
class Candidates:
    """Continuations of the hypotheses of each sentence, best first, [batch, candidates].

    `whole`: which have all phrases of their sentence; None for a search without phrases.
    """

    scores: str
    tokens: str
    parents: str
    ended: str
    whole: str | None = None


@dataclass(frozen=True)
class Chosen:
    """The continuations that become the next hypotheses, [batch, beam]; `rows` are the rows of their parents."""

    scores: str
    tokens: str
    rows: str


@dataclass(frozen=True)
class Pool(Record):
    """Finished hypotheses, best first; empty entries have the score NEVER."""

    tokens: BeamTokens
    lengths: BeamIntegers
    scores: BeamScores


@dataclass(frozen=True)
class Standing:
    """The state of the sentences of a batch before the choices of a step.

    `length` is the number of tokens including the step's. `limit`, `done`, `found` (the number of finished hypotheses)
    and `least` (the least number of tokens; None for any) are [batch]. The tokens of `pool` already have the length of
    the hypotheses after the step. `coverage` [batch, beam] is added to the scores of the texts that end after the
    hypotheses; None for nothing. `given`: so many tokens of each sentence [batch] come from its prompt, and the length
    penalty does not count them; None for none.
    """

    length: str
    limit: str
    done: str
    found: str
    pool: Pool
    least: str | None = None
    coverage: str | None = None
    given: str | None = None


@dataclass(frozen=True)
class Settled:
    """The result of the choices of a step: `tokens` of the chosen hypotheses, and the new fields of `Standing`."""

    done: str
    found: str
    pool: Pool
    chosen: Chosen
    tokens: str


def end_type(special: SpecialTokens) -> Type:
    """The type of the input `end_token`."""
    return Type("int64", () if len(special.end) == 1 else (Axis("end_tokens", len(special.end)),))


def is_end(onnx: OnnxEmitter, tokens: str, end_token: str, special: SpecialTokens) -> str:
    """Which of the tokens end a text. The input `end_token` is one token, or several, [ends]."""
    if len(special.end) == 1:
        return onnx.op("Equal", tokens, end_token)
    each = onnx.op("Equal", onnx.op("Unsqueeze", tokens, [-1]), end_token)
    return onnx.op("Cast", onnx.op("ReduceMax", onnx.op("Cast", each, to=6), [-1], keepdims=0), to=9)


def emit_count(onnx: OnnxEmitter, decoder: Decoder) -> str:
    """The number of positions in the first input of tokens or a mask, float32 [batch]; 0 without one."""
    for value in decoder.given:
        if value.type.names[:1] == ("batch",) and len(value.type.axes) == 2 and value.type.axes[1].size is None:
            real = value.name
            if value.type.dtype == "int64":
                pad = decoder.vocabularies.of(value.name).absent
                real = onnx.op("Not", onnx.op("Equal", value.name, pad))
            return onnx.op("Cast", onnx.op("ReduceSum", onnx.op("Cast", real, to=7), [1], keepdims=0), to=1)
    return onnx.op("Expand", 0.0, onnx.op("Shape", decoder.given[0].name, start=0, end=1))


def emit_limit(onnx: OnnxEmitter, count: str, factor: str, offset: str, longest: Operand | None) -> str:
    """The maximum number of tokens of each sentence, [batch], for sources of `count` positions.

    It is at most `longest`, unless that is None.
    """
    scaled = onnx.op("Floor", onnx.op("Mul", count, factor))
    limit = onnx.op("Max", onnx.op("Add", onnx.op("Cast", scaled, to=7), offset), 1)
    return limit if longest is None else onnx.op("Min", limit, longest)


def emit_lengths(onnx: OnnxEmitter, tokens: str, special: SpecialTokens) -> str:
    """The number of tokens of each row [batch, length] without padding, [batch]."""
    real = onnx.op("Not", onnx.op("Equal", tokens, special.absent))
    return onnx.op("ReduceSum", onnx.op("Cast", real, to=7), [1], keepdims=0)


def forced_token(onnx: OnnxEmitter, prefix: str, position: str) -> str:
    """The token of each prefix [batch, prefix] at a position, [batch]; absent if none, as in its last column."""
    last = onnx.op("Sub", onnx.op("Shape", prefix, start=1), [1])
    place = onnx.op("Min", onnx.op("Unsqueeze", position, [0]), last)
    return onnx.op("Squeeze", onnx.op("Gather", prefix, place, axis=1), [1])


def forced_tokens(onnx: OnnxEmitter, prefix: str, positions: str) -> str:
    """As `forced_token`, with a position for each row [batch]."""
    last = onnx.op("Sub", onnx.op("Shape", prefix, start=1), [1])
    places = onnx.op("Unsqueeze", onnx.op("Min", positions, last), [1])
    return onnx.op("Squeeze", onnx.op("GatherElements", prefix, places, axis=1), [1])


def unscored(
    onnx: OnnxEmitter, offered: tuple[str, ...], forced: str, place: tuple[str, int], absent: int
) -> tuple[str, ...]:
    """The candidates, whose scores [batch, candidates] come first: 0 where a sentence has a forced token [batch] within
    the default prefix, since there the text was no choice.

    `place` is the position, of all or of each [batch], and the number of tokens of the default prefix.
    """
    position, count = place
    scores, *rest = offered
    is_forced = onnx.op("Not", onnx.op("Equal", forced, absent))
    given = onnx.op("Unsqueeze", onnx.op("And", is_forced, onnx.op("Less", position, count)), [1])
    return _zeroed(onnx, scores, given), *rest


def _zeroed(onnx: OnnxEmitter, scores: str, given: str) -> str:
    """The scores of candidates, 0 where they are `given` and there is one."""
    return onnx.op("Where", onnx.op("And", given, onnx.op("Greater", scores, NEVER)), 0.0, scores)


def read_on(onnx: OnnxEmitter, found: Candidates, given: str) -> Candidates:
    """The candidates of a step; where its token is one of the prompt (`given`, bool [batch]), it ends no text and has
    the log probability 0."""
    here = onnx.op("Unsqueeze", given, [1])
    ended = onnx.op("And", found.ended, onnx.op("Not", here))
    return replace(found, scores=_zeroed(onnx, found.scores, here), ended=ended)


def select(
    onnx: OnnxEmitter,
    logits: str,
    before: str,
    options: BeamOptions,
    texts: Texts | None = None,
    *,
    taken: str | None = None,
) -> Candidates:
    """The best continuations, given the logits of the step and the scores of the hypotheses [batch, beam].

    `texts` are None for a search without prefixes, edits and phrases. `taken` [batch, 1, 1, vocabulary] is subtracted
    from the edited scores.
    """
    pair, best, ids = _best(onnx, logits, options.candidates)
    if taken is not None:
        assert texts is not None
        best, ids = _less(onnx, pair, texts, options, taken)
    elif texts is not None:
        best, ids = _edit(onnx, pair, texts, options, best, ids)
    if texts is not None:
        best, ids = _force(onnx, pair, texts, options, best, ids)
    total = onnx.op("Add", best, onnx.op("Unsqueeze", before, [2, 3]))
    flat = onnx.op("Concat", onnx.op("Shape", before, end=1), [-1], axis=0)

    def usual(scope: OnnxEmitter) -> tuple[str, ...]:
        scores, chosen = scope.ops("TopK", 2, scope.op("Reshape", total, flat), options.candidates, axis=-1)
        tokens = scope.op("GatherElements", scope.op("Reshape", ids, flat), chosen, axis=-1)
        return scores, tokens, scope.op("Div", chosen, options.candidates)

    if options.phrases is None or texts is None:
        scores, tokens, parents = usual(onnx)
        whole = None
    else:
        given = (pair, before, options, texts)

        def with_phrases(scope: OnnxEmitter) -> tuple[str, ...]:
            return _in_turn(scope, *given)

        scores, tokens, parents = onnx.choose(options.phrases.used, with_phrases, usual, ("float32", "int64", "int64"))
        whole = _whole(onnx, texts.tokens, tokens, parents, options.phrases)
    return Candidates(scores, tokens, parents, is_end(onnx, tokens, options.end_token, options.special), whole)


def _whole(onnx: OnnxEmitter, texts: str, tokens: str, parents: str, phrases: Phrases) -> str:
    """Which candidates have all phrases, [batch, candidates]; `texts` are those of the hypotheses."""

    def search(scope: OnnxEmitter) -> tuple[str, ...]:
        rows = rows_of(scope, parents, scope.op("Shape", texts, start=1, end=2))
        written = scope.op("Concat", reorder(scope, texts, rows), scope.op("Unsqueeze", tokens, [-1]), axis=-1)
        return (has_all(scope, written, phrases.tokens),)

    def anything(scope: OnnxEmitter) -> tuple[str, ...]:
        return (scope.op("Expand", scope.op("Identity", True), scope.op("Shape", tokens)),)

    (found,) = onnx.choose(phrases.used, search, anything, ("bool",))
    return found


def _best(onnx: OnnxEmitter, logits: str, count: str) -> tuple[tuple[str, str], str, str]:
    """The logits and their normalizers, and the best log probabilities with their tokens."""
    best, ids = onnx.ops("TopK", 2, logits, count, axis=-1)
    first = onnx.op("GatherElements", onnx.op("LogSoftmax", logits, axis=-1), _leading(onnx, ids), axis=-1)
    normalizer = onnx.op("Sub", _leading(onnx, best), first)  # 10 times as fast as ReduceLogSumExp
    return (logits, normalizer), onnx.op("Sub", best, normalizer), ids


def _in_turn(
    onnx: OnnxEmitter, pair: tuple[str, str], before: str, options: BeamOptions, texts: Texts
) -> tuple[str, ...]:
    """The scores, tokens and parents of the candidates with phrases, in the order of their places.

    `pair` are the logits and their normalizers. The tokens that continue phrases are not edited.
    """
    assert options.phrases is not None
    scores = _biased(onnx, onnx.op("Sub", *pair), texts, options)
    changed = _edited(onnx, scores, texts, options)
    wanted = onnx.op("Unsqueeze", next_tokens(onnx, texts.tokens, options.phrases.tokens), [2])
    none = onnx.op("Less", wanted, 0)
    own = onnx.op("Where", none, NEVER, onnx.op("GatherElements", scores, onnx.op("Max", wanted, 0), axis=-1))
    zeros = onnx.op("Expand", 0, onnx.op("Shape", scores))
    marks = onnx.op("Cast", onnx.op("Not", none), to=7)
    marks = onnx.op("ScatterElements", zeros, onnx.op("Max", wanted, 0), marks, axis=3, reduction="add")
    changed = onnx.op("Where", onnx.op("Greater", marks, 0), NEVER, changed)
    best, ids = onnx.ops("TopK", 2, changed, options.candidates, axis=-1)
    best, ids = (onnx.op("Concat", *both, axis=3) for both in ((best, own), (ids, onnx.op("Max", wanted, 0))))
    best, ids = _force(onnx, pair, texts, options, best, ids)
    total = onnx.op("Add", best, onnx.op("Unsqueeze", before, [2, 3]))
    lists = onnx.op("Squeeze", total, [2]), onnx.op("Squeeze", ids, [2])
    found = in_turn(onnx, lists, texts.tokens, options.phrases.tokens, options.candidates)
    return found.scores, found.tokens, found.parents


def _biased(onnx: OnnxEmitter, scores: str, texts: Texts, options: BeamOptions) -> str:
    """The log probabilities [batch, beam, 1, vocabulary], in which the tokens of prefixes may be likelier."""
    assert options.bias is not None
    given = (texts.prefix, texts.forced, options.special.absent)
    return emit_biased(onnx, scores, texts.tokens, options.bias, given)


def _edited(onnx: OnnxEmitter, scores: str, texts: Texts, options: BeamOptions) -> str:
    """The log probabilities [batch, beam, 1, vocabulary] after the edits."""
    edits, automaton, bias = options.needed_edits, options.automaton, options.bias
    assert automaton is not None and bias is not None
    rows = onnx.op("Reshape", scores, onnx.op("Concat", [-1], onnx.op("Shape", scores, start=3), axis=0))
    written = onnx.op("Reshape", texts.tokens, onnx.op("Concat", [-1], onnx.op("Shape", texts.tokens, start=2), axis=0))
    inputs = _for_hypotheses(onnx, edits.inputs, onnx.op("Shape", texts.tokens, start=1, end=2))
    changed = onnx.op("Reshape", edit_scores(onnx, rows, written, inputs), onnx.op("Shape", scores))
    changed = onnx.op("Where", onnx.op("Unsqueeze", edits.rows, [1, 2, 3]), changed, scores)
    forced = onnx.op("LessOrEqual", bias.share, 0.0)
    skipped = onnx.op("Where", forced, emit_lengths(onnx, texts.prefix, options.special), 0)
    skipped = onnx.op("Add", skipped, 1)
    allowed = only_allowed(onnx, changed, texts.tokens, automaton, skipped, texts.limit)
    if options.times is None:
        return allowed
    return only_timed(onnx, allowed, texts.tokens, options.times, skipped, automaton.start)


def _edit(
    onnx: OnnxEmitter, pair: tuple[str, str], texts: Texts, options: BeamOptions, best: str, ids: str
) -> tuple[str, str]:
    """The best log probabilities and their tokens after the edits, if there are any.

    `pair` are the logits and their normalizers.
    """
    edits = options.needed_edits

    def edited(scope: OnnxEmitter) -> tuple[str, ...]:
        changed = _edited(scope, _biased(scope, scope.op("Sub", *pair), texts, options), texts, options)
        found = scope.ops("TopK", 2, changed, options.candidates, axis=-1)
        here = scope.op("Unsqueeze", edits.rows, [1, 2, 3])
        return tuple(scope.op("Where", here, new, old) for new, old in zip(found, (best, ids), strict=True))

    best, ids = onnx.choose(edits.used, edited, lambda _: (best, ids), ("float32", "int64"))
    return best, ids


def _less(onnx: OnnxEmitter, pair: tuple[str, str], texts: Texts, options: BeamOptions, taken: str) -> tuple[str, str]:
    """The best log probabilities and their tokens after the edits, less what is taken; see `select`."""
    scores = _edited(onnx, _biased(onnx, onnx.op("Sub", *pair), texts, options), texts, options)
    best, ids = onnx.ops("TopK", 2, onnx.op("Sub", scores, taken), options.candidates, axis=-1)
    return best, ids


def _for_hypotheses(onnx: OnnxEmitter, inputs: EditInputs, beam: str) -> EditInputs:
    """The options of each sentence as those of each of its hypotheses."""
    sentences = onnx.op("Range", 0, onnx.op("Size", inputs.no_repeat_ngram_size), 1)
    rows = onnx.op("Expand", onnx.op("Unsqueeze", sentences, [1]), onnx.op("Concat", [1], beam, axis=0))
    rows = onnx.op("Reshape", rows, [-1])
    return EditInputs(*(onnx.op("Gather", name, rows, axis=0) for name in inputs.names))


def _force(
    onnx: OnnxEmitter, pair: tuple[str, str], texts: Texts, options: BeamOptions, best: str, ids: str
) -> tuple[str, str]:
    """The best log probabilities and their tokens; of a sentence with a forced token, that one for each hypothesis.

    `pair` are the logits and their normalizers.
    """
    assert options.bias is not None
    logits, normalizer = pair
    only = still_forced(onnx, texts.forced, options.bias, options.special.absent)
    only = onnx.op("Unsqueeze", only, [1, 2, 3])
    is_forced = onnx.op("Not", onnx.op("Equal", only, options.special.absent))
    places = onnx.op("Expand", only, onnx.op("Concat", onnx.op("Shape", logits, end=3), [1], axis=0))
    score = onnx.op("Sub", onnx.op("GatherElements", logits, places, axis=-1), normalizer)
    count = onnx.op("Squeeze", onnx.op("Shape", best, start=3))
    first = onnx.op("Equal", onnx.op("Range", 0, count, 1), 0)
    alone = onnx.op("Where", first, score, NEVER)
    return onnx.op("Where", is_forced, alone, best), onnx.op("Where", is_forced, only, ids)


def settle(
    onnx: OnnxEmitter, options: BeamOptions, now: Standing, candidates: Candidates, continued: Callable[[str, str], str]
) -> Settled:
    """Finish the candidates that end, and choose the next hypotheses.

    `continued(rows, tokens)` returns the tokens of the hypotheses in these rows, each followed by one of the tokens.
    """
    width, last = options.width, onnx.op("LessOrEqual", now.limit, now.length)
    top = leading(onnx, candidates, width)
    sequences = continued(rows_of(onnx, top.parents, width), top.tokens)
    ends, scores = ending(onnx, top, last, now, options)
    offered = Pool(sequences, onnx.op("Expand", now.length, onnx.op("Shape", scores)), scores)
    pool = keep_best(onnx, now.pool, offered, width)
    found = count_found(onnx, now.found, ends)
    if candidates.whole is not None:
        candidates = replace(candidates, scores=_in_places(onnx, candidates, width))
    chosen = choose_open(onnx, candidates, width)
    if options.rules is None:
        done = update_done(onnx, now.done, last, found, width)
    else:
        place = has_place(onnx, width, options.rules, found)
        chosen = replace(chosen, scores=onnx.op("Where", place, chosen.scores, NEVER))
        over = is_over(onnx, options, replace(now, found=found, pool=pool), chosen)
        done = onnx.op("Or", onnx.op("Or", now.done, last), over)
    return Settled(done, found, pool, chosen, continued(chosen.rows, chosen.tokens))


def _in_places(onnx: OnnxEmitter, candidates: Candidates, width: str) -> str:
    """The scores of the candidates; NEVER for those that do not end, but have `width` such ones before them."""
    open_ones = onnx.op("Cast", onnx.op("Not", candidates.ended), to=7)
    beyond = onnx.op("Greater", onnx.op("CumSum", open_ones, 1), width)
    return onnx.op("Where", beyond, NEVER, candidates.scores)


def leading(onnx: OnnxEmitter, candidates: Candidates, width: str) -> Candidates:
    """The first `width` of the candidates."""
    names = (candidates.scores, candidates.tokens, candidates.parents, candidates.ended, candidates.whole)
    return Candidates(*(onnx.op("Slice", name, [0], width, [1]) for name in names if name is not None))


def ending(onnx: OnnxEmitter, top: Candidates, last: str, now: Standing, options: BeamOptions) -> tuple[str, str]:
    """Return which candidates end here, and their scores with length penalty, or NEVER for candidates that do not.

    At the `last` length of a sentence all of them end; in a sentence that is done, none. Both are [batch].
    """
    ends = top.ended
    if now.least is not None:
        long_enough = onnx.op("GreaterOrEqual", now.length, now.least)
        ends = onnx.op("And", ends, onnx.op("Unsqueeze", long_enough, [1]))
    ends = onnx.op("Or", ends, onnx.op("Unsqueeze", last, [1]))
    ends = onnx.op("And", ends, onnx.op("Not", onnx.op("Unsqueeze", now.done, [1])))
    if options.rules is not None:
        ends = onnx.op("And", ends, has_place(onnx, options.width, options.rules, now.found))
    if options.edits is not None:
        ends = onnx.op("And", ends, onnx.op("Greater", top.scores, NEVER))
    if top.whole is not None:
        ends = onnx.op("And", ends, top.whole)
    by = divisor(onnx, options, counted(onnx, now.length, now.given))
    by = by if options.rules is None else onnx.op("Unsqueeze", by, [1])
    scores = onnx.op("Div", top.scores, by)
    if now.coverage is not None:
        scores = onnx.op("Add", scores, onnx.op("GatherElements", now.coverage, top.parents, axis=1))
    return ends, onnx.op("Where", ends, scores, NEVER)


def counted(onnx: OnnxEmitter, length: str, given: str | None) -> str:
    """The number of tokens that the length penalty counts, [batch] if some are `given`; at least 1."""
    return length if given is None else onnx.op("Max", onnx.op("Sub", length, given), 1)


def divisor(onnx: OnnxEmitter, options: BeamOptions, length: str) -> str:
    """The divisor of the log probability of a hypothesis with so many tokens; [batch] with rules."""
    count = onnx.op("Cast", length, to=1)
    if options.rules is None:
        penalised = onnx.op("Div", onnx.op("Add", count, 5.0), 6.0)
    else:
        offset = options.rules.penalty_offset
        penalised = onnx.op("Div", onnx.op("Add", count, offset), onnx.op("Add", offset, 1.0))
    return onnx.op("Pow", penalised, options.length_penalty)


def has_place(onnx: OnnxEmitter, width: str, rules: Rules, found: str) -> str:
    """Whether a beam has a place of each rank, [batch, beam]: finished hypotheses take places if the beam shrinks."""
    ranks = onnx.op("Range", 0, onnx.op("Squeeze", width), 1)
    left = onnx.op("Sub", width, onnx.op("Unsqueeze", found, [1]))
    stays = onnx.op("Unsqueeze", onnx.op("Not", _is(onnx, rules, "shrink")), [1])
    return onnx.op("Or", onnx.op("Less", ranks, left), stays)


def is_over(onnx: OnnxEmitter, options: BeamOptions, new: Standing, chosen: Chosen) -> str:
    """Whether the search of each sentence is over before its length limit, [batch].

    `new` has the finished hypotheses after the step.
    """
    rules, best, worst = options.needed_rules, _column(onnx, chosen.scores, 0), _column(onnx, new.pool.scores, -1)
    is_first, is_complete = _is(onnx, rules, "first"), _is(onnx, rules, "complete")
    by_bound = onnx.op("Or", _is(onnx, rules, "best"), is_complete)
    number = onnx.op("Add", onnx.op("Mul", onnx.op("Cast", options.width, to=1), rules.patience), 0.5)
    enough = onnx.op("Where", is_first, onnx.op("Cast", onnx.op("Floor", number), to=7), options.width)
    to_the_end = onnx.op("And", is_complete, onnx.op("Greater", options.length_penalty, 0.0))
    length = onnx.op("Where", to_the_end, new.limit, new.length)
    length = counted(onnx, length, new.given)
    beaten = onnx.op("LessOrEqual", onnx.op("Div", best, divisor(onnx, options, length)), worst)
    by_number = onnx.op("And", onnx.op("GreaterOrEqual", new.found, enough), onnx.op("Not", by_bound))
    over = onnx.op("Or", by_number, onnx.op("And", beaten, by_bound))
    return onnx.op("Or", over, onnx.op("Equal", best, NEVER))


def _is(onnx: OnnxEmitter, rules: Rules, word: str) -> str:
    return onnx.op("Equal", rules.stop_rule, int(STOP_RULES[word]))


def _column(onnx: OnnxEmitter, scores: str, index: int) -> str:
    """A column of scores [batch, beam], [batch]."""
    return onnx.op("Gather", scores, index, axis=1)


def keep_best(onnx: OnnxEmitter, pool: Pool, offered: Pool, width: str) -> Pool:
    """The `width` best of both pools, whose tokens have the same length; of equal scores, those of `pool` win."""
    scores, chosen = onnx.ops("TopK", 2, onnx.op("Concat", pool.scores, offered.scores, axis=-1), width, axis=-1)
    lengths = onnx.op("Concat", pool.lengths, offered.lengths, axis=-1)
    tokens = onnx.op("Concat", pool.tokens, offered.tokens, axis=1)
    index = onnx.op("Expand", onnx.op("Unsqueeze", chosen, [2]), onnx.op("Shape", pool.tokens))
    return Pool(
        onnx.op("GatherElements", tokens, index, axis=1), onnx.op("GatherElements", lengths, chosen, axis=-1), scores
    )


def choose_open(onnx: OnnxEmitter, candidates: Candidates, width: str) -> Chosen:
    """The `width` best candidates that do not end in the end token."""
    scores = onnx.op("Where", candidates.ended, NEVER, candidates.scores)
    scores, chosen = onnx.ops("TopK", 2, scores, width, axis=-1)
    rows = rows_of(onnx, onnx.op("GatherElements", candidates.parents, chosen, axis=-1), width)
    return Chosen(scores, onnx.op("GatherElements", candidates.tokens, chosen, axis=-1), rows)


def count_found(onnx: OnnxEmitter, found: str, ends: str) -> str:
    """The number of finished hypotheses of each sentence, including those that end now, [batch]."""
    return onnx.op("Add", found, onnx.op("ReduceSum", onnx.op("Cast", ends, to=7), [1], keepdims=0))


def update_done(onnx: OnnxEmitter, done: str, last: str, found: str, width: str) -> str:
    """The sentences that are done after a step, [batch]."""
    return onnx.op("Or", onnx.op("Or", done, last), onnx.op("GreaterOrEqual", found, width))


def rows_of(onnx: OnnxEmitter, parents: str, width: str) -> str:
    """Parents [batch, beam] as row indices of a value with batch and beam merged into one axis."""
    rows = onnx.op("Squeeze", onnx.op("Shape", parents, end=1))
    starts = onnx.op("Mul", onnx.op("Range", 0, rows, 1), width)
    return onnx.op("Add", parents, onnx.op("Unsqueeze", starts, [1]))


def reorder(onnx: OnnxEmitter, name: str, rows: str) -> str:
    """A value [batch, beam, ..] with its hypotheses taken from these rows [batch, beam]."""
    tail = onnx.op("Shape", name, start=2)
    flat = onnx.op("Reshape", name, onnx.op("Concat", [-1], tail, axis=0))
    return onnx.op("Gather", flat, rows, axis=0)


def _leading(onnx: OnnxEmitter, name: str) -> str:
    """The first element along the last of four axes, which is kept."""
    return onnx.op("Slice", name, [0], [1], [3])
