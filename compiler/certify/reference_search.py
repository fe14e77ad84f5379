"""A plain, slow implementation of the search of docs/search.md: one sentence at a time, no caching of prefixes.

It uses only the training form, so it shares nothing with an engine: no step, no cache, no ONNX.
"""

from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from itertools import pairwise
from typing import Concatenate, ParamSpec

import numpy as np
from numpy.typing import NDArray

from xformc.compiler.certify.difference import largest
from xformc.compiler.certify.reference_automaton import Language
from xformc.compiler.certify.reference_edits import biased, edited
from xformc.compiler.certify.reference_phrases import Phrase, bank, in_turn, next_tokens, open_phrases
from xformc.compiler.certify.reference_timestamps import only_timed
from xformc.compiler.program import Program
from xformc.format.manifest import SearchOptions
from xformc.format.speech import Times
from xformc.format.tokens import SPECIAL, SpecialTokens

Scorer = Callable[[NDArray[np.int64]], NDArray[np.float32]]
"""Texts of one source, [batch, positions] -> their logits [batch, positions, vocabulary]."""

Rounds = Generator[NDArray[np.int64], NDArray[np.float32], "Found"]
"""A search: yields the texts of its next round, each a token longer than those before, and is sent their logits."""

Coverage = Callable[[tuple[int, ...]], float]
"""A text of one source -> its coverage of the source, before the token that follows it."""

Options = ParamSpec("Options")


@dataclass(frozen=True)
class Hypothesis:
    """A finished translation: its tokens without the begin token, and its score with length penalty."""

    tokens: tuple[int, ...]
    score: float


@dataclass(frozen=True)
class Found:
    """The result of the search, best first, and the differences of scores that decided it, one for each choice.

    `size` is the largest logit, if above 1: scores are rounded as logits are, and gaps are relative to it.
    """

    hypotheses: tuple[Hypothesis, ...]
    gaps: tuple[float, ...]
    size: float

    @property
    def margin(self) -> float:
        """The smallest gap; if rounding can exceed it, another result may be equally correct."""
        return min(self.gaps, default=float("inf"))

    def clear(self, rounding: float) -> int:
        """The number of choices that rounding cannot change."""
        return sum(gap >= rounding for gap in self.gaps)


@dataclass(frozen=True)
class Opening:
    """How the texts of a model begin: with `default`, if a call gives no prefix, within the limit of the length; at its
    positions, given tokens have the log probability 0. If it is `prompted`, all tokens of a prefix but an end token
    have, and the length penalty does not count them. Tokens in `suppressed` never come right after the prefix."""

    default: Sequence[int] = ()
    suppressed: Sequence[int] = ()
    prompted: bool = False

    def given(self, prefix: Sequence[int], end: Sequence[int]) -> int:
        """The number of tokens of a prefix that are no part of a score."""
        return sum(token not in end for token in prefix) if self.prompted else min(len(self.default), len(prefix))


def opening_of(program: Program) -> Opening:
    """How the texts of a program begin."""
    return Opening(program.prefix, program.suppress_first, program.prompted)


@dataclass(frozen=True)
class _Open:
    tokens: tuple[int, ...]
    log_probability: np.float32


@dataclass(frozen=True)
class _Given:
    """What the texts begin with, have and match, how many tokens may follow the next one, which never follow the
    prefix, and what texts with timestamps follow."""

    prefix: Sequence[int]
    phrases: Sequence[Phrase]
    language: Language | None
    left: int
    first: Sequence[int] = ()
    times: Times | None = None


@dataclass(frozen=True)
class _Candidate:
    parent: int
    token: int
    log_probability: np.float32


