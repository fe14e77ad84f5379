"""Drafts of texts: tokens that may follow, by a second engine or from the text itself (Leviathan et al. 2023)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from xformc.errors import UserError
from xformc.format.abilities import CHECKS_DRAFTS, STREAMS
from xformc.format.inputs import Input
from xformc.format.interfaces import AT, COUNT, DONE, NEWEST, POSITIONS, READ
from xformc.format.manifest import Manifest, SampleOptions
from xformc.format.names import CONTINUE
from xformc.runtime.generation.generate import Prompt
from xformc.runtime.generation.token_calls import Drafter, TokenCalls, begin, call, ended, moved, new_tokens, options_of
from xformc.runtime.options import checked_integer
from xformc.runtime.session import Session

LOOKUP = "lookup"
DRAFT_TOKENS, MOST_DRAFT_TOKENS = 4, 64
LONGEST_NGRAM = 3
"""The most tokens of the end of a text that are looked up in it."""


@dataclass(frozen=True)
class Speculation:
    """How texts are drafted: `make` returns the drafter of a prompt's continuation; it drafts at most `tokens`."""

    make: Callable[[Prompt, SampleOptions], Drafter]
    tokens: int

    def drafted(self, calls: TokenCalls) -> TokenCalls:
        """Return the calls with a drafter."""
        return replace(calls, drafter=self.make(calls.prompt, calls.options), draft_tokens=self.tokens)


def speculation(manifest: Manifest, draft: tuple[Manifest, Session] | str, tokens: int | None) -> Speculation:
    """Return how the texts of an engine are drafted: by a second engine, or by LOOKUP.

    Raises: UserError if the engine checks no drafts, if the second one has another vocabulary or no streams, and for a
    wrong number of tokens.
    """
    most = checked_integer("draft_tokens", tokens, DRAFT_TOKENS, 1, MOST_DRAFT_TOKENS)
    manifest.require(CHECKS_DRAFTS)
    if draft == LOOKUP:
        return Speculation(lambda prompt, options: LookupDrafter(), most)
    if not isinstance(draft, tuple):
        raise UserError(f"draft must be an engine or {LOOKUP!r}, not {draft!r}")
    other, session = draft
    _require_same_vocabulary(manifest, other)
    return Speculation(partial(EngineDrafter, session, other.inputs[other.written]), most)


def _require_same_vocabulary(manifest: Manifest, draft: Manifest) -> None:
    if not draft.can(STREAMS):
        raise UserError(f"the draft {STREAMS.lacking.format(draft.name)}", hint=STREAMS.hint)
    (own, its), hint = (_vocabulary(one) for one in (manifest, draft)), "train the draft with the same tokenizer"
    if own != its:
        raise UserError(f"the draft {draft.name} has another vocabulary than {manifest.name}", hint=hint)


def _vocabulary(manifest: Manifest) -> tuple[object, ...]:
    text = manifest.inputs[manifest.written]
    file = None if text.tokenizer is None else manifest.files[text.tokenizer].sha256
    return text.vocabulary, text.special, file


class LookupDrafter:
    """Drafts what followed the last tokens of a text where it had them before (Saxena 2023, prompt lookup decoding)."""

    def propose(self, text: Sequence[int], most: int) -> Sequence[int]:
        """Return what followed the last place that ends like the text, by the longest end that has one."""
        ids = np.array(text, np.int64)
        for size in range(min(LONGEST_NGRAM, len(ids) - 1), 0, -1):
            places = np.lib.stride_tricks.sliding_window_view(ids[:-1], size)
            found = np.flatnonzero((places == ids[-size:]).all(axis=1))
            if len(found):
                after = int(found[-1]) + size
                return [int(one) for one in ids[after : after + most]]
        return ()


class EngineDrafter:
    """Drafts by a second engine, which samples as the first one does, with the same random numbers.

    It keeps the values after each of its tokens, so that it can go back to the last one that was right.
    """

    def __init__(self, session: Session, text: Input, prompt: Prompt, options: SampleOptions) -> None:
        """`text` is the engine's input for what it writes."""
        self._session, self._prompt, self._text = session, prompt, text
        self._begun = text.special.begun
        self._inputs = options_of(prompt, options)
        self._values: list[dict[str, Any]] = []
        self._known = len(prompt.ids)

    def propose(self, text: Sequence[int], most: int) -> Sequence[int]:
        """Return what this engine would sample, up to the end of the text or of its positions."""
        longest = self._text.longest
        if longest is not None and len(self._begun) + len(text) >= longest:
            return ()
        self._follow(text)
        found: list[int] = []
        while len(found) < most and not self._over():
            found.append(self._sample())
        return found

    def _follow(self, text: Sequence[int]) -> None:
        """Go to the newest token of the text: back to where the draft was right, or on to what it lacks."""
        if not self._values:
            self._values.append(begin(self._session, self._prompt, self._inputs))
        del self._values[len(text) - self._known + 1 :]
        self._correct(text[: self._known + len(self._values) - 1])
        while self._known + len(self._values) - 1 < len(text):
            self._sample()
            self._correct(text[: self._known + len(self._values) - 1])
        del self._values[:-1]
        self._known = len(text)

    def _correct(self, text: Sequence[int]) -> None:
        """Set the newest token, which may be another one than this engine sampled."""
        read = np.array([[*self._begun, *text]], np.int64)
        self._values[-1] |= {NEWEST: read[:, -1], DONE: np.array([False]), READ: read}

    def _over(self) -> bool:
        """Return whether the draft has ended. The last position is left, as there is no way back from it."""
        values = self._values[-1]
        return ended(values) or int(values[AT].numpy()) + 1 >= int(values[POSITIONS].numpy())

    def _sample(self) -> int:
        values = self._values[-1]
        found = call(self._session, CONTINUE, {**values, **self._inputs, COUNT: np.array(1)})
        self._values.append(moved(values, found))
        return new_tokens(found, 1, self._text.pieces)[0]
