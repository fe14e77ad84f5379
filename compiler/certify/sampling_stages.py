"""The sampling stages of a certificate: the draws of the engine against the definition."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from xformc.compiler.certify.difference import apart
from xformc.compiler.certify.probes import make_sources
from xformc.compiler.certify.reference_edits import EDITED
from xformc.compiler.certify.reference_sampling import Followed, follow
from xformc.compiler.certify.subject import Subject
from xformc.format.certificate import Stage
from xformc.format.interfaces import BY_TEXT
from xformc.format.manifest import SampleOptions
from xformc.format.names import CHECK, CONTINUE, REFILL, SAMPLES
from xformc.format.names import PROMPT as PROMPT_MODEL
from xformc.format.search_options import EDITS
from xformc.runtime.each import own_values
from xformc.runtime.generation.generate import Prompt
from xformc.runtime.generation.token_calls import Called, TokenCalls
from xformc.runtime.rows import Row, random_ids
from xformc.runtime.searching.search import SearchResult
from xformc.runtime.searching.translate import PROMPT, SEED, sample_rows
from xformc.runtime.serving.sampled_batch import RefillingBatch, Text
from xformc.runtime.session import Session

SCORE_BOUND = 1e-4
GREEDY = SampleOptions(temperature=0.0, top_k=0, top_p=1.0, max_new_tokens=8)
FILTERS = (
    replace(GREEDY, temperature=1.0, top_k=16),
    replace(GREEDY, temperature=0.7, top_k=32, top_p=0.8),
    replace(GREEDY, temperature=1.5),
)
"""Sampling options. Few tokens to draw from give clear draws, even with random weights; the last has no filter."""

UNEDITED: Mapping[str, Any] = {option.name: option.absent for option in EDITS}
"""The options that edit scores, of which none does."""

LENGTHS = (0, 1, 3, 6, 10)
"""The numbers of tokens of the prompts."""

SOURCES = (4, 1, 7, 3, 10)
"""The numbers of tokens or vectors of the other inputs."""


@dataclass(frozen=True)
class _Run:
    """One call of the engine with all prompts, and each continuation checked against the definition."""

    options: SampleOptions
    end: tuple[int, ...]
    found: SearchResult
    judged: tuple[Followed, ...]

    def tokens(self, row: int) -> list[int]:
        """The tokens that the engine drew for this prompt."""
        return [int(token) for token in self.found.tokens[row, 0, : self.found.lengths[row, 0]]]

    @property
    def differences(self) -> list[float]:
        """The error of each score; infinite if the tokens are wrong."""
        return [
            float("inf") if judged.problem else apart(score, judged.score, judged.size)
            for judged, score in zip(self.judged, self.found.scores[:, 0], strict=True)
        ]


def sampling_stages(subject: Subject, progress: Callable[[str], None], seed: int = 0) -> Iterator[Stage]:
    """The stages greedy, sample, edits and batch; stream and refill; and whole, if the runtime drives the steps."""
    prompts = make_prompts(subject, seed)
    progress("certify: greedy")
    yield _stage("greedy", "tokens and scores of the definition, temperature 0", [_run(subject, prompts, GREEDY)])
    progress("certify: sample")
    runs = [_run(subject, prompts, options) for options in FILTERS]
    if BY_TEXT in subject.program.controls:
        runs.append(_mixed(subject, prompts))
    runs.append(_run(subject, prompts, FILTERS[0], (_likely(subject, runs[0], len(prompts)),)))
    yield _stage("sample", "tokens and scores of the definition, with filters", runs, ends=True)
    if not subject.program.traits.fixed:
        progress("certify: edits")
        options = replace(FILTERS[0], **EDITED, suppress_tokens=(_likely(subject, runs[0], len(prompts)),))
        what = "tokens and scores of the definition, with banned and penalised tokens"
        yield _stage("edits", what, [_run(subject, prompts, options)])
    progress("certify: batch")
    yield _batch(subject, prompts, runs[0])
    if subject.program.streams and all(subject.session.beside(name) for name in (PROMPT_MODEL, CONTINUE)):
        progress("certify: stream")
        yield _stream(subject, prompts, runs[0])
        if subject.session.beside(CHECK):
            progress("certify: draft")
            yield _draft(subject, prompts, FILTERS[0])
    if subject.program.streams and subject.session.beside(REFILL):
        progress("certify: refill")
        yield _refill(subject, prompts, runs[0])
    if subject.whole is not None:
        progress("certify: whole")
        found = sample_rows(subject.whole, prompts, subject.program, runs[0].options)
        worst = max(_between(runs[0], row, found, row) for row in range(len(prompts)))
        yield Stage("whole", "the sampling as one model, and step by step", worst, SCORE_BOUND)


def samples_stage(subject: Subject) -> Stage:
    """The samples of an engine that searches: with the same filters for all texts, and with other options for each,
    some of which edit scores."""
    session = subject.session.beside(SAMPLES)
    assert session is not None, "the engine samples no texts"
    prompts = make_prompts(subject, 0)
    alone = [replace(one, **UNEDITED) for one in FILTERS]
    drawn = [*alone, *(replace(one, **EDITED) for one in alone)]
    runs = [_mixed(subject, prompts, options, session) for options in (*([one] for one in alone), drawn)]
    return _stage("samples", "tokens and scores of the definition, drawn instead of searched for", runs)


def make_prompts(subject: Subject, seed: int) -> list[Row]:
    """Random prompts of several lengths, each with its own seed and values of the other inputs.

    One of them is empty, if texts have a begin token.
    """
    program, random = subject.program, np.random.default_rng(seed)
    text = program.inputs[str(program.written)]
    longest = max(LENGTHS) if text.longest is None else text.longest - 1
    least = 1 - len(text.special.begun)
    prompts = [random_ids(random, text, min(max(length, least), longest)) for length in LENGTHS]
    pairs = zip(make_sources(program, SOURCES), prompts, strict=True)
    return [{**source, PROMPT: prompt, SEED: np.array(row)} for row, (source, prompt) in enumerate(pairs)]


def followed(
    form: Subject, row: Row, tokens: Sequence[int], options: SampleOptions, end: Sequence[int] = ()
) -> Followed:
    """The tokens that an engine drew for a row, checked against the definition with this training form."""
    special = replace(form.special, end=tuple(end)) if end else form.special
    program, prompt = form.program, [int(one) for one in row[PROMPT]]
    longest = program.inputs[str(program.written)].longest
    given = (form.scorer(row), prompt, tokens, int(row[SEED]), options)
    return follow(*given, longest=longest, special=special, first=program.suppress_first)


def _run(subject: Subject, prompts: Sequence[Row], options: SampleOptions, end: Sequence[int] = ()) -> _Run:
    found = sample_rows(subject.session, prompts, subject.program, options, end)
    run = _Run(options, tuple(end) or subject.special.end, found, ())
    judged = (followed(subject, row, run.tokens(index), options, end) for index, row in enumerate(prompts))
    return replace(run, judged=tuple(judged))


def _mixed(
    subject: Subject, prompts: Sequence[Row], drawn: Sequence[SampleOptions] = FILTERS, session: Session | None = None
) -> _Run:
    """A call with other options for each prompt, by the engine's own model or that of the session."""
    options = [drawn[row % len(drawn)] for row in range(len(prompts))]
    rows = [{**prompt, **own_values(one)} for prompt, one in zip(prompts, options, strict=True)]
    found = sample_rows(session or subject.session, rows, subject.program, drawn[0])
    run = _Run(drawn[0], subject.special.end, found, ())
    judged = (followed(subject, prompts[row], run.tokens(row), one) for row, one in enumerate(options))
    return replace(run, judged=tuple(judged))


