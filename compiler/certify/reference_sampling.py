"""A plain implementation of sampling as defined in docs/search.md, which follows the tokens of an engine.

It uses only the training form, so it shares nothing with an engine: no step, no cache, no ONNX. An engine's sample is
correct if each token is the one that the definition draws after the same prefix.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from xformc.compiler.certify.difference import largest
from xformc.compiler.certify.reference_edits import edited
from xformc.format.manifest import SampleOptions
from xformc.format.tokens import SPECIAL, SpecialTokens

Scorer = Callable[[NDArray[np.int64]], NDArray[np.float32]]
"""text [batch, text] -> logits [batch, text, vocabulary]."""

ROUNDING = 1e-4
"""The margin below which rounding may decide a draw: a difference of logits, relative to the largest logit."""

FINEST = 1e-5
"""The smallest difference of probabilities that counts as beyond rounding, even for small logits."""

_WEYL, _FIRST, _SECOND, _MASK = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 2**64 - 1


@dataclass(frozen=True)
class Draw:
    """A token, its log probability by the model (no temperature, no filter), and the margin of the choice.

    `margin` is the smallest difference of logits that decided the choice, relative to the largest logit; a difference
    of probabilities counts as a difference of logits divided by the temperature. If rounding can exceed the margin,
    another token may be equally correct.
    """

    token: int
    log_probability: float
    margin: float


@dataclass(frozen=True)
class Followed:
    """A continuation, checked against the definition.

    `problem` describes a mistake, or is ""; `score` is the expected score; `decided` of its `tokens` tokens were
    decided beyond rounding; `size` is the largest logit, if above 1.
    """

    problem: str
    score: float
    tokens: int
    decided: int
    size: float


def follow(
    scorer: Scorer,
    prompt: Sequence[int],
    found: Sequence[int],
    seed: int,
    options: SampleOptions,
    *,
    longest: int | None = None,
    special: SpecialTokens = SPECIAL,
    first: Sequence[int] = (),
) -> Followed:
    """Draw each token of `found` again and compare; neither `prompt` nor `found` has a begin token or padding.

    Tokens in `first` are not drawn right after the prompt.
    """
    score, decided, size, problem = 0.0, 0, 1.0, _wrong_length(prompt, found, options, longest, special)
    text = np.array([[*special.begun, *prompt, *found[:-1]]], np.int64)
    start = len(prompt) + len(special.begun)
    scored = scorer(text)[0, start - 1 :] if found else ()
    for place, (token, logits) in enumerate(zip(found, scored, strict=True), start=start):
        banned = (*(options.suppress_tokens or ()), *(first if place == start else ()))
        here = replace(options, suppress_tokens=banned)
        drawn = draw(changed_logits(logits, text[0, :place].tolist(), here), uniform(seed, place), options)
        score += float(log_softmax(logits)[token])
        decided += drawn.margin >= ROUNDING
        size = max(size, float(largest(logits)[0]))
        if token != drawn.token and drawn.margin >= ROUNDING and not problem:
            problem = f"token {place} is {token}, not {drawn.token}"
    return Followed(problem, score, len(found), decided, size)


def changed_logits(logits: NDArray[np.float32], text: Sequence[int], options: SampleOptions) -> NDArray[np.float32]:
    """The logits [vocabulary] after a text with the edits of the options; as they are if all tokens are banned."""
    changed = edited(logits, text, options)
    return changed if changed.max() > -np.inf else logits


def draw(logits: NDArray[np.float32], uniform: float, options: SampleOptions) -> Draw:
    """Draw a token from the logits [vocabulary] with a random number in [0, 1)."""
    exact, temperature = logits.astype(np.float64), options.temperature or 1.0
    best = -np.sort(-exact)
    ranked = 1 if options.temperature == 0 else min(options.top_k or len(best), len(best))
    likely = np.cumsum(_softmax(best[:ranked] / temperature))
    last = ranked - 1 if options.top_p >= 1 else min(int((likely < options.top_p).sum()), ranked - 1)
    kept = exact >= best[last]
    reached = np.cumsum(np.where(kept, np.exp((exact - best[0]) / temperature), 0.0))
    reached, goal = reached / reached[-1], uniform if options.temperature > 0 else 0.0
    token = int((reached <= goal).sum())
    edges = [reached[kept][:-1] - goal, likely[:-1] - (options.top_p if options.top_p < 1 else np.inf)]
    is_last = last + 1 == len(best) or best[last] == -np.inf
    gap = np.inf if is_last else float(best[last] - best[last + 1])
    size = max(float(largest(exact[exact > -np.inf])[0]), 1e-30)
    nearest = float(np.abs(np.concatenate(edges)).min(initial=np.inf))
    margin = min(nearest * min(temperature / size, ROUNDING / FINEST), gap / size)
    return Draw(token, float(log_softmax(logits)[token]), margin)


def uniform(seed: int, place: int) -> float:
    """SplitMix64's number for a seed and a position: its upper 24 bits as a number in [0, 1)."""
    stream = _mix(seed + _WEYL)
    return (_mix(stream + place * _WEYL) >> 40) * 2.0**-24


def log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """The log probabilities of logits [vocabulary]."""
    below = logits.astype(np.float64) - logits.max()
    return below - np.log(np.exp(below).sum())


def _softmax(values: NDArray[np.float64]) -> NDArray[np.float64]:
    weights = np.exp(values - values.max())
    return weights / weights.sum()


def _mix(value: int) -> int:
    value &= _MASK
    value = (value ^ (value >> 30)) * _FIRST & _MASK
    value = (value ^ (value >> 27)) * _SECOND & _MASK
    return value ^ (value >> 31)


def _wrong_length(
    prompt: Sequence[int], found: Sequence[int], options: SampleOptions, longest: int | None, special: SpecialTokens
) -> str:
    limit = (
        options.max_new_tokens
        if longest is None
        else min(options.max_new_tokens, longest + 1 - len(special.begun) - len(prompt))
    )
    if {*special.end} & {*found[:-1]}:
        return "it goes on after the end token"
    ended = len(found) > 0 and found[-1] in special.end
    if len(found) > limit or (len(found) < limit and not ended):
        return f"it has {len(found)} tokens without an end, of at most {limit}"
    return ""
