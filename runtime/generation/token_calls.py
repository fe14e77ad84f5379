"""The calls that sample the tokens of one prompt, a few in each, and more in each with a draft of what may follow."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from xformc.errors import UserError
from xformc.format.interfaces import AT, COUNT, DONE, DRAFTED, POSITIONS, SCORES_SO_FAR, STREAMED
from xformc.format.manifest import SampleOptions
from xformc.format.names import CHECK, CONTINUE, NEXT, PROMPT
from xformc.runtime.each import stack_options
from xformc.runtime.generation.generate import Continuation, Prompt
from xformc.runtime.generation.stops import NO_STOPS, Stops
from xformc.runtime.options import arrays
from xformc.runtime.results import Expected, check_results, up_to
from xformc.runtime.session import Session

Values = Mapping[str, Any]
"""Arrays and values of ONNX Runtime by name: those that go on from call to call, and options (docs/engine.md)."""

LIMIT = "max_new_tokens"


class Drafter(Protocol):
    """Guesses how one text goes on. A wrong guess costs time, and changes no token."""

    def propose(self, text: Sequence[int], most: int) -> Sequence[int]:
        """Return at most `most` tokens that may follow the prompt and all tokens so far, or none."""
        ...


class Guide(Protocol):
    """Says which tokens may not follow in one text."""

    def banned(self, tokens: Sequence[int]) -> NDArray[np.int64]:
        """Return the tokens that may not follow those of the continuation. Raises: UserError if none may."""
        ...

    def check(self, tokens: Sequence[int]) -> None:
        """Raises: UserError if the last of the tokens was banned."""
        ...

    def check_whole(self, tokens: Sequence[int]) -> None:
        """Raises: UserError if the continuation has ended and is no whole text."""
        ...


@dataclass(frozen=True)
class Called:
    """What a call has found: the new tokens and the log probability of all so far.

    drafted: the number of tokens that were drafted. accepted: the number of those that were right.
    """

    tokens: list[int]
    score: float
    drafted: int = 0
    accepted: int = 0


@dataclass(frozen=True)
class TokenCalls:
    """Samples the continuation of a prompt; an iteration is one continuation.

    vocabulary: the number of tokens. text: returns the text of the tokens of a continuation. at_once: the most tokens
    of a call without a draft; with a guide, it is one. drafter: guesses at most `draft_tokens` tokens, which one call
    checks. stops: the stop strings; the text ends before one, and its last token is the one that completes it.
    """

    session: Session
    prompt: Prompt
    options: SampleOptions
    vocabulary: int
    text: Callable[[Sequence[int]], str]
    at_once: int = 1
    drafter: Drafter | None = None
    draft_tokens: int = 0
    guide: Guide | None = None
    stops: Stops = NO_STOPS

    def whole(self) -> Continuation:
        """Return the continuation. Raises: UserError as an iteration."""
        found = [*self]
        tokens = [token for one in found for token in one.tokens]
        return self.continuation(tokens, found[-1].score if found else 0.0)

    def continuation(self, tokens: Sequence[int], score: float) -> Continuation:
        """Return the continuation of these tokens."""
        return Continuation(self.stops.cut(self.text(tokens)), score, tuple(tokens))

    def __iter__(self) -> Iterator[Called]:
        """Read the prompt, and yield what each call finds.

        Raises: UserError for results that cannot be, and for a text that its guide does not let go on.
        """
        options, tokens, stopped = options_of(self.prompt, self.options), list[int](), False
        values, longest = begin(self.session, self.prompt, options), int(options[LIMIT].max())
        while not stopped and not ended(values):
            draft = self._drafted(tokens, values)
            if draft:
                found = call(self.session, CHECK, {**values, **options, DRAFTED: np.array([draft], np.int64)})
            else:
                found = self._sampled({**values, **options}, tokens, self._count(values))
            most = min(longest - len(tokens), len(draft) + 1 if draft else self.at_once)
            new = new_tokens(found, most, self.vocabulary)
            size = self.stops.size(tokens, new, self.text)
            stopped = size is not None
            if size is not None and size < len(new):  # from the values before this call, those tokens alone
                new, found = new[:size], self._sampled({**values, **options}, tokens, size)
            tokens, values = [*tokens, *new], moved(values, found)
            if self.guide is not None:
                self.guide.check(tokens)
            accepted = sum(token == one for token, one in zip(new, draft, strict=False))
            yield Called(new, score_so_far(values), len(draft), accepted)
        if self.guide is not None and not stopped:
            self.guide.check_whole(tokens)

    def _sampled(self, inputs: Values, tokens: Sequence[int], count: int) -> dict[str, Any]:
        banned = {} if self.guide is None else {"suppress_tokens": self.guide.banned(tokens)}
        return call(self.session, CONTINUE, {**inputs, **banned, COUNT: np.array(count)})

    def _count(self, values: Values) -> int:
        """Return how many tokens to sample. With stop strings, the last position is left, as in `_drafted`."""
        if self.guide is not None:
            return 1
        return max(1, min(self.at_once, _room(values) - 1)) if self.stops.texts else self.at_once

    def _drafted(self, tokens: Sequence[int], values: Values) -> list[int]:
        """Return the tokens to check. The last position is left to a call without them: its caches end there."""
        if self.drafter is None:
            return []
        most = min(self.draft_tokens, _room(values) - 2)
        return [*self.drafter.propose([*self.prompt.ids, *tokens], most)] if most > 0 else []


def _room(values: Values) -> int:
    """Return the number of positions that are left."""
    return int(values[POSITIONS].numpy()) - int(values[AT].numpy())


def begin(session: Session, prompt: Prompt, options: Values) -> dict[str, Any]:
    """Read a prompt, with the inputs of `options_of`; return the values that go on."""
    return call(session, PROMPT, {"prompt": np.array(prompt.ids, np.int64)[None], LIMIT: options[LIMIT]})


def options_of(prompt: Prompt, options: SampleOptions) -> dict[str, NDArray[Any]]:
    """Return the inputs of each call that stay: the seed, and the options, over which those of the prompt win."""
    usual = arrays(options)
    return {"seed": np.array([prompt.seed], np.int64), **usual, **stack_options([prompt.options], usual)}


def call(session: Session, file: str, values: Values) -> dict[str, Any]:
    """Run one of the models of streams (`StatefulModel`); return its outputs by name."""
    model = session.beside(file)
    assert model is not None, f"the engine has no {file}"
    found: list[Any] = [*model.run(values)]
    return found[0]


def new_tokens(found: Values, most: int, vocabulary: int) -> list[int]:
    """Return the tokens of a call, from 1 to `most`. Raises: UserError for what is none."""
    arrays = {STREAMED: found[STREAMED].numpy()}
    check_results(arrays, (Expected(np.int64, (up_to(most), 1), vocabulary),), CONTINUE)
    new = [int(token) for token in arrays[STREAMED][:, 0]]
    if not new:
        raise UserError("the output tokens is empty, and the text has not ended", place=CONTINUE)
    return new


def score_so_far(values: Values) -> float:
    """Return the log probability of the text. Raises: UserError for what is none."""
    arrays = {SCORES_SO_FAR: values[SCORES_SO_FAR].numpy()}
    check_results(arrays, (Expected(np.float32, (1,)),), CONTINUE)
    return float(arrays[SCORES_SO_FAR][0])


def moved(values: Values, found: Values) -> dict[str, Any]:
    """Return the values for the next call."""
    return {**values, **{name.removesuffix(NEXT): one for name, one in found.items() if name.endswith(NEXT)}}


def ended(values: Values) -> bool:
    """Return whether the text has ended, by itself or by its limit. Raises: UserError for results that cannot be."""
    arrays = {name: _array(values[name]) for name in (AT, POSITIONS, DONE)}
    number = Expected(np.int64, ())
    check_results(arrays, (number, number, Expected(np.bool_, (1,))), CONTINUE)
    return bool(arrays[DONE][0]) or int(arrays[AT]) >= int(arrays[POSITIONS])


def _array(value: Any) -> NDArray[Any]:
    found: NDArray[Any] = value if hasattr(value, "dtype") else value.numpy()
    return found
