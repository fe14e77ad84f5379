"""Reads the inputs of a spec and looks up their sizes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from xformc.compiler.graph.axes import Axis
from xformc.compiler.spec.expressions import Number
from xformc.compiler.spec.model import MAX_AXIS, Input, InputKind
from xformc.compiler.spec.problems import Problem
from xformc.compiler.spec.sizes import unknown_size
from xformc.compiler.spec.special_tokens import beyond, read_special_tokens
from xformc.compiler.spec.tree import Entry, Tree
from xformc.errors import suggest
from xformc.format.tokens import SpecialTokens

SMALLEST_VOCABULARY = 5
TAKEN = ("labels", "position", "probabilities")
"""Names of inputs and outputs that the compiler adds."""


def read_inputs(tree: Tree, sizes: Mapping[str, Number], problems: list[Problem]) -> dict[str, Input]:
    """The inputs that the spec declares; mistakes are appended to `problems`."""
    section, declared = tree.get("inputs"), tree.get("sizes")
    entries = {} if section is None else section.entries
    special, found = read_special_tokens(tree, problems), len(problems)
    reader = _Reader({} if declared is None else declared.entries, sizes, entries, special, problems)
    inputs: dict[str, Input] = {}
    for name, entry in entries.items():
        written = [(key, inner.tree) for key, inner in entry.tree.entries.items() if key in _KINDS]
        if len(written) == 1:
            kind, value = written[0]
            inputs[name] = _KINDS[kind](reader, entry, value)
    if len(problems) == found:
        for name, item in inputs.items():
            if item.kind == "tokens":
                problems.extend(beyond(tree, item.special, item.vocabulary, name))
    problems.extend(_name_problems(inputs, {**entries, **reader.declared}))
    return inputs


@dataclass(frozen=True)
class _Reader:
    """Reads one kind of input. `declared` holds the sizes as written."""

    declared: Mapping[str, Entry]
    sizes: Mapping[str, Number]
    entries: Mapping[str, Entry]
    special: SpecialTokens
    problems: list[Problem]

    def tokens(self, entry: Entry, value: Tree) -> Input:
        message = f"the size of a vocabulary must be a whole number, at least {SMALLEST_VOCABULARY}"
        hint = "four tokens are reserved: padding, unknown, begin and end"
        axes = (self.axis(value, SMALLEST_VOCABULARY, message, hint),)
        ends = entry.tree.get("ends")
        special = read_special_tokens(entry.tree, self.problems, self.special)
        special = special if ends is None else replace(special, ends=ends.value is not False)
        return Input("tokens", axes, self.along(entry), entry.key, special=special)

    def vectors(self, entry: Entry, value: Tree) -> Input:
        return Input("vectors", (self.axis(value),), self.along(entry), entry.key, self.rate(entry))

    def values(self, entry: Entry, value: Tree) -> Input:
        items = value.items if isinstance(value.value, tuple) else (value,)
        axes = tuple(self.axis(item) for item in items)
        if len({axis.name for axis in axes}) < len(axes) or not axes:
            self.problems.append(Problem(value.span, "must be one axis or several different ones"))
        return Input("values", axes, None, entry.key)

    def edges(self, entry: Entry, value: Tree) -> Input:
        self.names_sequence("edges", value)
        return Input("edges", (), value.word, entry.key)

    def along(self, entry: Entry) -> str | None:
        """The input along which this one lies, or None."""
        value = entry.tree.get("along")
        if value is None:
            return None
        self.names_sequence("along", value)
        return value.word

    def rate(self, entry: Entry) -> int | None:
        """The samples in a second of a sound, or None."""
        value = entry.tree.get("rate")
        return None if value is None else self.axis(value).size

    def names_sequence(self, key: str, value: Tree) -> None:
        """Check that a value names an input with positions of its own."""
        sequences = [
            name
            for name, item in self.entries.items()
            if (item.tree.get("tokens") or item.tree.get("vectors")) and not item.tree.get("along")
        ]
        if value.word not in sequences:
            message = f"{key} must name an input of tokens or vectors, found {value.described()}"
            hint = suggest(value.word, sequences) or (f"choose {', '.join(sequences)}" if sequences else None)
            self.problems.append(Problem(value.span, message, hint))

    def axis(self, tree: Tree, least: int = 1, message: str = "", hint: str | None = None) -> Axis:
        """The axis of the size named here; the size must be at least `least`."""
        name, size = tree.word, self.sizes.get(tree.word, 0)
        if not name:
            self.problems.append(Problem(tree.span, f"must be the name of a size, found {tree.described()}"))
        elif name not in self.declared:
            self.problems.append(Problem(tree.span, *unknown_size(name, self.sizes)))
        elif name in self.sizes and (size != int(size) or not least <= size <= MAX_AXIS):
            message = message or f"the axis {name} needs a positive whole number"
            self.problems.append(Problem(self.declared[name].tree.span, f"{message}, found {size:g}", hint, tree.span))
        return Axis(name, int(size))


_KINDS: dict[str, Callable[[_Reader, Entry, Tree], Input]] = {
    "tokens": _Reader.tokens,
    "vectors": _Reader.vectors,
    "values": _Reader.values,
    "edges": _Reader.edges,
}


def _name_problems(inputs: Mapping[str, Input], named: Mapping[str, Entry]) -> list[Problem]:
    """Report names that are reserved for the compiler."""
    problems = [
        Problem(inputs[name].span, f"the name '{name}' is reserved", "choose another name")
        for name in TAKEN
        if name in inputs
    ]
    for name, item in inputs.items():
        for end in _ENDINGS[item.kind] if item.is_sequence else ():
            if name + end in named:
                message = f"the name '{name}{end}' is reserved for the input '{name}' of {item.kind}"
                problems.append(Problem(named[name + end].key, message, "choose another name"))
    return problems


_ENDINGS: dict[InputKind, tuple[str, ...]] = {
    "tokens": ("_keys",),
    "vectors": ("_keys", "_mask", "_lengths"),
    "values": (),
    "edges": (),
}
"""Endings that make the names of an input's companions, such as its mask."""
