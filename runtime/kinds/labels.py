"""Labels, with their probabilities."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xformc.errors import UserError
from xformc.format.results import Result
from xformc.runtime.kinds.kind import Arrays, ResultKind, register

LIKELY = 0.5
"""The probability from which a label holds, where several may."""
NONE = "-"
"""No label, as in training data: of an example, or of a position."""


@dataclass(frozen=True)
class Prediction:
    """The labels of one example.

    labels: the most likely label of each position, or of the whole example. Of a result with several labels at once:
        the labels of the whole example that are likely, or for each position those, joined by commas.
    probabilities: float32 [positions or 1, labels of the engine], in the order of the engine's labels.
    results: all results by name, of an engine whose spec declares its results; the labels are then those of the first
        result that is labels, and there are none without one.
    """

    labels: tuple[str, ...]
    probabilities: NDArray[np.float32]
    results: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def label(self) -> str:
        """The label of the whole example, or of the first position. Raises: UserError if there is none."""
        if not self.labels:
            raise UserError("the example has no label", hint="`labels` is empty then")
        return self.labels[0]

    @property
    def probability(self) -> float:
        """The probability of `label`. Raises: UserError if there are no positions."""
        if not len(self.probabilities):
            raise UserError("the example has no label", hint="`probabilities` is empty then")
        return float(self.probabilities[0].max())


class Labels(ResultKind):
    """See `Prediction`."""

    name = "labels"

    def value(self, result: Result, arrays: Arrays) -> Prediction:
        """See `ResultKind`."""
        names = _names(result)
        (found,) = arrays
        each = found[None] if result.positions is None else found
        if not result.settings.get("several"):
            return Prediction(tuple(names[int(label)] for label in each.argmax(-1)), each)
        likely = [[names[int(label)] for label in np.flatnonzero(row >= LIKELY)] for row in each]
        return Prediction(tuple(likely[0] if result.positions is None else map(",".join, likely)), each)

    def nothing(self, result: Result) -> Prediction:
        """See `ResultKind`."""
        return Prediction((), np.zeros((0, len(_names(result))), np.float32))

    def line(self, value: Prediction) -> str:
        """See `ResultKind`."""
        if len(value.probabilities) and not value.labels:
            return NONE
        return " ".join(label or NONE for label in value.labels)

    def fields(self, result: Result, value: Prediction) -> dict[str, object]:
        """See `ResultKind`."""
        names = _names(result)
        found = [
            {name: round(float(one), 6) for name, one in zip(names, row, strict=True)} for row in value.probabilities
        ]
        if result.positions is not None:
            return {"labels": list(value.labels), "probabilities": found}
        several = bool(result.settings.get("several"))
        which: dict[str, object] = (
            {"labels": list(value.labels)} if several else {"label": value.label if value.labels else None}
        )
        return {**which, "probabilities": found[0] if found else {}}

    def count(self, value: Any) -> int:
        """See `ResultKind`."""
        return len(value.labels)


def _names(result: Result) -> tuple[str, ...]:
    assert result.labels is not None
    return result.labels


register(Labels())
