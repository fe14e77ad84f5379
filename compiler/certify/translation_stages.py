"""The stages of a translation engine: logits, searches against the reference, and independence of the batch."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xformc.compiler.certify.attention_stages import attention_stages
from xformc.compiler.certify.difference import apart
from xformc.compiler.certify.forward import forward_stage, scores_stages, step_stage
from xformc.compiler.certify.head_stages import head_stages
from xformc.compiler.certify.probes import make_probes, make_sources, source_positions
from xformc.compiler.certify.reference_automaton import Language
from xformc.compiler.certify.reference_edits import EDITED
from xformc.compiler.certify.reference_search import Found, length_limit, opening_of, rescore, rounds, together
from xformc.compiler.certify.reference_shortlist import search_scorer, searched
from xformc.compiler.certify.sampling_stages import samples_stage
from xformc.compiler.certify.subject import Subject
from xformc.compiler.program import Program
from xformc.format.certificate import Stage
from xformc.format.inputs import Input
from xformc.format.interfaces import PHRASES, PREFIX, START, TIMED
from xformc.format.manifest import SearchOptions
from xformc.format.names import ADVANCE, SAMPLES
from xformc.format.tokens import SpecialTokens
from xformc.runtime.constraints.automaton import FREE, Automaton, Matching, matching_of, timed_matching
from xformc.runtime.each import own_values
from xformc.runtime.options import arrays
from xformc.runtime.rows import Row, pad, random_ids, stack
from xformc.runtime.searching.phrases import NO_TOKEN
from xformc.runtime.searching.search import LIMITS, SearchResult
from xformc.runtime.searching.translate import search_rows
from xformc.runtime.serving.searched_batch import RefillingSearch, search_of
from xformc.runtime.session import Session

SCORE_BOUND = 1e-4
"""The bound of scores, and the margin below which rounding may decide a search."""

BATCH_BOUND = 1e-4
BIAS = "prefix_bias"
LENGTHS = (1, 3, 6, 10)
"""The numbers of tokens of the sentences to translate."""

LONG: Mapping[str, Any] = {"min_length": 3, "length_penalty_kind": "average", "stop_rule": "best"}
BEGUN: Mapping[str, Any] = {"length_penalty_kind": "average", "stop_rule": "shrink"}
"""The options of the two searches of the stage `controls`: of long texts, and of given beginnings."""

COVERING = 0.2
"""The coverage penalty of the searches of long texts, if the engine has coverage."""

DIVERSE = 0.5
"""The diversity penalty of the searches of given beginnings, if the beam can be divided."""


def translation_stages(subject: Subject, progress: Callable[[str], None]) -> Iterator[Stage]:
    """The stages, cheapest first; the search stages are meaningful only if the first two pass."""
    probes = make_probes(subject.program)
    progress("certify: forward")
    yield forward_stage(subject, probes, "logits of ONNX and PyTorch, given the target")
    progress("certify: step")
    yield step_stage(subject, probes)
    yield from scores_stages(subject, probes, progress)
    yield from attention_stages(subject, probes, progress)
    sources = make_sources(subject.program, LENGTHS)
    progress("certify: greedy")
    yield _search(subject, "greedy", [_expect(subject, sources, 1)])
    progress("certify: beam")
    width = subject.program.search.beam_size
    expected = _expect(subject, sources, width)
    ending = _ending(subject, expected)
    yield _search(subject, "beam", [expected, ending])
    progress("certify: batch")
    yield _batch(subject, expected)
    if subject.program.refills_searches and subject.session.beside(ADVANCE):
        progress("certify: refill")
        yield _refill(subject, expected)
    if subject.program.controls:
        progress("certify: controls")
        yield _controls(subject, expected, ending)
        progress("certify: edits")
        yield _edits(subject, expected)
        progress("certify: defaults")
        yield _defaults(subject, sources)
    if subject.program.samples_texts and subject.session.beside(SAMPLES):
        progress("certify: samples")
        yield samples_stage(subject)
    yield from head_stages(
        subject, sources, lambda: subject.search_rows(sources, short(subject.program.search, width)), progress
    )
    if subject.whole is not None:
        progress("certify: whole")
        yield _whole(subject, subject.whole, expected)


@dataclass(frozen=True)
class _Expected:
    """The results of the reference search for each source with these options and end tokens."""

    sources: tuple[Row, ...]
    options: SearchOptions
    special: SpecialTokens
    found: tuple[Found, ...]
    whole: tuple[bool, ...]  # whether the text of a source is given whole
    matching: Matching | None = None

    @property
    def ends(self) -> int:
        """The number of hypotheses that end by themselves."""
        return sum(item.tokens[-1] in self.special.end for found in self.found for item in found.hypotheses)


def _expect(
    subject: Subject,
    sources: tuple[Row, ...],
    width: int,
    end: Sequence[int] = (),
    changes: Mapping[str, Any] = MappingProxyType({}),
    matching: Matching | None = None,
) -> _Expected:
    """Search with the engine's options but for these changes, and with its end tokens or these.

    Sources with a START match texts of `matching`, and some have a bias of their own.
    """
    program, special = subject.program, subject.special
    special = replace(special, end=tuple(end)) if end else special
    options = replace(short(program.search, width), **changes)
    searches = [
        rounds(
            source_positions(program, source),
            replace(options, prefix_bias=_bias(source, options)),
            program.longest,
            special,
            [int(token) for token in source.get(PREFIX, ())],
            phrases=[[int(token) for token in phrase if token >= 0] for phrase in source.get(PHRASES, ())],
            opening=opening_of(program),
            language=None if matching is None or START not in source else _language(matching, source),
            times=program.times if source.get(START) == TIMED else None,
            coverage=subject.coverage(source),
        )
        for source in sources
    ]

    whole = tuple(_is_whole(program, source, options, special) for source in sources)

    def score_each(written: dict[int, NDArray[np.int64]]) -> list[NDArray[np.float32]]:
        owners = [place for place, texts in written.items() for _ in texts]
        own, given = [sources[place] for place in owners], [whole[place] for place in owners]
        scored = searched(subject, own, np.concatenate([*written.values()]), given)
        return np.split(scored, np.cumsum([len(texts) for texts in written.values()])[:-1])

    return _Expected(sources, options, special, tuple(together(searches, score_each)), whole, matching)


def _is_whole(program: Program, source: Row, options: SearchOptions, special: SpecialTokens) -> bool:
    """Whether a text is given whole: its prefix, which is forced, has an end token or reaches the limit."""
    prefix = [int(token) for token in source.get(PREFIX, ())]
    limit = length_limit(source_positions(program, source), options, len(prefix))
    limit = limit if program.longest is None else min(limit, program.longest)
    return not _bias(source, options) and bool({*prefix} & {*special.end} or len(prefix) >= limit)


def _bias(source: Row, options: SearchOptions) -> float | None:
    return float(source[BIAS]) if BIAS in source else options.prefix_bias


def _language(matching: Matching, source: Row) -> Language | None:
    start = int(source[START])
    return Language(matching.next, matching.needs, start) if start >= 0 else None


def _ending(subject: Subject, expected: _Expected) -> _Expected:
    """The same searches with another end token, so that hypotheses end by themselves.

    It is a frequent token of the hypotheses, or else the best first token of a source, which ends one at once.
    """
    counts = Counter(
        token
        for found in expected.found
        for hypothesis in found.hypotheses
        for token in hypothesis.tokens[:-1]
        if token not in subject.special.end
    )
    begun = np.array([subject.special.begun], np.int64)
    first = int(search_scorer(subject, expected.sources[0])(begun)[0, -1].argmax())
    for end in (*(token for token, _ in counts.most_common(2)), first):
        other = _expect(subject, expected.sources, expected.options.beam_size, (end,))
        if other.ends:
            return other
    return expected


def _search(subject: Subject, name: str, searches: list[_Expected]) -> Stage:
    """Compare searches with the reference. If there are several, some hypotheses of the last must end by themselves.

    Searches with the same tokens as the reference must have a choice that is beyond rounding: others show nothing.
    """
    worst, decided, equal, clear = 0.0, 0, 0, 0
    for expected in searches:
        result = subject.search_rows(expected.sources, expected.options, expected.special.end, expected.matching)
        for row, found in enumerate(expected.found):
            worst = max(worst, _against(subject, expected, result, row, found))
            if all(result.text(row, rank) == item.tokens for rank, item in enumerate(found.hypotheses)):
                equal, clear = equal + 1, clear + found.clear(SCORE_BOUND)
        decided += sum(found.margin >= SCORE_BOUND for found in expected.found)
    undecided = clear == 0 or (len(searches) > 1 and searches[-1].ends == 0)
    count = sum(len(expected.found) for expected in searches)
    what = f"tokens and scores of the reference search, width {searches[0].options.beam_size}"
    closer = "" if decided == count else f" and {equal} equal with {clear} such choices"
    detail = f"({count} searches, {decided} beyond rounding{closer}, {searches[-1].ends} ends)"
    if undecided and worst <= SCORE_BOUND:
        detail = f"no choice of a search is beyond rounding {detail}"
        return Stage(name, what, float("inf"), SCORE_BOUND, detail, fault="weights")
    return Stage(name, what, worst, SCORE_BOUND, detail)


def _batch(subject: Subject, expected: _Expected) -> Stage:
    sources = expected.sources
    together = subject.search_rows(sources, expected.options)
    differences: list[float] = []
    for row, (source, found) in enumerate(zip(sources, expected.found, strict=True)):
        alone = subject.search_rows([source], expected.options)
        differences.append(_between(together, row, alone, 0, found))
    count = len(sources)
    backwards = subject.search_rows(sources[:0:-1], expected.options)
    for row in range(count - 1):
        other = count - 1 - row
        differences.append(_between(together, other, backwards, row, expected.found[other]))
    return Stage("batch", "the same sentences alone and among other neighbours", max(differences), BATCH_BOUND)


def _refill(subject: Subject, expected: _Expected) -> Stage:
    """The same sentences, and each once more, in a batch of fewer slots, with three tokens in each call."""
    program, sources, slots = subject.program, expected.sources, max(1, len(expected.sources) - 2)
    pieces = program.inputs[str(program.written)].pieces
    batch = RefillingSearch(subject.session, expected.options, slots=slots, vocabulary=pieces, at_once=3)
    texts = [search_of(row, expected.options, program.longest) for row in (*sources, *sources)]
    batch.reserve(max(text.needs for text in texts))
    waiting = list(texts)
    while waiting or batch.texts:
        count = batch.fitting(waiting)
        batch.advance(waiting[:count])
        del waiting[:count]
    together, worst = subject.search_rows(sources, expected.options), 0.0
    for index, text in enumerate(texts):
        row = index % len(sources)
        assert text.found is not None, "a text has not ended"
        worst = max(worst, _between(together, row, text.found, 0, expected.found[row]))
    return Stage("refill", "the same sentences in a batch that they join and leave", worst, BATCH_BOUND)


def _controls(subject: Subject, free: _Expected, ending: _Expected) -> Stage:
    """Compare with the reference: searches of long texts, searches that begin with given tokens, scores of whole texts.

    `ending` are searches with another end token, so that texts would be shorter. The first prefix is empty, the next
    ones are random tokens, the last one is a whole text, as it was found but with the end token and without padding,
    which would leave a choice. The texts of the first two match an automaton, and the prefix of the third is not forced
    but likelier.
    """
    program, random = subject.program, np.random.default_rng(2)
    written, longest = program.inputs[str(program.written)], program.longest or max(LENGTHS)
    prefixes = [random_ids(random, written, min(length, longest - 1)) for length in range(len(free.sources) - 1)]
    found = free.found[-1].hypotheses[0].tokens[:-1]
    whole = (*(token for token in found if token != written.special.absent), written.special.last)
    matching = _some_automaton(written, longest)
    steered: list[Row] = [
        *({START: np.array(matching.starts[0], np.int64)} for _ in range(2)),
        {} if program.prefix or program.prompted else {BIAS: np.array(0.5, np.float32)},
    ]
    steered += [{} for _ in range(len(free.sources) - len(steered))]
    rows = tuple(
        {**source, PREFIX: np.array(prefix, np.int64), **more}
        for source, prefix, more in zip(free.sources, [*prefixes, whole], steered, strict=True)
    )
    width = free.options.beam_size
    covering = {} if program.covering is None else {"coverage_penalty": COVERING}
    long = _expect(subject, ending.sources, width, ending.special.end, {**LONG, **covering})
    phrases = _expect(subject, _with_phrases(subject, free.sources), width)
    searches = [] if width == 1 else [_expect(subject, rows, width, changes=BEGUN, matching=matching)]
    groups = next((count for count in range(2, width + 1) if width % count == 0), 1)
    diverse = {**BEGUN, "beam_groups": groups, "diversity_penalty": DIVERSE}
    begun = _expect(subject, rows, width, changes=diverse, matching=matching)
    times = _timed(subject, free, [*prefixes, []])
    stage = _search(subject, "controls", [long, phrases, *times, *searches, begun])
    what = f"long texts, given beginnings, phrases, constraints{', timestamps' * len(times)} and groups"
    return replace(stage, what=f"tokens and scores of the reference search, for {what}")


def _defaults(subject: Subject, sources: Sequence[Row]) -> Stage:
    """A call of the model with no options but lengths of texts, and one with the engine's defaults."""
    options, program = short(subject.program.search, subject.program.search.beam_size), subject.program
    lasting = {} if options.min_length is None else {"min_length": 3}  # a penalty changes no score of one token
    options = replace(options, n_best=program.search.n_best, **lasting)
    given = subject.search_rows(sources, options, subject.special.end)
    limits = {name: value[None] for name, value in arrays(options).items() if name in (*LIMITS, *lasting)}
    _, lengths, scores, *_ = map(np.asarray, subject.session.run({**stack(program.given, sources), **limits}))
    same = np.array_equal(lengths, given.lengths) and np.array_equal(np.isfinite(scores), np.isfinite(given.scores))
    there = np.isfinite(given.scores)
    worst = float(np.abs(scores - given.scores)[there].max(initial=0.0)) if same else float("inf")
    return Stage("defaults", "a search with no options but lengths, and with the engine's defaults", worst, BATCH_BOUND)