def _likely(subject: Subject, run: _Run, rows: int) -> int:
    """The token drawn most often before the last position; as the end token, it makes many texts end early."""
    counts = Counter(token for row in range(rows) for token in run.tokens(row)[:-1] or run.tokens(row))
    return counts.most_common(1)[0][0] if counts else subject.special.last


def _stage(name: str, what: str, runs: Sequence[_Run], *, ends: bool = False) -> Stage:
    """All draws must be correct, and some beyond rounding; with `ends`, a text of the last run must end by itself."""
    worst = max(difference for run in runs for difference in run.differences)
    judged = [one for run in runs for one in run.judged]
    tokens, decided = sum(one.tokens for one in judged), sum(one.decided for one in judged)
    ended = sum(bool({*runs[-1].tokens(row)[-1:]} & {*runs[-1].end}) for row in range(len(runs[-1].judged)))
    problem = next((one.problem for one in judged if one.problem), "")
    if not problem and (decided == 0 or (ends and ended == 0)):
        problem = "no draw is beyond rounding" if decided == 0 else "no text ends"
        return Stage(name, what, float("inf"), SCORE_BOUND, problem, fault="weights")
    detail = problem or f"({tokens} tokens, {decided} beyond rounding, {ended} ends)"
    return Stage(name, what, worst, SCORE_BOUND, detail)


def _batch(subject: Subject, prompts: Sequence[Row], together: _Run) -> Stage:
    alone = [sample_rows(subject.session, [prompt], subject.program, together.options) for prompt in prompts]
    backwards = sample_rows(subject.session, prompts[:0:-1], subject.program, together.options)
    count = len(prompts)
    pairs = [(row, found, 0) for row, found in enumerate(alone)]
    pairs += [(count - 1 - row, backwards, row) for row in range(count - 1)]
    worst = max(_between(together, row, other, place) for row, other, place in pairs)
    return Stage("batch", "the same prompts alone and among other neighbours", worst, SCORE_BOUND)


