"""Texts of tokens that positions write (CTC), best first."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from xformc.errors import UserError
from xformc.format.manifest import COPY
from xformc.format.results import Result
from xformc.runtime.kinds.kind import Arrays, ResultKind, register
from xformc.runtime.results import Expected, up_to

IMPOSSIBLE = -1e8
"""Hypotheses that there are not have a lower score."""


@dataclass(frozen=True)
class Labelling:
    """One hypothesis: its tokens, its log probability, and its text; None if the engine has no tokenizer."""

    tokens: tuple[int, ...]
    score: float
    text: str | None = None


@dataclass(frozen=True)
class Transcript:
    """What an example says: the hypotheses, best first, of which there is at least one."""

    hypotheses: tuple[Labelling, ...]

    @property
    def text(self) -> str | None:
        """The text of the best hypothesis; None if the engine has no tokenizer."""
        return self.hypotheses[0].text

    @property
    def tokens(self) -> tuple[int, ...]:
        """The tokens of the best hypothesis."""
        return self.hypotheses[0].tokens

    @property
    def score(self) -> float:
        """The log probability of the best hypothesis."""
        return self.hypotheses[0].score


class Ctc(ResultKind):
    """See `Transcript`."""

    name = "ctc"

    def expected(self, result: Result, examples: int, positions: int | None) -> tuple[Expected, ...]:
        """See `ResultKind`."""
        beam = result.settings.get("beam_size", 1)
        if not isinstance(beam, int) or isinstance(beam, bool) or not 1 <= beam <= MAX_BEAM:
            raise UserError(f"the setting beam_size must be from 1 to {MAX_BEAM:,}", hint=COPY)
        rows = (examples, beam)
        any_length = up_to(LONGEST)
        tokens = Expected(np.int64, (*rows, any_length), result.width)
        return tokens, Expected(np.int64, rows, LONGEST + 1), Expected(np.float32, rows)

    def described(self, result: Result) -> tuple[str, ...]:
        """See `ResultKind`."""
        return "[batch, n_best, length] int64", "[batch, n_best] int64", "[batch, n_best] float32"

    def value(self, result: Result, arrays: Arrays) -> Transcript:
        """See `ResultKind`."""
        found = [
            Labelling(tuple(int(token) for token in tokens[:length]), float(score))
            for tokens, length, score in zip(*arrays, strict=True)
            if score > IMPOSSIBLE
        ]
        return Transcript(tuple(found)) if found else self.nothing(result)

    def spelled(self, value: Transcript, decode: Callable[[Sequence[int]], str]) -> Transcript:
        """See `ResultKind`; texts have no spaces around them."""
        return Transcript(tuple(replace(one, text=decode(one.tokens).strip(" ")) for one in value.hypotheses))

    def nothing(self, result: Result) -> Transcript:
        """See `ResultKind`."""
        return Transcript((Labelling((), 0.0),))

    def line(self, value: Transcript) -> str:
        """See `ResultKind`: the text, or without a tokenizer the tokens."""
        return " ".join(map(str, value.tokens) if value.text is None else value.text.split())

    def fields(self, result: Result, value: Transcript) -> dict[str, object]:
        """See `ResultKind`."""
        return {
            "hypotheses": [
                {
                    **({} if one.text is None else {"text": one.text}),
                    "tokens": list(one.tokens),
                    "score": round(one.score, 6),
                }
                for one in value.hypotheses
            ]
        }

    def count(self, value: Transcript) -> int:
        """See `ResultKind`."""
        return len(value.tokens)


MAX_BEAM = 1024
"""The maximum number of hypotheses."""

LONGEST = 1 << 20
"""The maximum length of a text that an engine may return."""

register(Ctc())
