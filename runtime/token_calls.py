"""The calls that sample the tokens of one prompt, a few in each, and more in each with a draft of what may follow."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from xformc.errors import UserError
from xformc.format.interfaces import AT, COUNT, DONE, DRAFTED, POSITIONS, SCORES_SO_FAR, STREAMED
from xformc.format.manifest import SampleOptions
from xformc.format.names import CHECK, CONTINUE, NEXT, PROMPT
from xformc.runtime.each import stack_options
from xformc.runtime.generate import Prompt
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

    vocabulary: the number of tokens. at_once: the most tokens of a call without a draft. drafter: guesses at most
    `draft_tokens` tokens, which one call checks.
    """

    session: Session
    prompt: Prompt
    options: SampleOptions
    vocabulary: int
    at_once: int = 1
    drafter: Drafter | None = None
    draft_tokens: int = 0

    def __iter__(self) -> Iterator[Called]:
        """Read the prompt, and yield what each call finds. Raises: UserError for results that cannot be."""
        options, text = options_of(self.prompt, self.options), [*self.prompt.ids]
        values, longest = begin(self.session, self.prompt, options), int(options[LIMIT].max()) + len(text)
        while not ended(values):
            draft = self._drafted(text, values)
            if draft:
                found = call(self.session, CHECK, {**values, **options, DRAFTED: np.array([draft], np.int64)})
            else:
                found = call(self.session, CONTINUE, {**values, **options, COUNT: np.array(self.at_once)})
            most = min(longest - len(text), len(draft) + 1 if draft else self.at_once)
            tokens, values = new_tokens(found, most, self.vocabulary), moved(values, found)
            text += tokens
            accepted = sum(token == one for token, one in zip(tokens, draft, strict=False))
            yield Called(tokens, score_so_far(values), len(draft), accepted)

    def _drafted(self, text: Sequence[int], values: Values) -> list[int]:
        """Return the tokens to check. The last position is left to a call without them: its caches end there."""
        if self.drafter is None:
            return []
        room = int(values[POSITIONS].numpy()) - int(values[AT].numpy()) - 2
        most = min(self.draft_tokens, room)
        return [*self.drafter.propose(text, most)] if most > 0 else []


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