def _stream(subject: Subject, prompts: Sequence[Row], together: _Run) -> Stage:
    """The first call of a stream reads the prompt, and each further one samples three tokens."""
    called = [(row, *_called(_calls(subject, prompts[row], together.options, 3))) for row in (0, len(prompts) - 1)]
    worst = max(_apart(together, row, tokens, score) for row, tokens, score in called)
    return Stage("stream", "the same tokens and scores in one call, and in several", worst, SCORE_BOUND)


def _draft(subject: Subject, prompts: Sequence[Row], options: SampleOptions) -> Stage:
    """Each call checks four tokens, of which none, one, .. or all are right."""
    worst, problem, drafted = 0.0, "", 0
    options = replace(options, **EDITED)
    for row in (prompts[0], prompts[-1]):
        whole = sample_rows(subject.session, [row], subject.program, options)
        calls = _calls(subject, row, options)
        drafter = _Partly(whole.text(0, 0), len(row[PROMPT]))
        found = [*replace(calls, drafter=drafter, draft_tokens=_Partly.most)]
        tokens, score = _called(found)
        drafted += sum(one.drafted for one in found)
        judged = followed(subject, row, tokens, options)
        worst, problem = max(worst, apart(score, judged.score, judged.size)), problem or judged.problem
    worst = float("inf") if problem or not drafted else worst
    what = "tokens and scores of the definition with drafts, of which some are wrong"
    return Stage("draft", what, worst, SCORE_BOUND, problem)


@dataclass
class _Partly:
    """Drafts the tokens that follow, of which fewer are right in each call, and then all."""

    tokens: Sequence[int]
    prompt: int
    right: int = 4
    most: ClassVar[int] = 4

    def propose(self, text: Sequence[int], most: int) -> Sequence[int]:
        """Return tokens of which `right` are right."""
        done, right = len(text) - self.prompt, self.right
        self.right = right - 1 if right else self.most
        following = self.tokens[done : done + most]
        return [token if place < right else token ^ 1 for place, token in enumerate(following)]


def _calls(subject: Subject, row: Row, options: SampleOptions, at_once: int = 1) -> TokenCalls:
    prompt, name = Prompt([int(one) for one in row[PROMPT]], int(row[SEED])), str(subject.program.written)
    return TokenCalls(subject.session, prompt, options, subject.program.inputs[name].pieces, lambda _: "", at_once)


def _called(found: Iterable[Called]) -> tuple[tuple[int, ...], float]:
    """The tokens of calls, and their score."""
    calls = [*found]
    return tuple(token for one in calls for token in one.tokens), calls[-1].score if calls else 0.0


def _refill(subject: Subject, prompts: Sequence[Row], together: _Run) -> Stage:
    """The same prompts, and each once more, in a batch of fewer slots, with three tokens in each call."""
    text = subject.program.inputs[str(subject.program.written)]
    batch = RefillingBatch(subject.session, together.options, slots=len(prompts) - 2, vocabulary=text.pieces, at_once=3)
    texts = [
        Text([*text.special.begun, *map(int, row[PROMPT])], int(row[SEED]), together.options.max_new_tokens)
        for row in (*prompts, *prompts)
    ]
    if text.longest is not None:
        texts = [replace(one, most=min(one.most, text.longest - len(one.ids) + 1)) for one in texts]
    batch.reserve(max(one.needs for one in texts))
    waiting = list(texts)
    while waiting or batch.texts:
        count = batch.fitting(waiting)
        batch.advance(waiting[:count])
        del waiting[:count]
    found = [(index % len(prompts), one) for index, one in enumerate(texts)]
    worst = max(_apart(together, row, one.tokens, one.score) for row, one in found)
    return Stage("refill", "the same prompts in a batch that they join and leave", worst, SCORE_BOUND)


def _between(together: _Run, row: int, other: SearchResult, place: int) -> float:
    """The difference of the scores of the same prompt; infinite if its tokens differ beyond rounding."""
    tokens = [int(token) for token in other.tokens[place, 0, : other.lengths[place, 0]]]
    return _apart(together, row, tokens, float(other.scores[place, 0]))


def _apart(together: _Run, row: int, tokens: Sequence[int], score: float) -> float:
    """The difference of a score to that of a prompt; infinite if the tokens differ beyond rounding."""
    judged = together.judged[row]
    if [*tokens] != together.tokens(row):
        return float("inf") if judged.decided == judged.tokens else 0.0
    return apart(score, float(together.found.scores[row, 0]), judged.size)
