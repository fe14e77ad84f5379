"""The results of an engine, as engine.json records them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

Setting = bool | int | float | str


@dataclass(frozen=True)
class Result:
    """One result of an engine.

    kind: the name of its kind, such as labels (docs/language.md).
    axes: the sizes of its axes after batch and positions, by name; empty for text.
    positions: the input whose positions each have a result, or None.
    labels: the label names by id; None for kinds without labels.
    settings: the settings of its kind.
    outputs: the outputs of the model that make it, in the order of its kind.
    tokenizer: the SentencePiece model of a result that is text but not an input.
    of: the written text that it depends on, so that it is computed after the text; None: it does not.
    """

    kind: str
    axes: Mapping[str, int] = field(default_factory=dict[str, int])
    positions: str | None = None
    labels: tuple[str, ...] | None = None
    settings: Mapping[str, Setting] = field(default_factory=dict[str, Setting])
    outputs: tuple[str, ...] = ()
    tokenizer: str | None = None
    of: str | None = None

    @property
    def width(self) -> int:
        """The size of the last axis; 1 if there is none."""
        return list(self.axes.values())[-1] if self.axes else 1


def beside_text(results: Mapping[str, Result]) -> dict[str, Result]:
    """The results that are computed with the written text: all but it, and but those that depend on it."""
    return {name: result for name, result in results.items() if result.kind != "text" and result.of is None}


def of_text(results: Mapping[str, Result]) -> dict[str, Result]:
    """The results that depend on the written text."""
    return {name: result for name, result in results.items() if result.of is not None}