def _timed(subject: Subject, free: _Expected, prefixes: Sequence[NDArray[np.int64] | list[int]]) -> list[_Expected]:
    """Searches for texts with timestamps, which begin with these tokens, if the model knows times."""
    if subject.program.times is None:
        return []
    rows = tuple(
        {**source, PREFIX: np.array(prefix, np.int64), START: np.array(TIMED)}
        for source, prefix in zip(free.sources, prefixes, strict=True)
    )
    written = subject.program.inputs[str(subject.program.written)]
    return [_expect(subject, rows, free.options.beam_size, matching=timed_matching(written))]


def _some_automaton(written: Input, longest: int) -> Matching:
    """An automaton of three states in a ring, in each of which a random half of the tokens may follow."""
    random, ring = np.random.default_rng(5), np.array([[1], [2], [0]], np.int64)
    table = np.where(random.random((3, written.pieces)) < 0.5, ring, FREE)
    table[:, -1] = ring[:, 0]  # so that a text ends after two tokens
    final = np.array([longest < 3, False, longest >= 3])
    return matching_of([Automaton(table, final)], written)


def _with_phrases(subject: Subject, sources: Sequence[Row]) -> tuple[Row, ...]:
    """The sources with phrases of random tokens: none, one, two that begin alike, and so on."""
    program, random = subject.program, np.random.default_rng(3)
    written, room = program.inputs[str(program.written)], (program.longest or max(LENGTHS)) - 1
    first, second, third, fourth = (int(one) for one in random_ids(random, written, 4))
    lists: tuple[list[list[int]], ...] = (
        [],
        [[first]],
        [[first, second], [first, third]],
        [[fourth, second, first], [third]],
    )
    fitting = [phrases if sum(map(len, phrases)) <= room else [] for phrases in lists]
    arrays = [pad(phrases, NO_TOKEN) if phrases else np.zeros((0, 0), np.int64) for phrases in fitting]
    return tuple({**source, PHRASES: array} for source, array in zip(sources, arrays, strict=True))


