"""A plain, slow implementation of the search of docs/search.md: one sentence at a time, no caching of prefixes.

It uses only the training form, so it shares nothing with an engine: no step, no cache, no ONNX.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from itertools import pairwise
from typing import Concatenate, ParamSpec

import numpy as np
from numpy.typing import NDArray

from xformc.compiler.certify.reference_automaton import Language
from xformc.compiler.certify.reference_edits import biased, edited
from xformc.compiler.certify.reference_phrases import Phrase, bank, in_turn, next_tokens, open_phrases
from xformc.format.manifest import SearchOptions
from xformc.format.tokens import SPECIAL, SpecialTokens

Scorer = Callable[[NDArray[np.int64]], NDArray[np.float32]]
"""Texts of one source, [batch, positions] -> their logits [batch, positions, vocabulary]."""

Rounds = Generator[NDArray[np.int64], NDArray[np.float32], "Found"]
"""A search: yields the texts of its next round, each a token longer than those before, and is sent their logits."""

Options = ParamSpec("Options")


@dataclass(frozen=True)
class Hypothesis:
    """A finished translation: its tokens without the begin token, and its score with length penalty."""

    tokens: tuple[int, ...]
    score: float


@dataclass(frozen=True)
class Found:
    """The result of the search, best first, and the differences of scores that decided it, one for each choice."""

    hypotheses: tuple[Hypothesis, ...]
    gaps: tuple[float, ...]

    @property
    def margin(self) -> float:
        """The smallest gap; if rounding can exceed it, another result may be equally correct."""
        return min(self.gaps, default=float("inf"))

    def clear(self, rounding: float) -> int:
        """The number of choices that rounding cannot change."""
        return sum(gap >= rounding for gap in self.gaps)


@dataclass(frozen=True)
class _Open:
    tokens: tuple[int, ...]
    log_probability: np.float32


@dataclass(frozen=True)
class _Given:
    """What the texts begin with, have and match, and how many tokens may follow the next one."""

    prefix: Sequence[int]
    phrases: Sequence[Phrase]
    language: Language | None
    left: int


@dataclass(frozen=True)
class _Candidate:
    parent: int
    token: int
    log_probability: np.float32


def rounds(
    positions: int,
    options: SearchOptions,
    longest: int | None = None,
    special: SpecialTokens = SPECIAL,
    prefix: Sequence[int] = (),
    *,
    phrases: Sequence[Phrase] = (),
    default: Sequence[int] = (),
    language: Language | None = None,
) -> Rounds:
    """The `beam_size` best finished hypotheses, of at most `longest` tokens, for one source with so many positions.

    `special` has the tokens that begin and end a hypothesis; `prefix` are the tokens that all of them begin with. One
    with an end token is a whole text, which may be shorter than `min_length`. Their scores are not edited. All have the
    `phrases`, and match the `language` after their prefix. With `prefix_bias` the prefix is not forced. Without a
    prefix, `default` is one, within the limit of the length; at its positions, given tokens have the log probability 0.
    """
    width, asked, prefix = options.beam_size, len(prefix), prefix or default
    scaled = np.float32(options.max_length_factor) * np.float32(positions)
    limit = max(1, int(np.floor(scaled)) + options.max_length_offset, asked)
    room = (sum(map(len, phrases)) + 1 if phrases else 0, 0 if language is None else language.room)
    limit = max([limit, *(len(prefix) + tokens for tokens in room if tokens)])
    limit = limit if longest is None else min(limit, longest)
    least = 0 if {*special.end} & {*prefix} else options.min_length or 0
    beam = [_Open((), np.float32(0))]
    pool: list[Hypothesis] = []
    finished, gaps = 0, list[float]()
    for length in range(1, limit + 1):
        logits = yield np.array([(*special.begun, *hypothesis.tokens) for hypothesis in beam], np.int64)
        given = _Given(prefix, phrases, language, limit - length)
        candidates = _expand(logits[:, -1], special, beam, options, given)
        if length <= min(len(default), len(prefix)):
            candidates = [replace(one, log_probability=np.float32(0)) for one in candidates]
        banks = [_bank(phrases, special, beam, candidate) for candidate in candidates]
        for number in set(banks):
            pairs = zip(candidates, banks, strict=True)
            gaps += _gaps(sorted([one.log_probability for one, bank in pairs if bank == number], reverse=True))
        candidates = candidates[: 2 * width]
        for candidate in candidates[: _places(options, finished)]:
            text = (*special.begun, *beam[candidate.parent].tokens, candidate.token)
            if open_phrases(phrases, text):
                continue
            if (candidate.token in special.end and length >= least) or length == limit:
                finished += 1
                tokens = (*beam[candidate.parent].tokens, candidate.token)
                pool.append(Hypothesis(tokens, score(candidate.log_probability, length, options)))
        pool = sorted(pool, key=lambda hypothesis: -hypothesis.score)[:width]
        going_on = [candidate for candidate in candidates if candidate.token not in special.end]
        going_on = sorted(going_on[:width], key=lambda candidate: -candidate.log_probability)
        going_on = going_on[: _places(options, finished)]
        beam = [
            _Open((*beam[candidate.parent].tokens, candidate.token), candidate.log_probability)
            for candidate in going_on
        ]
        if not beam:
            break
        if options.stop_rule in ("best", "complete"):
            to_the_end = options.stop_rule == "complete" and options.length_penalty > 0
            bound = score(beam[0].log_probability, limit if to_the_end else length, options)
            if len(pool) == width:
                gaps.append(abs(bound - pool[-1].score))
                if bound <= pool[-1].score:
                    break
        elif finished >= (_enough(options) if options.stop_rule in ("first", None) else width):
            break
    gaps += _gaps([np.float32(hypothesis.score) for hypothesis in pool])
    return Found(tuple(pool), tuple(gaps))


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


def _places(options: SearchOptions, finished: int) -> int:
    """The width of the beam after so many hypotheses have finished."""
    return max(0, options.beam_size - finished) if options.stop_rule == "shrink" else options.beam_size


def _enough(options: SearchOptions) -> int:
    """How many finished hypotheses end the search."""
    return int(np.floor(np.float32(options.beam_size) * np.float32(options.patience or 1) + np.float32(0.5)))


def score(log_probability: np.float32, length: int, options: SearchOptions) -> float:
    """log P(y) / |y|^alpha, or log P(y) / ((5 + |y|) / 6)^alpha (Wu et al. 2016, equation 14, without coverage)."""
    divided = length if options.length_penalty_kind == "average" else (5.0 + length) / 6.0
    return float(log_probability) / divided**options.length_penalty


def rescore(
    scorer: Scorer,
    special: SpecialTokens,
    tokens: tuple[int, ...],
    options: SearchOptions,
    prefix: Sequence[int] = (),
    *,
    default: Sequence[int] = (),
) -> float:
    """The score of these tokens, with all positions computed at once; `prefix` and `default` as in `search`."""
    prefix = prefix or default
    target = np.array([(*special.begun, *tokens[:-1])], np.int64)
    scores, text = log_probabilities(scorer(target))[0], target[0].tolist()
    total = np.float32(0)
    share = options.prefix_bias or 0.0
    for place, token in enumerate(tokens):
        own = biased(scores[place], tokens[:place], prefix, share)
        given = place < len(prefix) and not share
        if given and place < len(default):
            continue
        total += own[token] if given else edited(own, text[: place + 1], options)[token]
    return score(total, len(tokens), options)


def log_probabilities(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """The log softmax over the last axis."""
    highest = logits.max(-1, keepdims=True)
    return logits - (highest + np.log(np.exp(logits - highest).sum(-1, keepdims=True)))


def _expand(
    logits: NDArray[np.float32], special: SpecialTokens, beam: list[_Open], options: SearchOptions, given: _Given
) -> list[_Candidate]:
    """The 2 * width best continuations, best first, and the next best one; or those by the token of the prefix.

    `logits` are those after each text of the beam. Ties go to the earlier hypothesis, then to the smaller token.
    Tokens that are banned are none.
    """
    most, scores = 2 * options.beam_size + 1, log_probabilities(logits)
    phrases, share, written = given.phrases, options.prefix_bias or 0.0, len(beam[0].tokens)
    forced = given.prefix[written] if written < len(given.prefix) and not share else None
    candidates: list[_Candidate] = []
    for parent, hypothesis in enumerate(beam):
        text, plain = [*special.begun, *hypothesis.tokens], scores[parent].copy()
        scores[parent] = biased(plain, hypothesis.tokens, given.prefix, share)
        changed = scores[parent] if forced is not None else edited(scores[parent], text, options)
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
    if not phrases:
        return candidates[:most]
    return in_turn(candidates, lambda candidate: _bank(phrases, special, beam, candidate))[:most]


def _bank(phrases: Sequence[Phrase], special: SpecialTokens, beam: list[_Open], candidate: _Candidate) -> int:
    return bank(phrases, (*special.begun, *beam[candidate.parent].tokens, candidate.token))


def _gaps(ordered: list[np.float32]) -> list[float]:
    return [float(better - worse) for better, worse in pairwise(ordered)]
