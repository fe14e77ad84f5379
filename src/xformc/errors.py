"""The error for mistakes in a user's input: what is wrong, where, and how to fix it."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any


class UserError(Exception):
    """A mistake in the input. The command line prints it without a traceback and exits with code 2."""

    def __init__(self, message: str, *, hint: str | None = None, place: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.place = place

    def __str__(self) -> str:
        where = f"{self.place}: " if self.place else ""
        advice = f"\nhint: {self.hint}" if self.hint else ""
        return f"{where}{self.message}{advice}"

    def __reduce__(self) -> tuple[Any, ...]:
        """Be made again without `__init__`, whatever it takes: an error that cannot be ends a pool of processes."""
        return _again, (type(self), *self.args), self.__dict__


def _again(kind: type[UserError], *arguments: object) -> UserError:
    return kind.__new__(kind, *arguments)


def refuse_together(given: Mapping[str, object], hint: str | None = None) -> None:
    """Raises: UserError if several of these arguments, by name, are given; None and False are not."""
    there = [name for name, value in given.items() if value is not None and value is not False]
    if len(there) > 1:
        which = "one" if len(there) == 2 else "all but one"
        raise UserError(f"{' and '.join(there)} exclude each other", hint=hint or f"leave {which} of them out")


def suggest(word: str, known: Iterable[str]) -> str | None:
    """`did you mean 'x'?` if one of the known words is close to this one."""
    close = get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"did you mean '{close[0]}'?" if close else None