def rounds(  # noqa: PLR0913 (each is an option)
    positions: int,
    options: SearchOptions,
    longest: int | None = None,
    special: SpecialTokens = SPECIAL,
    prefix: Sequence[int] = (),
    *,
    phrases: Sequence[Phrase] = (),
    opening: Opening = Opening(),
    language: Language | None = None,
    times: Times | None = None,
    coverage: Coverage | None = None,
    prompt: Sequence[int] = (),
) -> Rounds:
    """The `beam_size` best finished hypotheses, of at most `longest` tokens, for one source with so many positions.

    `special` has the tokens that begin and end a hypothesis; `prefix` are the tokens that all of them begin with. One
    with an end token is a whole text, which may be shorter than `min_length`. Their scores are not edited. All have the
    `phrases`, and match the `language` after their prefix. With `prefix_bias` the prefix is not forced. With a coverage
    penalty, `coverage` counts in the scores. Texts with timestamps follow `times`, and have no default prefix.

    Texts go on behind a `prompt`, which is no part of the hypotheses, of their lengths and of their scores; with it,
    `longest` counts all tokens behind the first.
    """
    default, begun = opening.default if times is None else (), (*special.begun, *prompt)
    asked, prefix = len(prefix), prefix or default
    room = (sum(map(len, phrases)) + 1 if phrases else 0, 0 if language is None else language.room)
    limit = max([length_limit(positions, options, asked), *(len(prefix) + tokens for tokens in room if tokens)])
    limit = limit if longest is None else min(limit, longest - max(0, len(begun) - 1))
    least = 0 if {*special.end} & {*prefix} else options.min_length or 0
    unscored = replace(opening, default=default).given(prefix, special.end)
    sentence = _Sentence(special, begun, unscored, unscored * opening.prompted, limit, least, coverage)
    count = options.beam_groups or 1
    own = replace(options, beam_size=options.beam_size // count)
    groups, size = [_Group(sentence, own) for _ in range(count)], 1.0
    for length in range(1, limit + 1):
        given = _Given(prefix, phrases, language, limit - length, opening.suppressed, times)
        taken = Counter[int]()
        open_groups = [group for group in groups if not group.done]
        logits = (yield np.array([text for group in open_groups for text in group.texts], np.int64))[:, -1]
        size, row = max(size, float(largest(logits).max())), iter(logits)
        for group in open_groups:
            taken.update(group.step(np.stack([next(row) for _ in group.beam]), length, given, taken))
            group.done = group.is_over(length)
        if all(group.done for group in groups):
            break
    pool = sorted((one for group in groups for one in group.pool), key=lambda hypothesis: -hypothesis.score)
    gaps = [gap for group in groups for gap in group.gaps]
    pairs = [(one, other) for one, other in pairwise(pool) if one.tokens != other.tokens]
    gaps += [float(np.float32(one.score) - np.float32(other.score)) for one, other in pairs]
    return Found(tuple(pool), tuple(gap / size for gap in gaps), size)


def length_limit(positions: int, options: SearchOptions, begun: int) -> int:
    """The most tokens of a text of a source with so many positions, of which a call gives the first `begun`."""
    scaled = np.float32(options.max_length_factor) * np.float32(positions)
    return max(1, int(np.floor(scaled)) + options.max_length_offset, begun)


def _alone(steps: Callable[Options, Rounds]) -> Callable[Concatenate[Scorer, Options], Found]:
    @wraps(steps)
    def search(scorer: Scorer, *arguments: Options.args, **named: Options.kwargs) -> Found:
        (found,) = together([steps(*arguments, **named)], lambda written: [scorer(written[0])])
        return found

    return search


search = _alone(rounds)
"""One search, all texts of which are scored by a `Scorer`, its first argument; the others are those of `rounds`."""


def together(
    searches: Sequence[Rounds], score_each: Callable[[dict[int, NDArray[np.int64]]], Sequence[NDArray[np.float32]]]
) -> list[Found]:
    """Run searches at once. `score_each` is given the texts of a round by the places of their searches, in order."""
    ended: dict[int, Found] = {}
    waiting = {place: next(one) for place, one in enumerate(searches)}
    while waiting:
        scored, asked = zip(waiting, score_each(waiting), strict=True), {}
        for place, logits in scored:
            try:
                asked[place] = searches[place].send(logits)
            except StopIteration as end:
                ended[place] = end.value
        waiting = asked
    return [ended[place] for place in range(len(searches))]


@dataclass(frozen=True)
class _Sentence:
    """What the groups of a search share."""

    special: SpecialTokens
    begun: tuple[int, ...]  # the begin token, if any, and those of the prompt
    unscored: int  # so many tokens of the text have the log probability 0 if they are given
    uncounted: int  # so many are not counted by the length penalty
    limit: int
    least: int
    coverage: Coverage | None


class _Group:
    """A beam of its own: all of it, or a group of diverse beams. `options` has its size."""

    def __init__(self, sentence: _Sentence, options: SearchOptions) -> None:
        self.sentence, self.options = sentence, options
        self.beam, self.pool, self.gaps = [_Open((), np.float32(0))], list[Hypothesis](), list[float]()
        self.finished, self.done = 0, False

    @property
    def texts(self) -> list[tuple[int, ...]]:
        """The texts of its hypotheses."""
        return [(*self.sentence.begun, *hypothesis.tokens) for hypothesis in self.beam]

    def step(self, logits: NDArray[np.float32], length: int, given: _Given, taken: Counter[int]) -> list[int]:
        """Write token `length`, given the logits after each text; earlier groups go on with the tokens `taken`, so
        often. Return those of this group."""
        width, sentence, options = self.options.beam_size, self.sentence, self.options
        candidates, gaps = _expand(logits, sentence, self.beam, options, given, taken)
        self.gaps += gaps
        if length <= sentence.unscored:
            candidates = [replace(one, log_probability=np.float32(0)) for one in candidates]
        banks = [_bank(given.phrases, sentence.begun, self.beam, candidate) for candidate in candidates]
        for number in set(banks):
            pairs = zip(candidates, banks, strict=True)
            self.gaps += _gaps(sorted([one.log_probability for one, bank in pairs if bank == number], reverse=True))
        candidates = candidates[: sentence.special.choices * width]
        for candidate in candidates[: _places(options, self.finished)]:
            self._finish(candidate, length, given)
        self.pool = sorted(self.pool, key=lambda hypothesis: -hypothesis.score)[:width]
        going_on = [candidate for candidate in candidates if candidate.token not in sentence.special.end]
        going_on = sorted(going_on[:width], key=lambda candidate: -candidate.log_probability)
        open_ones = going_on[: _places(options, self.finished)]
        self.beam = [_Open(self._tokens(candidate), candidate.log_probability) for candidate in open_ones]
        return [candidate.token for candidate in going_on]

    def is_over(self, length: int) -> bool:
        """Whether the search is over after so many tokens, before the limit."""
        options, width = self.options, self.options.beam_size
        if not self.beam:
            return True
        if options.stop_rule in ("best", "complete"):
            to_the_end = options.stop_rule == "complete" and options.length_penalty > 0
            reached = (self.sentence.limit if to_the_end else length) - self.sentence.uncounted
            bound = score(self.beam[0].log_probability, reached, options)
            if len(self.pool) == width:
                self.gaps.append(abs(bound - self.pool[-1].score))
            return len(self.pool) == width and bound <= self.pool[-1].score
        return self.finished >= (_enough(options) if options.stop_rule in ("first", None) else width)

    def _finish(self, candidate: _Candidate, length: int, given: _Given) -> None:
        """Keep a candidate if it ends here."""
        sentence, tokens = self.sentence, self._tokens(candidate)
        if open_phrases(given.phrases, (*sentence.begun, *tokens)):
            return
        if (candidate.token in sentence.special.end and length >= sentence.least) or length == sentence.limit:
            self.finished += 1
            covered = penalty(sentence.coverage, self.texts[candidate.parent], self.options)
            found = score(candidate.log_probability, length - sentence.uncounted, self.options)
            self.pool.append(Hypothesis(tokens, found + covered))

    def _tokens(self, candidate: _Candidate) -> tuple[int, ...]:
        return (*self.beam[candidate.parent].tokens, candidate.token)


def _places(options: SearchOptions, finished: int) -> int:
    """The width of the beam after so many hypotheses have finished."""
    return max(0, options.beam_size - finished) if options.stop_rule == "shrink" else options.beam_size


def _enough(options: SearchOptions) -> int:
    """How many finished hypotheses end the search."""
    return int(np.floor(np.float32(options.beam_size) * np.float32(options.patience or 1) + np.float32(0.5)))


def score(log_probability: np.float32, length: int, options: SearchOptions) -> float:
    """log P(y) / |y|^alpha, or log P(y) / ((5 + |y|) / 6)^alpha (Wu et al. 2016, equation 14, without coverage)."""
    length = max(length, 1)
    divided = length if options.length_penalty_kind == "average" else (5.0 + length) / 6.0
    return float(log_probability) / divided**options.length_penalty


def penalty(coverage: Coverage | None, text: tuple[int, ...], options: SearchOptions) -> float:
    """The coverage penalty of a text that ends after this one (Wu et al. 2016, equation 14)."""
    return options.coverage_penalty * coverage(text) if coverage is not None and options.coverage_penalty else 0.0


def rescore(
    scorer: Scorer,
    special: SpecialTokens,
    tokens: tuple[int, ...],
    options: SearchOptions,
    prefix: Sequence[int] = (),
    *,
    opening: Opening = Opening(),
    coverage: Coverage | None = None,
    prompt: Sequence[int] = (),
) -> float:
    """The score of these tokens, with all positions computed at once; the other arguments are those of `search`."""
    prefix, begun = prefix or opening.default, (*special.begun, *prompt)
    target = np.array([(*begun, *tokens[:-1])], np.int64)
    before = len(begun) - 1
    scores, text = log_probabilities(scorer(target))[0, before:], target[0].tolist()
    total = np.float32(0)
    share = options.prefix_bias or 0.0
    unscored = 0 if share else opening.given(prefix, special.end)
    for place, token in enumerate(tokens):
        own = biased(scores[place], tokens[:place], prefix, share)
        given = place < len(prefix) and not share
        if place < unscored:
            continue
        banned = place == len(prefix) and token in opening.suppressed
        changed = own if given else edited(own, text[: before + place + 1], options)
        total += np.float32(-np.inf) if banned else changed[token]
    return score(total, len(tokens) - unscored * opening.prompted, options) + penalty(
        coverage, (*special.begun, *tokens[:-1]), options
    )


def log_probabilities(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """The log softmax over the last axis."""
    highest = logits.max(-1, keepdims=True)
    return logits - (highest + np.log(np.exp(logits - highest).sum(-1, keepdims=True)))


def _expand(
    logits: NDArray[np.float32],
    sentence: _Sentence,
    beam: list[_Open],
    options: SearchOptions,
    given: _Given,
    taken: Counter[int],
) -> tuple[list[_Candidate], list[float]]:
    """The candidates, which are the best continuations, best first, and the next best one; or those by the token of the
    prefix. And the differences of scores that decided before.

    `logits` are those after each text of the beam. Ties go to the earlier hypothesis, then to the smaller token.
    Tokens that are banned are none. Those that earlier groups have `taken` are penalised.
    """
    begun, scores = sentence.begun, log_probabilities(logits)
    most = sentence.special.choices * options.beam_size + 1
    phrases, share, written = given.phrases, options.prefix_bias or 0.0, len(beam[0].tokens)
    forced = given.prefix[written] if written < len(given.prefix) and not share else None
    candidates, gaps = list[_Candidate](), list[float]()
    for parent, hypothesis in enumerate(beam):
        text, plain = [*begun, *hypothesis.tokens], scores[parent].copy()
        scores[parent] = biased(plain, hypothesis.tokens, given.prefix, share)
        changed = scores[parent] if forced is not None else edited(scores[parent], text, options)
        if written == len(given.prefix) and given.first:
            changed = changed.copy()
            changed[[*given.first]] = -np.inf
        if given.times is not None and forced is None:
            after = hypothesis.tokens[0 if share else len(given.prefix) :]
            changed, gap = only_timed(changed, after, given.times)
            gaps += [gap] if np.isfinite(gap) else []
        for token, uses in taken.items() if forced is None else ():
            changed[token] -= np.float32(options.diversity_penalty or 0) * uses
        if given.language is not None and forced is None:
            allowed = given.language.allowed(hypothesis.tokens[0 if share else len(given.prefix) :], given.left)
            changed = np.where(allowed, changed, np.float32(-np.inf))
        order = logits[parent] if np.array_equal(changed, plain) else changed
        best = np.argsort(-order, kind="stable")[:most] if forced is None else [forced]
        if phrases and forced is None:
            wanted = sorted(next_tokens(phrases, text))
            changed[wanted] = scores[parent][wanted]
            others = [token for token in np.argsort(-changed, kind="stable") if token not in wanted]
            best = np.array([*others[: most - 1], *wanted])
        candidates += [
            _Candidate(parent, int(token), hypothesis.log_probability + changed[token])
            for token in best
            if changed[token] > -np.inf
        ]
    candidates = sorted(candidates, key=lambda candidate: -candidate.log_probability)
    if phrases:
        candidates = in_turn(candidates, lambda candidate: _bank(phrases, begun, beam, candidate))
    return candidates[:most], gaps


def _bank(phrases: Sequence[Phrase], begun: Sequence[int], beam: list[_Open], candidate: _Candidate) -> int:
    return bank(phrases, (*begun, *beam[candidate.parent].tokens, candidate.token))


def _gaps(ordered: list[np.float32]) -> list[float]:
    return [float(better - worse) for better, worse in pairwise(ordered)]
