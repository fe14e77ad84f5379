"""The interface of a kind of result at run time, and the registry of kinds."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from xformc.errors import UserError
from xformc.format.manifest import COPY
from xformc.format.results import Result
from xformc.runtime.results import Expected

Arrays = Sequence[NDArray[Any]]


class ResultKind(ABC):
    """A kind of result; a new one is a subclass that `register` adds. `name` is its word in engine.json."""

    name: ClassVar[str]

    def expected(self, result: Result, examples: int, positions: int | None) -> tuple[Expected, ...]:
        """What the outputs of a batch must be; `positions` is its length if each position has a result."""
        each = () if positions is None else (positions,)
        return (Expected(np.float32, (examples, *each, *result.axes.values())),)

    def described(self, result: Result) -> tuple[str, ...]:
        """The axes and the dtype of each output, in words."""
        each = () if result.positions is None else ("positions",)
        return (f"[{', '.join(('batch', *each, *result.axes))}] float32",)

    @abstractmethod
    def value(self, result: Result, arrays: Arrays) -> Any:
        """The result of one example from its outputs, without padding."""

    def spelled(self, value: Any, decode: Callable[[Sequence[int]], str]) -> Any:
        """The value with texts; `decode` returns that of tokens of the result's own tokenizer."""
        return value

    @abstractmethod
    def nothing(self, result: Result) -> Any:
        """The result of an example without positions."""

    @abstractmethod
    def line(self, value: Any) -> str:
        """The result as text, on one line and without tabs; "" for an example without positions."""

    @abstractmethod
    def fields(self, result: Result, value: Any) -> dict[str, object]:
        """The result as JSON; of an example without positions null, or an empty list of what is a list."""

    def count(self, value: Any) -> int:
        """The number of results in a value, for rates."""
        return 1


KINDS: dict[str, ResultKind] = {}
"""Every kind by its name; filled at import."""


def register(kind: ResultKind) -> None:
    """Add a kind."""
    assert kind.name not in KINDS, f"there is already a kind of result called {kind.name}"
    KINDS[kind.name] = kind


def kind_of(result: Result) -> ResultKind:
    """The kind of a result."""
    return KINDS[result.kind]


def fields_of(results: Mapping[str, Result], values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the values of results for JSON, by name."""
    return {name: kind_of(result).fields(result, values[name]) for name, result in results.items()}


def check_kinds(results: Mapping[str, Result], place: str) -> None:
    """Check that this runtime reads all results but written text. Raises: UserError at `place` if not."""
    for name, result in results.items():
        if result.kind == "text":
            continue
        if result.kind not in KINDS:
            known = ", ".join(("text", *KINDS))
            raise UserError(
                f"this engine has a result of kind {result.kind}; this runtime knows {known}",
                place=place,
                hint="upgrade: pip install --upgrade xformc",
            )
        try:
            needed = len(kind_of(result).expected(result, 1, None if result.positions is None else 1))
        except UserError as error:
            raise UserError(error.message, place=place, hint=error.hint) from error
        if len(result.outputs) != needed:
            found = f"the result {name} has {len(result.outputs)} outputs; its kind {result.kind} needs {needed}"
            raise UserError(found, place=place, hint=COPY)


def rounded(result: Result, array: NDArray[Any]) -> object:
    """The numbers of a result as JSON, with 6 digits after the point; None for one of an example without positions."""
    missing = result.positions is None and array.ndim > len(result.axes)
    return None if missing else np.round(array.astype(np.float64), 6).tolist()
