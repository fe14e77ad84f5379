"""The stage of the search for continuations of a language model, against the reference search behind each prompt."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from xformc.compiler.certify.difference import apart
from xformc.compiler.certify.reference_edits import EDITED
from xformc.compiler.certify.reference_search import Found, rescore, rounds, together
from xformc.compiler.certify.sampling_stages import SCORE_BOUND, make_prompts
from xformc.compiler.certify.subject import Subject
from xformc.format.certificate import Stage
from xformc.format.interfaces import PROMPTS
from xformc.format.manifest import SearchOptions
from xformc.format.names import BEAMS
from xformc.format.tokens import SpecialTokens
from xformc.runtime.rows import pad
from xformc.runtime.searching.search import SearchResult, search
from xformc.runtime.searching.translate import PROMPT

NEW, WIDEST = 4, 3
"""The most tokens of a continuation, and the widest beam: few, since every build has this stage."""

ROWS = (1, 3)
"""Which of the prompts of sampling are continued: of different lengths."""


@dataclass(frozen=True)
class _Expected:
    """The results of the reference search behind each prompt with these options and end tokens."""

    prompts: tuple[list[int], ...]
    options: SearchOptions
    special: SpecialTokens
    found: tuple[Found, ...]


def beam_stage(subject: Subject) -> Stage:
    """Compare two searches with the reference: with the engine's options, and with edited scores, another rule and
    another end token, so that texts end by themselves."""
    defaults, rows = subject.program.beams, make_prompts(subject, 0)
    assert defaults is not None, "the engine has no search for continuations"
    width = min(WIDEST, defaults.beam_size)
    options = replace(defaults, beam_size=width, n_best=width, beam_groups=1, max_length_offset=NEW)
    prompts = tuple([int(one) for one in rows[row][PROMPT]] for row in ROWS)
    free = _expect(subject, prompts, options, subject.special)
    counts = Counter(token for found in free.found for one in found.hypotheses for token in one.tokens[:-1])
    ends = [token for token, _ in counts.most_common() if token not in subject.special.end]
    special = replace(subject.special, end=tuple(ends[:1]) or subject.special.end)
    changes = {**EDITED, "length_penalty_kind": "average", "stop_rule": "best"}
    other = _expect(subject, prompts, replace(options, **changes), special)
    worst, clear = 0.0, 0
    for expected in (free, other):
        found = _search(subject, expected)
        worst = max(worst, *(_against(subject, expected, found, row) for row in range(len(prompts))))
        clear += sum(one.clear(SCORE_BOUND) for one in expected.found)
    what = f"tokens and scores of the reference search behind prompts, width {width}"
    if clear == 0 and worst <= SCORE_BOUND:
        return Stage("beams", what, float("inf"), SCORE_BOUND, "no choice is beyond rounding", fault="weights")
    return Stage("beams", what, worst, SCORE_BOUND)


def _expect(
    subject: Subject, prompts: tuple[list[int], ...], options: SearchOptions, special: SpecialTokens
) -> _Expected:
    scorer, longest = subject.scorer({}), subject.program.longest
    searches = [rounds(len(prompt), options, longest, special, prompt=prompt) for prompt in prompts]
    found = together(searches, lambda written: [scorer(texts) for texts in written.values()])
    return _Expected(prompts, options, special, tuple(found))


def _search(subject: Subject, expected: _Expected) -> SearchResult:
    session = subject.session.beside(BEAMS)
    assert session is not None, "the engine has no search for continuations"
    given = {PROMPTS: pad(expected.prompts, subject.special.absent)}
    return search(session, given, expected.options, _ends(expected, subject))


def _ends(expected: _Expected, subject: Subject) -> Sequence[int]:
    """The end tokens, if not those of the engine."""
    return () if expected.special == subject.special else expected.special.end


def _against(subject: Subject, expected: _Expected, found: SearchResult, row: int) -> float:
    """The largest difference of scores; infinite if the tokens differ where rounding cannot decide."""
    differences, prompt, reference = [0.0], expected.prompts[row], expected.found[row]
    for rank, hypothesis in enumerate(reference.hypotheses):
        tokens, score = found.text(row, rank), hypothesis.score
        if tokens != hypothesis.tokens:
            if reference.margin >= SCORE_BOUND or not tokens:
                return float("inf")
            score = rescore(subject.scorer({}), expected.special, tokens, expected.options, prompt=prompt)
        differences.append(apart(found.scores[row, rank], score, reference.size))
    return max(differences)
