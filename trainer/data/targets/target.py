"""The interface of a kind of target, and the registry of kinds."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from xformc.errors import UserError
from xformc.format.results import Setting
from xformc.format.tokens import IGNORE
from xformc.trainer.data.columns import Column, Counts, Sequences, Values, inside

Names = tuple[str, ...]


@dataclass(frozen=True)
class Target:
    """What a result is compared with in training.

    input: the name of the training graph's input. kind: the kind of the result. sizes: those of the result's axes after
    batch and positions. positions: the input whose positions each have a result, or None.
    """

    name: str
    input: str
    kind: str
    sizes: tuple[int, ...]
    positions: str | None = None
    settings: Mapping[str, Setting] = field(default_factory=dict[str, Setting])


@dataclass(frozen=True)
class Cells:
    """A column of a split: texts, or the rows of an array. `lines`, of texts: the line number of each, for errors."""

    content: Sequence[str] | NDArray[Any]
    place: str
    lines: Sequence[int] = ()

    @property
    def is_text(self) -> bool:
        """Whether each row is one text."""
        content = self.content
        return not isinstance(content, np.ndarray) or (content.dtype.kind == "U" and content.ndim == 1)

    @property
    def texts(self) -> list[str] | None:
        """The texts, also of an array of texts; None for numbers, and for texts of positions."""
        return [str(text) for text in self.content] if self.is_text else None

    @property
    def array(self) -> NDArray[Any]:
        """The array; only if it is one."""
        assert isinstance(self.content, np.ndarray)
        return self.content

    def refuse(self, row: int, message: str, hint: str | None = None) -> UserError:
        """The error for a row, counted from 0; the caller raises it."""
        place = f"{self.place}:{self.lines[row]}" if self.lines else f"{self.place}: row {row}"
        return UserError(message, place=place, hint=hint)


class TargetKind(ABC):
    """A kind of target. A new kind is a subclass that `register` adds; `name` is the word of the kind of result.

    paired: each example is a pair of inputs that belong together, in the columns INPUT and INPUT_similar; there is no
    column of the target itself. ignore: the whole number that does not count as a target.
    """

    name: ClassVar[str]
    paired: ClassVar[bool] = False
    ignore: ClassVar[int] = IGNORE

    def labels(self, target: Target, cells: Cells) -> Names | None:
        """The names of labels in the training data by id; None for kinds without labels."""
        return None

    @abstractmethod
    def column(self, target: Target, cells: Cells, labels: Names, lengths: Counts) -> Column:
        """The column of the target. `lengths` are the positions of each row, of a target with positions.

        Raises: UserError for the first row that does not fit.
        """


TARGETS: dict[str, TargetKind] = {}
"""Every kind by its name; filled at import."""


def register(kind: TargetKind) -> None:
    """Add a kind."""
    assert kind.name not in TARGETS, f"there is already a kind of target called {kind.name}"
    TARGETS[kind.name] = kind


def numbers_column(target: Target, cells: Cells, lengths: Counts) -> Column:
    """A column of float32; NaN, and an empty text, does not count."""
    array = _parsed(target, cells, lengths) if cells.texts is not None else cells.array
    wanted = f"'{target.name}' must be numbers [{', '.join(map(str, _shape(target)))}]"
    fits = array.dtype.kind in "fiub" and array.ndim == len(_shape(target))
    if not fits or (target.sizes and array.shape[-len(target.sizes) :] != target.sizes):
        raise UserError(f"{wanted}, found {array.dtype} {list(array.shape)}", place=cells.place)
    if np.isinf(array).any():
        raise UserError(f"'{target.name}' must be finite, or NaN where there is none", place=cells.place)
    if target.positions is None:
        return Values(array.astype(np.float32))
    if len(array) != len(lengths) or array.shape[1] < int(lengths.max(initial=0)):
        raise UserError(f"'{target.name}' must cover all positions of '{target.positions}'", place=cells.place)
    ends = np.cumsum(lengths)
    return Sequences(array[inside(lengths, array.shape[1])].astype(np.float32), ends - lengths, ends, fill=float("nan"))


def _shape(target: Target) -> tuple[int | str, ...]:
    return ("n", *(() if target.positions is None else ("longest",)), *target.sizes)


def _parsed(target: Target, cells: Cells, lengths: Counts) -> NDArray[np.float32]:
    """Numbers of texts: positions are separated by spaces, the numbers of one by commas."""
    width, count = target.sizes[-1] if target.sizes else 1, int(lengths.max(initial=0))
    rows = np.full((len(cells.content), count if target.positions else 1, width), np.nan, np.float32)
    for index, text in enumerate(cells.texts or ()):
        parts = text.split() if target.positions else [text]
        wanted = int(lengths[index]) if target.positions else 1
        if len(parts) != wanted:
            raise cells.refuse(index, f"{wanted} words and {len(parts)} numbers of '{target.name}'")
        for position, part in enumerate(parts):
            try:
                numbers = [float(one) for one in part.split(",")]
            except ValueError:
                raise cells.refuse(index, f"'{target.name}' must be a number, found '{part[:40]}'") from None
            if len(numbers) != width:
                found = f"{len(numbers)} number{'s' if len(numbers) > 1 else ''}"
                raise cells.refuse(index, f"'{target.name}' needs {width} numbers, separated by commas, found {found}")
            rows[index, position] = numbers
    shaped = rows if target.positions else rows[:, 0]
    return shaped if target.sizes else shaped[..., 0]
