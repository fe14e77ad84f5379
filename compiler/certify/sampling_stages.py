"""The stages of a language model's certificate that sample: what the engine draws, and what its definition draws."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from xformc.compiler.certify.reference_sampling import Followed, follow
from xformc.compiler.certify.subject import Subject
from xformc.format.certificate import Stage
from xformc.format.manifest import SampleOptions
from xformc.format.tokens import END
from xformc.runtime.generate import Prompt, SampleResult, sample

SCORE_BOUND = 1e-4
GREEDY = SampleOptions(temperature=0.0, top_k=0, top_p=1.0, max_new_tokens=8)
FILTERS = (
    replace(GREEDY, temperature=1.0, top_k=16),
    replace(GREEDY, temperature=0.7, top_k=32, top_p=0.8),
    replace(GREEDY, temperature=1.5),
)
"""With few tokens to draw from, draws are clear even in a large vocabulary of random weights; the last has all."""

LENGTHS = (0, 1, 3, 6, 10)


@dataclass(frozen=True)
class _Run:
    """One call of the engine: its prompts together, and what the definition says of each continuation."""

    options: SampleOptions
    end: int
    found: SampleResult
    judged: tuple[Followed, ...]

    def tokens(self, row: int) -> list[int]:
        """What the engine drew for this prompt."""
        return [int(token) for token in self.found.tokens[row, : self.found.lengths[row]]]

    @property
    def differences(self) -> list[float]:
        """How far each score is from what it should be; infinite where the tokens are wrong."""
        return [
            float("inf") if judged.problem else _finite(abs(float(score) - judged.score))
            for judged, score in zip(self.judged, self.found.scores, strict=True)
        ]


def sampling_stages(subject: Subject, progress: Callable[[str], None], seed: int = 0) -> Iterator[Stage]:
    """Greedy, sample and batch, and whole where it is driven. `progress` is told of each stage before it runs."""
    prompts = make_prompts(subject, seed)
    progress("certify: greedy")
    yield _stage("greedy", "tokens and scores of the definition, temperature 0", [_run(subject, prompts, GREEDY)])
    progress("certify: sample")
    runs = [_run(subject, prompts, options) for options in FILTERS]
    runs.append(_run(subject, prompts, FILTERS[0], _likely(runs[0], len(prompts))))
    yield _stage("sample", "tokens and scores of the definition, with filters", runs, ends=True)
    progress("certify: batch")
    yield _batch(subject, prompts, runs[0])
    if subject.whole is not None:
        progress("certify: whole")
        found = sample(subject.whole, prompts, runs[0].options)
        worst = max(_between(runs[0], row, found, row) for row in range(len(prompts)))
        yield Stage("whole", "the sampling as one model, and step by step", worst, SCORE_BOUND)


def make_prompts(subject: Subject, seed: int) -> list[Prompt]:
    """Random prompts of several lengths, one without tokens, each with its own seed."""
    random, text = np.random.default_rng(seed), subject.program.inputs["text"]
    longest = max(LENGTHS) if text.longest is None else text.longest - 1
    lengths = [min(length, longest) for length in LENGTHS]
    return [Prompt(random.integers(4, text.pieces, length).tolist(), row) for row, length in enumerate(lengths)]


def _run(subject: Subject, prompts: Sequence[Prompt], options: SampleOptions, end: int = END) -> _Run:
    found = sample(subject.session, prompts, options, end)
    run, longest = _Run(options, end, found, ()), subject.program.inputs["text"].longest
    judged = (
        follow(subject.text_logits, prompt.ids, run.tokens(row), prompt.seed, options, longest=longest, end=end)
        for row, prompt in enumerate(prompts)
    )
    return replace(run, judged=tuple(judged))


def _likely(run: _Run, rows: int) -> int:
    """The token that is drawn most often before a last place, so that with it as the end token many texts end."""
    counts = Counter(token for row in range(rows) for token in run.tokens(row)[:-1] or run.tokens(row))
    return counts.most_common(1)[0][0] if counts else END


def _stage(name: str, what: str, runs: Sequence[_Run], *, ends: bool = False) -> Stage:
    """Every draw must be right; some must be clear, and with `ends` a text of the last run must end by itself."""
    worst = max(difference for run in runs for difference in run.differences)
    judged = [one for run in runs for one in run.judged]
    tokens, decided = sum(one.tokens for one in judged), sum(one.decided for one in judged)
    ended = sum(runs[-1].tokens(row)[-1:] == [runs[-1].end] for row in range(len(runs[-1].judged)))
    problem = next((one.problem for one in judged if one.problem), "")
    if decided == 0 or (ends and ended == 0):
        worst, problem = float("inf"), problem or "no draw is clear, or no text ends"
    detail = problem or f"({tokens} tokens, {decided} beyond rounding, {ended} ends)"
    return Stage(name, what, worst, SCORE_BOUND, detail)


def _batch(subject: Subject, prompts: Sequence[Prompt], together: _Run) -> Stage:
    alone = [sample(subject.session, [prompt], together.options) for prompt in prompts]
    backwards = sample(subject.session, prompts[:0:-1], together.options)
    count = len(prompts)
    pairs = [(row, found, 0) for row, found in enumerate(alone)]
    pairs += [(count - 1 - row, backwards, row) for row in range(count - 1)]
    worst = max(_between(together, row, other, place) for row, other, place in pairs)
    return Stage("batch", "the same prompts alone and among other neighbours", worst, SCORE_BOUND)


def _between(together: _Run, row: int, other: SampleResult, place: int) -> float:
    """How far the scores of the same prompt are apart; infinite where its tokens differ beyond rounding."""
    tokens, judged = together.tokens(row), together.judged[row]
    if tokens != [int(token) for token in other.tokens[place, : other.lengths[place]]]:
        return float("inf") if judged.decided == judged.tokens else 0.0
    return _finite(abs(float(together.found.scores[row] - other.scores[place])))


def _finite(difference: float) -> float:
    return difference if np.isfinite(difference) else float("inf")
