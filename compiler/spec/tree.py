"""YAML as a tree in which every key and value knows its place. Reads plain data only, within fixed limits."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import yaml

from xformc.compiler.spec.problems import Source, Span, SpecError

MAX_BYTES = 256 * 1024
MAX_NODES = 100_000
MAX_DEPTH = 64

Scalar = None | bool | int | float | str
Plain = Scalar | list["Plain"] | dict[str, "Plain"]

_WORDS: tuple[tuple[str, re.Pattern[str], Callable[[str], Scalar]], ...] = (
    ("null", re.compile(r"(~|null|)\Z"), lambda word: None),
    ("bool", re.compile(r"(true|false)\Z"), lambda word: word == "true"),
    ("int", re.compile(r"[-+]?[0-9]{1,40}\Z"), int),
    ("float", re.compile(r"[-+]?(\.[0-9]{1,40}|[0-9]{1,40}(\.[0-9]{0,40})?)([eE][-+]?[0-9]{1,4})?\Z"), float),
)
"""Unquoted words that are not text: tag, pattern, meaning. `no`, `.nan` and very long numbers are text."""


@dataclass(frozen=True)
class Entry:
    """A key's place and its value."""

    key: Span
    tree: "Tree"


@dataclass(frozen=True)
class Tree:
    """A value and its place. `weight` counts the values in it with aliases expanded, `height` its levels."""

    value: Scalar | tuple["Tree", ...] | dict[str, Entry]
    span: Span
    weight: int = field(default=1, compare=False)
    height: int = field(default=1, compare=False)

    @property
    def entries(self) -> dict[str, Entry]:
        """The entries of a mapping; empty for other values."""
        return self.value if isinstance(self.value, dict) else {}

    @property
    def items(self) -> tuple["Tree", ...]:
        """The items of a list; empty for other values."""
        return self.value if isinstance(self.value, tuple) else ()

    @property
    def word(self) -> str:
        """The text of a string; empty for other values."""
        return self.value if isinstance(self.value, str) else ""

    def get(self, *keys: str) -> "Tree | None":
        """The value under the keys, or None."""
        tree: Tree | None = self
        for key in keys:
            entry = tree.entries.get(key)
            if entry is None:
                return None
            tree = entry.tree
        return tree

    def words(self) -> Iterator[str]:
        """Every key and every text in it."""
        if isinstance(self.value, str):
            yield self.value
        for item in self.items:
            yield from item.words()
        for key, entry in self.entries.items():
            yield key
            yield from entry.tree.words()

    def plain(self) -> Plain:
        """The value without places."""
        if isinstance(self.value, dict):
            return {key: entry.tree.plain() for key, entry in self.value.items()}
        if isinstance(self.value, tuple):
            return [item.plain() for item in self.value]
        return self.value

    def described(self) -> str:
        """The value in words, for an error message."""
        if isinstance(self.value, dict):
            return "a mapping"
        if isinstance(self.value, tuple):
            return "a list"
        if isinstance(self.value, str):
            return f"'{self.value[:40]}'"
        return "nothing" if self.value is None else str(self.plain()).lower()[:40]


@lru_cache(maxsize=32)
def parse_yaml(source: Source) -> Tree:
    """The tree of a source; the last sources are kept. Raises: SpecError if it is not YAML, or exceeds a limit."""
    try:
        return _document(source)
    except yaml.reader.ReaderError as error:
        before = source.text[: error.position]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        raise SpecError.at(Span(source, line, column, column + 1), "a character that YAML does not allow") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        assert mark is not None
        span = Span(source, mark.line + 1, mark.column + 1, mark.column + 2)
        hint = "indent with spaces" if "\\t" in str(error.problem) else None
        raise SpecError.at(span, f"not YAML: {error.problem or error.context}", hint) from None


def _document(source: Source) -> Tree:
    """The tree, by LibYAML where it reads as PyYAML's own parser does: in a tenth of the time, with other errors."""
    if _FAST_LOADER is not None and _SIMPLE_TEXT.fullmatch(source.text):
        with suppress(yaml.YAMLError):
            return _Reader(source, _FAST_LOADER).document()
    return _Reader(source, yaml.SafeLoader).document()


_FAST_LOADER: Any = getattr(yaml, "CSafeLoader", None)
_SIMPLE_TEXT = re.compile(r'[\n "->@-~]*')
"""What both parsers read alike: no tabs, tags, question marks, byte order marks or other line breaks."""


