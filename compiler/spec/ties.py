"""The section `tie`: which parameters share one weight, by path, by the beginning of their paths, or by pattern."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property

from xformc.compiler.spec.problems import Problem, Span
from xformc.compiler.spec.tree import Tree
from xformc.errors import suggest

MAX_STARRED = 1000
_STAR = re.compile(r"\*(?:\+(?P<shift>[1-9][0-9]{0,3}))?")

Match = tuple[tuple[str, ...], tuple[str, ...]]
"""What the stars of a pattern stand for, and the rest of the path below the pattern."""


@dataclass(frozen=True)
class Pattern:
    """The beginning of paths. `*` stands for any one name, `*+1` for the number after the one that `*` stands for."""

    text: str
    span: Span = field(repr=False, compare=False)

    @cached_property
    def parts(self) -> tuple[str, ...]:
        """The names of the path, and the stars between them."""
        return tuple(self.text.split("/"))

    @cached_property
    def stars(self) -> int:
        """The number of stars."""
        return sum(bool(_STAR.fullmatch(part)) for part in self.parts)

    @cached_property
    def shifted(self) -> bool:
        """Whether a star stands for a number before or after that of another pattern."""
        return any(_shift(part) for part in self.parts)

    def match(self, path: str) -> Match | None:
        """How a path fits the pattern, or None."""
        names = path.split("/")
        if len(names) < len(self.parts):
            return None
        found: list[str] = []
        for part, name in zip(self.parts, names, strict=False):
            if not _STAR.fullmatch(part):
                if part != name:
                    return None
            elif _shift(part) == 0:
                found.append(name)
            elif name.isdecimal() and int(name) >= _shift(part):
                found.append(str(int(name) - _shift(part)))
            else:
                return None
        return tuple(found), tuple(names[len(self.parts) :])

    def path(self, match: Match) -> str:
        """The path that fits in this way."""
        stars = iter(match[0])
        return "/".join((*(_filled(part, stars) for part in self.parts), *match[1]))


@dataclass(frozen=True)
class Group:
    """Patterns whose parameters share weights: those that fit in the same way, or all that fit the only pattern."""

    patterns: tuple[Pattern, ...]

    def name(self, match: Match) -> str | None:
        """The path that names the weight; None if it is the first one that fits the only pattern."""
        return None if len(self.patterns) == 1 else self.patterns[0].path(match)


Ties = tuple[Group, ...]


def read_ties(tree: Tree | None, problems: list[Problem]) -> Ties:
    """The groups of the section; mistakes are appended to `problems`."""
    groups = [] if tree is None else [group.items for group in tree.items]
    ties = tuple(Group(tuple(Pattern(str(item.value), item.span) for item in group)) for group in groups if group)
    seen: set[str] = set()
    for pattern in (pattern for group in ties for pattern in group.patterns):
        if pattern.text in seen:
            problems.append(Problem(pattern.span, f"'{pattern.text}' is tied twice", "merge the two groups"))
        seen.add(pattern.text)
    for group in ties:
        problems.extend(_group_problems(group))
    starred = [pattern for group in ties for pattern in group.patterns if pattern.stars]
    if len(starred) > MAX_STARRED:
        problems.append(Problem(starred[MAX_STARRED].span, f"more than {MAX_STARRED:,} patterns with *"))
    return ties


def _group_problems(group: Group) -> Iterable[Problem]:
    first, *others = group.patterns
    if not others and (first.stars == 0 or first.shifted):
        yield Problem(first.span, f"'{first.text}' is tied to nothing", "write another path, or * for its layers")
    for other in others:
        if first.stars and other.stars != first.stars:
            message = f"'{other.text}' needs as many * as '{first.text}'"
            yield Problem(other.span, message, "only the first path of a group may be one without *")
    if first.shifted:
        yield Problem(first.span, "the first path of a group has * alone", "write the number at the other paths")


@dataclass
class TiedPaths:
    """Finds the weight of each parameter while a graph is written. `members`: the paths of each tied weight."""

    ties: Ties
    members: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    _named: dict[tuple[int, tuple[str, ...]], str] = field(default_factory=dict[tuple[int, tuple[str, ...]], str])
    _fitting: dict[str, tuple[Pattern, str]] = field(default_factory=dict[str, tuple[Pattern, str]])

    def weight(self, path: str) -> tuple[str, Span | None, Span | None]:
        """The name of the weight of this path, where it is tied, and where it is tied a second time."""
        found = [(index, pattern, match) for index, pattern in self._candidates(path) if (match := pattern.match(path))]
        if not found:
            return path, None, None
        (index, pattern, match), *others = found
        group = self.ties[index]
        first = (match[0][: group.patterns[0].stars], match[1])
        name = group.name(first) or self._named.setdefault((index, match[1]), path)
        members = self.members.setdefault(name, [])
        if path not in self._fitting:
            members.append(path)
            self._fitting[path] = (pattern, name)
        return name, pattern.span, others[0][1].span if others else None

    def _candidates(self, path: str) -> Iterator[tuple[int, Pattern]]:
        """The patterns that a path may fit: those with stars, and those that it begins with."""
        yield from self._starred
        for end in (*(match.start() for match in re.finditer("/", path)), len(path)):
            if path[:end] in self._plain:
                yield self._plain[path[:end]]

    @cached_property
    def _starred(self) -> list[tuple[int, Pattern]]:
        return [(index, item) for index, group in enumerate(self.ties) for item in group.patterns if item.stars]

    @cached_property
    def _plain(self) -> dict[str, tuple[int, Pattern]]:
        groups = enumerate(self.ties)
        return {item.text: (index, item) for index, group in groups for item in group.patterns if not item.stars}

    def problems(self, declared: Mapping[str, object], left_out: Set[str] = frozenset()) -> list[Problem]:
        """Report patterns that fit no parameter, and parameters without a counterpart. Stages `left_out` have none."""
        problems: list[Problem] = []
        fits: dict[Pattern, dict[str, str]] = {item: {} for group in self.ties for item in group.patterns}
        for path, (pattern, name) in self._fitting.items():
            fits[pattern][name] = path
        for group in self.ties:
            fitting = {pattern: fits[pattern] for pattern in group.patterns}
            for pattern, found in fitting.items():
                if not found:
                    message = f"no parameter '{pattern.text[:100]}'"
                    problems.append(Problem(pattern.span, message, _hint(pattern, declared, left_out)))
            if all(fitting.values()):
                problems.extend(_unmatched(group, fitting))
        return problems


def _unmatched(group: Group, fitting: Mapping[Pattern, Mapping[str, str]]) -> Iterable[Problem]:
    """The first parameter of each pattern that has no counterpart."""
    first, *others = group.patterns
    hint = "tie paths below which there are the same parameters"
    for pattern in others:
        extra = [(path, name) for name, path in fitting[pattern].items() if name not in fitting[first]]
        missing = [(path, name) for name, path in fitting[first].items() if name not in fitting[pattern]]
        if extra:
            path, name = extra[0]
            yield Problem(first.span, f"'{path}' has no counterpart '{name}' to be tied to", hint)
        if missing and not pattern.shifted:
            path, name = missing[0]
            match = first.match(name)
            assert match is not None
            below = "/".join((pattern.text, *match[1]))
            other = pattern.path(match) if pattern.stars == first.stars else below
            yield Problem(pattern.span, f"'{path}' has no counterpart '{other}' to be tied to", hint)


def _hint(pattern: Pattern, declared: Iterable[str], left_out: Set[str]) -> str | None:
    stage = pattern.parts[0]
    if stage in left_out:
        return f"nothing uses the stage {stage}, so it is left out; if it makes the result, name it under `results`"
    own = [path for path in declared if path.split("/")[0] == stage]
    return suggest(pattern.text, _beginnings(own or declared, len(pattern.parts)))


def _beginnings(paths: Iterable[str], length: int) -> Sequence[str]:
    """The paths, and the first `length` names of each."""
    return [*paths, *dict.fromkeys("/".join(path.split("/")[:length]) for path in paths)]


def _shift(part: str) -> int:
    match = _STAR.fullmatch(part)
    return int(match["shift"] or 0) if match else 0


def _filled(part: str, stars: Iterable[str]) -> str:
    if not _STAR.fullmatch(part):
        return part
    name = next(iter(stars))
    return str(int(name) + _shift(part)) if _shift(part) else name
