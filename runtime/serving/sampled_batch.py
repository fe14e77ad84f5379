"""A batch of texts that a language model samples together, whose texts join and leave between calls of the model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xformc.errors import UserError
from xformc.format.interfaces import (
    AT,
    COUNT,
    DONE,
    FROM,
    JOINING,
    KEPT,
    LENGTHS,
    NEWEST,
    RAGGED,
    READ,
    SCORES_BY_STEP,
    SCORES_SO_FAR,
    SLOTS,
    STREAMED,
)
from xformc.format.manifest import SampleOptions
from xformc.format.names import NEXT, REFILL
from xformc.format.search_options import EDITS
from xformc.runtime.each import Values, stack_options, with_values
from xformc.runtime.options import arrays
from xformc.runtime.results import REBUILD, Expected, check_results, up_to
from xformc.runtime.rows import pad
from xformc.runtime.serving.slotted_batch import SlottedBatch, run_stateful
from xformc.runtime.session import Session

Ids = NDArray[np.int64]

PART = 128
"""The most tokens of a prompt that a call reads, while others wait for their next token."""


@dataclass(eq=False)
class Text:
    """A text of a batch.

    ids: the tokens to go on from, with the begin token; at least one. most: the most tokens to add. options: those that
    it has of its own, all or none. stopped: returns how many of some new tokens belong to the text, which ends after
    them, or None if it goes on. tokens: those added so far, with the end token. read: the tokens of the prompt
    that were read before it joins. score: their log probability.
    """

    ids: Sequence[int]
    seed: int
    most: int
    options: Values = field(default_factory=dict[str, NDArray[Any]])
    stopped: Callable[[Sequence[int], Sequence[int]], int | None] = lambda tokens, new: None
    tokens: list[int] = field(default_factory=list[int])
    read: int = 0
    score: float = 0.0
    slot: int = 0
    done: bool = False

    @property
    def edits(self) -> bool:
        """Whether its own options edit scores."""
        return bool(self.options) and edits_scores(with_values(SampleOptions(1.0, 0, 1.0, 1), self.options))

    @property
    def position(self) -> int:
        """The position of the newest token, which the model reads next."""
        return len(self.ids) - 1 + len(self.tokens)

    @property
    def reads(self) -> int:
        """The tokens to go on from."""
        return len(self.ids)

    @property
    def needs(self) -> int:
        """The most tokens that the model reads of it."""
        return len(self.ids) - 1 + self.most

    @property
    def newest(self) -> int:
        """The newest token."""
        return (self.tokens or self.ids)[-1]


def edits_scores(options: SampleOptions) -> bool:
    """Return whether options edit the scores of tokens."""
    return any(getattr(options, option.name) not in (None, option.absent) for option in EDITS)


class RefillingBatch(SlottedBatch[Text]):
    """The texts that are being sampled."""

    def __init__(
        self, session: Session, options: SampleOptions, *, slots: int, vocabulary: int, at_once: int | None
    ) -> None:
        """`at_once`: the most tokens of each text that a call samples, which ends sooner if an eighth has ended."""
        model = session.beside(REFILL)
        assert model is not None, "the engine has no batches that refill"
        super().__init__(session, slots=slots, at_once=at_once)
        self._model, self._special = model, session.vocabularies.written
        self.ragged = model.metadata.get(RAGGED) == "1"
        self._vocabulary = vocabulary
        self._options = {name: value for name, value in arrays(options).items() if name != "max_new_tokens"}
        self._edits, self._reading = edits_scores(options), list[Text]()

    def fitting(self, waiting: Sequence[Text]) -> int:
        """As `SlottedBatch.fitting`; while the last part of a long prompt is to be read, no other text joins."""
        return 0 if self._at_last_part() else super().fitting(waiting)

    def _begin(self, joining: Sequence[Text]) -> Sequence[Text]:
        """Long prompts are read in parts, one in each call, right into their slots; their texts join for the last."""
        if not (self.ragged and self._caches):  # then what was read is not in slots
            return joining
        if self._at_last_part():
            return [self._reading.pop(0), *joining]
        self._reading += [text for text in joining if len(text.ids) - 1 > PART]
        if self._reading:
            text = self._reading[0]
            run_stateful(self._model, {**self._inputs([text], [], [text], text.read + PART), COUNT: np.array(0)})
            text.read += PART
        return [text for text in joining if len(text.ids) - 1 <= PART]

    def _at_last_part(self) -> bool:
        self._reading = [text for text in self._reading if not text.done]
        return bool(self._reading) and len(self._reading[0].ids) - 1 - self._reading[0].read <= PART

    def _call(self, kept: Sequence[int], joining: Sequence[Text]) -> int:
        return self._take(run_stateful(self._model, self._feeds(kept, joining)))

    def _feeds(self, kept: Sequence[int], joining: Sequence[Text]) -> dict[str, Any]:
        count = min(self._pace.steps, max(text.most - len(text.tokens) for text in self.texts))
        return {**self._inputs(self.texts, kept, joining, None), **self._states, COUNT: np.array(count, np.int64)}

    def _inputs(
        self, texts: Sequence[Text], kept: Sequence[int], joining: Sequence[Text], until: int | None
    ) -> dict[str, Any]:
        """What a call takes of its texts; those that join are read up to the token `until`, None for all of them."""
        return {
            **self._options,
            **stack_options([text.options for text in texts], self._options),
            **self._caches,
            JOINING: pad([text.ids[:-1][:until] for text in joining], self._special.fill),
            FROM: np.array(joining[0].read if joining else 0, np.int64),
            KEPT: np.array(kept, np.int64),
            SLOTS: np.array([text.slot for text in texts], np.int64),
            AT: np.array([text.position for text in texts], np.int64),
            NEWEST: np.array([text.newest for text in texts], np.int64),
            LENGTHS: np.array([len(text.tokens) for text in texts], np.int64),
            SCORES_SO_FAR: np.array([text.score for text in texts], np.float32),
            READ: self._read(texts),
            "seed": np.array([text.seed for text in texts], np.int64),
            "max_new_tokens": np.array([text.most for text in texts], np.int64),
        }

    def _read(self, texts: Sequence[Text]) -> Ids:
        """All tokens of the texts so far, with -1 in front of shorter ones; none if no scores are edited."""
        if not (self._edits or any(text.edits for text in texts)):
            return np.zeros((len(texts), 0), np.int64)
        rows = [[*text.ids, *text.tokens] for text in texts]
        return pad([row[::-1] for row in rows], -1)[:, ::-1].copy()

    def _take(self, found: dict[str, Any]) -> int:
        """Take the new tokens, scores and states; return the number of steps."""
        names = (DONE, LENGTHS, SCORES_SO_FAR)
        done, lengths, scores = (found.pop(f"{name}{NEXT}").numpy() for name in names)
        tokens, by_step, rows = found.pop(STREAMED).numpy(), found.pop(SCORES_BY_STEP).numpy(), len(self.texts)
        most = max(text.most for text in self.texts)
        integers = Expected(np.int64, (rows,), most + 1)
        expected = (Expected(np.bool_, (rows,)), integers, Expected(np.float32, (rows,)))
        check_results(dict(zip(names, (done, lengths, scores), strict=True)), expected, REFILL)
        if tokens.dtype != np.int64 or tokens.ndim != 2 or tokens.shape[1] != rows:
            raise UserError(f"the output {STREAMED} is {tokens.dtype} {list(tokens.shape)}", place=REFILL, hint=REBUILD)
        check_results({SCORES_BY_STEP: by_step}, (Expected(np.float32, tokens.shape),), REFILL)
        for row, text in enumerate(self.texts):
            new = tokens[: lengths[row] - len(text.tokens), row]
            size = Expected(np.int64, (up_to(self._pace.steps),), self._vocabulary)
            check_results({STREAMED: new}, (size,), REFILL)
            if not new.size:
                raise UserError("the output tokens is empty, and a text has not ended", place=REFILL, hint=REBUILD)
            written, text.score, text.done = new.tolist(), float(scores[row]), bool(done[row])
            size = text.stopped(text.tokens, written)
            if size is not None:
                written, text.score, text.done = written[:size], float(by_step[size - 1, row]), True
            text.tokens += written
        self._states = {name.removesuffix(NEXT): value for name, value in found.items()}
        return len(tokens)
