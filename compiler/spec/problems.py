"""Mistakes in a spec: the place, the message and the hint of each, reported together."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from xformc.errors import UserError

_SHOWN_PROBLEMS = 20
_SHOWN_COLUMNS = 100


@dataclass(frozen=True)
class Source:
    """A file that was read: its name in messages, and its text. `shipped`: it holds xformc's own blocks.

    `library`: it holds blocks that a spec imports. `setting`: it is a setting, not a file (see `settings`).
    """

    name: str
    text: str = field(repr=False)
    shipped: bool = False
    setting: bool = False
    library: bool = False

    @cached_property
    def lines(self) -> list[str]:
        """The lines of the text without line ends, split as YAML does."""
        return re.split("\r\n|[\n\r\x85\u2028\u2029]", self.text)

    def line(self, number: int) -> str:
        """The line with this number, from 1; empty after the last."""
        return self.lines[number - 1] if number <= len(self.lines) else ""


@dataclass(frozen=True)
class Span:
    """Part of one line of a source. Line and column count from 1; `end` is the column after the part."""

    source: Source
    line: int
    column: int
    end: int

    @property
    def place(self) -> str:
        """`file:line:column`."""
        return f"{self.source.name}:{self.line}:{self.column}"

    @property
    def text(self) -> str:
        """The text of the file at this span."""
        return self.source.line(self.line)[self.column - 1 : self.end - 1]

    def part(self, start: int, end: int) -> "Span":
        """The characters `start` to `end` of the span."""
        return Span(self.source, self.line, self.column + start, self.column + end)

    def excerpt(self) -> str:
        """The line of the file with carets under the span."""
        line = self.source.line(self.line)
        skipped = max(0, self.column - _SHOWN_COLUMNS // 2) if len(line) > _SHOWN_COLUMNS else 0
        shown = "".join(c if c.isprintable() else " " for c in line[skipped : skipped + _SHOWN_COLUMNS])
        column = self.column - skipped
        carets = "^" * max(1, min(self.end - self.column, len(shown) - column + 1))
        margin = " " * len(str(self.line))
        return f"  {self.line} | {shown}\n  {margin} | {' ' * (column - 1)}{carets}"


@dataclass(frozen=True)
class Problem:
    """One mistake. `user`: for a mistake in a shipped or imported block, the step of the spec that led to it.

    `caller`: if that step is in a block of the user's own or an imported one, the step that led to it.
    """

    span: Span
    message: str
    hint: str | None = None
    user: Span | None = None
    caller: Span | None = None

    def __str__(self) -> str:
        lines = [f"{self.span.place}: {self.message}", self.span.excerpt()]
        users = (user for user in (self.user, self.caller) if user is not None and user != self.span)
        lines += [f"  used at {user.place}" for user in users]
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)


class SpecError(UserError):
    """A spec has mistakes: `problems`, at least one, in the order of the file."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        first = self.problems[0]
        super().__init__(first.message, hint=first.hint, place=first.span.place)

    @classmethod
    def at(
        cls, span: Span, message: str, hint: str | None = None, user: Span | None = None, caller: Span | None = None
    ) -> "SpecError":
        """The error for one mistake."""
        return cls([Problem(span, message, hint, user, caller)])

    def __str__(self) -> str:
        shown = [str(problem) for problem in self.problems[:_SHOWN_PROBLEMS]]
        more = len(self.problems) - len(shown)
        return "\n\nerror: ".join(shown) + (f"\n\n... and {more} more errors" if more else "")


def raise_problems(problems: Iterable[Problem]) -> None:
    """Raise SpecError if there are any, ordered by place and without duplicates."""
    once = {(problem.span, problem.message): problem for problem in reversed(list(problems))}
    if once:
        raise SpecError(sorted(once.values(), key=_order))


def _order(problem: Problem) -> tuple[str, int, int]:
    return problem.span.source.name, problem.span.line, problem.span.column


def listed(words: Iterable[str]) -> str:
    """`'a', 'b' or 'c'`."""
    quoted = [f"'{word}'" for word in words]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"