class _Reader:
    """Builds the tree from the events of the YAML parser, within the limits."""

    def __init__(self, source: Source, loader: Any) -> None:
        self.source = source
        self.events: Iterator[yaml.Event] = iter(yaml.parse(source.text, Loader=loader))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
        self.anchors: dict[str, Tree | None] = {}
        self.count = 0

    def document(self) -> Tree:
        next(self.events)
        if isinstance(next(self.events), yaml.StreamEndEvent):
            raise SpecError.at(Span(self.source, 1, 1, 2), "the file is empty")
        tree = self.node(next(self.events), 1)
        next(self.events)
        after = next(self.events)
        if not isinstance(after, yaml.StreamEndEvent):
            raise self.problem(after, "a spec must be a single YAML document")
        return tree

    def node(self, event: yaml.Event, depth: int) -> Tree:
        if isinstance(event, yaml.AliasEvent):
            tree = self.alias(event)
            self.bound(depth + tree.height - 1, event)
            return self.counted(tree, event)
        assert isinstance(event, yaml.NodeEvent)
        tag: str | None = getattr(event, "tag", None)
        if tag is not None:
            raise self.problem(event, f"the tag '{tag}' is not allowed", "a spec must be plain data")
        self.bound(depth, event)
        anchor: str | None = event.anchor
        if anchor is not None:
            self.anchors[anchor] = None
        tree = self.fresh(event, depth)
        if anchor is not None:
            self.anchors[anchor] = tree
        return tree

    def fresh(self, event: yaml.Event, depth: int) -> Tree:
        span = self.span(event)
        if isinstance(event, yaml.ScalarEvent):
            value = _resolve(event.value) if event.implicit[0] else event.value
            return self.counted(Tree(value, span), event)
        if isinstance(event, yaml.SequenceStartEvent):
            items = tuple(self.node(item, depth + 1) for item in self.until(yaml.SequenceEndEvent))
            return self.counted(_holder(items, items, span), event, 1)
        entries = self.entries(depth)
        if entries and not getattr(event, "flow_style", True):
            span = next(iter(entries.values())).key
        return self.counted(_holder(entries, [entry.tree for entry in entries.values()], span), event, 1)

    def entries(self, depth: int) -> dict[str, Entry]:
        entries: dict[str, Entry] = {}
        for event in self.until(yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                raise self.problem(event, "a key must be a word")
            key = event.value
            if key == "<<" and event.implicit[0]:
                raise self.problem(event, "merge keys are not supported", "use 'extends', or write the keys out")
            if key in entries:
                first = entries[key].key.line
                raise self.problem(event, f"the key '{key[:40]}' is given twice", f"the first is on line {first}")
            entries[key] = Entry(self.span(event), self.node(next(self.events), depth + 1))
        return entries

    def until(self, end: type[yaml.Event]) -> Iterator[yaml.Event]:
        while not isinstance(event := next(self.events), end):
            yield event

    def bound(self, depth: int, event: yaml.Event) -> None:
        if depth > MAX_DEPTH:
            raise self.problem(event, f"nested deeper than {MAX_DEPTH} levels")

    def alias(self, event: yaml.AliasEvent) -> Tree:
        if event.anchor not in self.anchors:
            raise self.problem(event, f"no anchor '&{event.anchor}' before this alias")
        tree = self.anchors[event.anchor]
        if tree is None:
            raise self.problem(event, f"'&{event.anchor}' contains itself")
        return tree

    def counted(self, tree: Tree, event: yaml.Event, new: int | None = None) -> Tree:
        self.count += tree.weight if new is None else new
        if self.count > MAX_NODES:
            raise self.problem(event, f"the file has more than {MAX_NODES:,} values once its aliases are expanded")
        return tree

    def span(self, event: yaml.Event) -> Span:
        start, end = event.start_mark, event.end_mark
        line, column = int(start.line) + 1, int(start.column) + 1
        last = int(end.column) if end.line == start.line else len(self.source.line(line))
        return Span(self.source, line, column, max(last, column) + 1)

    def problem(self, event: yaml.Event, message: str, hint: str | None = None) -> SpecError:
        return SpecError.at(self.span(event), message, hint)


def _holder(value: tuple[Tree, ...] | dict[str, Entry], inner: Sequence[Tree], span: Span) -> Tree:
    weight = 1 + sum(tree.weight for tree in inner)
    return Tree(value, span, weight, 1 + max((tree.height for tree in inner), default=0))


def _resolve(text: str) -> Scalar:
    return next((meaning(text) for _, pattern, meaning in _WORDS if pattern.match(text)), text)


_FAST_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Dumper(_FAST_DUMPER):
    """Writes what `parse_yaml` reads back: quotes only strings that would not be read as text."""

    yaml_implicit_resolvers = {}  # noqa: RUF012 (this is how PyYAML is told)

    def ignore_aliases(self, data: object) -> bool:
        """Write everything out."""
        return True


for _tag, _pattern, _ in _WORDS:
    _Dumper.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", _pattern, None)  # pyright: ignore[reportUnknownMemberType]


def write_yaml(data: Plain) -> str:
    """The YAML text of plain data, keys in order."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100, default_flow_style=None)