def _edits(subject: Subject, free: _Expected) -> Stage:
    """Compare searches whose scores are edited with the reference; the most frequent token is suppressed.

    Then every second sentence of a batch has these edits, and the others have none.
    """
    counts = Counter(token for found in free.found for item in found.hypotheses for token in item.tokens)
    suppressed = (counts.most_common(1)[0][0],)
    expected = _expect(subject, free.sources, free.options.beam_size, (), {**EDITED, "suppress_tokens": suppressed})
    what = "tokens and scores of the reference search, with banned and penalised tokens"
    own = [row % 2 == 1 and found.margin >= SCORE_BOUND for row, found in enumerate(expected.found)]
    sources = [
        {**source, **own_values(expected.options)} if here else source
        for source, here in zip(free.sources, own, strict=True)
    ]
    found = [one if here else other for one, other, here in zip(expected.found, free.found, own, strict=True)]
    mixed = replace(free, sources=tuple(sources), found=tuple(found))
    stages = [_search(subject, "edits", [searches]) for searches in (expected, mixed)]
    return replace(max(stages, key=lambda stage: stage.value), what=what)


def _whole(subject: Subject, whole: Session, expected: _Expected) -> Stage:
    driven = subject.search_rows(expected.sources, expected.options)
    found = search_rows(whole, expected.sources, subject.program, expected.options)
    differences = [_between(driven, row, found, row, item) for row, item in enumerate(expected.found)]
    return Stage("whole", "the search as one model, and step by step", max(differences), BATCH_BOUND)


def _against(subject: Subject, expected: _Expected, result: SearchResult, row: int, found: Found) -> float:
    """The largest difference of scores; infinite if the tokens differ.

    If rounding may decide, other tokens are accepted, and their score is compared with the training form's.
    """
    if not found.hypotheses:  # all hypotheses came to an end where none may end
        return float("inf") if np.isfinite(result.scores[row]).any() else 0.0
    differences: list[float] = []
    for rank, hypothesis in enumerate(found.hypotheses):
        tokens = result.text(row, rank)
        score = hypothesis.score
        if tokens != hypothesis.tokens:
            if found.margin >= SCORE_BOUND or not tokens:
                return float("inf")
            source = expected.sources[row]
            prefix = [int(one) for one in source.get(PREFIX, ())]
            opening = opening_of(subject.program)
            opening = replace(opening, default=()) if source.get(START) == TIMED else opening
            own = replace(expected.options, prefix_bias=_bias(source, expected.options))
            scorer = search_scorer(subject, source, whole=expected.whole[row])
            given = (scorer, subject.special, tokens, own, prefix)
            score = rescore(*given, opening=opening, coverage=subject.coverage(source))
            if (expected.options.beam_groups or 1) > 1:  # a text does not tell which tokens earlier groups had taken
                score = min(score, float(result.scores[row, rank]))
        differences.append(apart(result.scores[row, rank], score, found.size))
    return max(differences)


def _between(first: SearchResult, row: int, second: SearchResult, other: int, reference: Found) -> float:
    length = int(first.lengths[row].max())
    same = np.array_equal(first.lengths[row], second.lengths[other])
    if not same or not np.array_equal(first.tokens[row, :, :length], second.tokens[other, :, :length]):
        return 0.0 if reference.margin < SCORE_BOUND else float("inf")
    return apart(first.scores[row], second.scores[other], reference.size)


def short(options: SearchOptions, width: int) -> SearchOptions:
    """The engine's options with all hypotheses returned and an output short enough for the reference search."""
    return replace(options, beam_size=width, n_best=width, max_length_factor=0.5, max_length_offset=4)
