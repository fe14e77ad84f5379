"""Names inside a block, and the binding of a step's arguments to values."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from xformc.compiler.graph.axes import Axis
from xformc.compiler.graph.graph import Value
from xformc.compiler.graph.initialization import Initialization
from xformc.compiler.spec.expressions import Number
from xformc.compiler.spec.initial_values import read_initialization
from xformc.compiler.spec.model import MAX_AXIS
from xformc.compiler.spec.problems import Span, SpecError
from xformc.compiler.spec.signature import Kind, is_name
from xformc.compiler.spec.sizes import evaluate, parse_number, unknown_size
from xformc.compiler.spec.syntax import Body
from xformc.compiler.spec.tree import Entry, Tree
from xformc.errors import suggest


@dataclass(frozen=True)
class Quantity:
    """A number passed to a block: the name of an axis made from it, and where the number is written."""

    value: Number
    name: str
    written: Tree


@dataclass(frozen=True)
class Closure:
    """A body passed to a block, with the scope that it was written in."""

    body: Body
    scope: "Scope"


@dataclass(frozen=True)
class Numbers:
    """A list of numbers passed to a block."""

    values: tuple[Number, ...]


Several = tuple[Axis, ...] | tuple[str, ...]
Bound = (
    Closure | Value | bool | Quantity | Numbers | Initialization | str | Axis | Several | Mapping[str, tuple[Axis, ...]]
)


@dataclass(frozen=True)
class Scope:
    """The names that a body may use. `blocks` are the enclosing blocks, `user` the last step in the user's spec.

    `caller`: if that step is in a block of the user's own or an imported one, the step of the spec that led to it.
    `turns`: of each named repetition, the values of its turns so far, by name.
    """

    values: Mapping[str, Value]
    arguments: Mapping[str, Bound]
    blocks: tuple[str, ...]
    user: Span
    turns: Mapping[str, Sequence[Mapping[str, Value]]] = field(default_factory=dict[str, Sequence[Mapping[str, Value]]])
    caller: Span | None = None

    def at(self, span: Span) -> "Scope":
        """The scope inside the step at this span."""
        if span.source.shipped:
            return self
        if not span.source.library:
            return replace(self, user=span)
        return replace(self, user=span, caller=self.caller if self.user.source.library else self.user)

    def problem(self, span: Span, message: str, hint: str | None = None) -> SpecError:
        """The error for a mistake at this span."""
        user, caller = (self.user, self.caller) if span.source.shipped else (self.caller, None)
        return SpecError.at(span, message, hint, user, caller)

    @property
    def place(self) -> str:
        """The place of the last step in the user's spec, and for a step of an imported block also that of its use."""
        return self.user.place if self.caller is None else f"{self.user.place} (used at {self.caller.place})"

    def unknown_size(self, name: str, span: Span, known: Iterable[str]) -> SpecError:
        """The error for an unknown size."""
        return self.problem(span, *unknown_size(name, known))


@dataclass
class Binder:
    """Evaluates arguments by kind. `used` collects the sizes that were looked up."""

    sizes: Mapping[str, Number]
    declared: Mapping[str, Tree]
    used: set[str] = field(default_factory=set[str])

    def bind(self, name: str, kind: Kind, argument: Tree | Body, scope: Scope) -> Bound:
        """Evaluate what is written for the argument `name`."""
        if isinstance(argument, Body):
            return Closure(argument, scope)
        if kind == "number":
            return self.quantity(name, argument, scope)
        if kind == "operand":
            return self.operand(name, argument, scope)
        return _KINDS[kind](self, argument, scope)

    def value(self, tree: Tree, scope: Scope) -> Value:
        """The value of this name: from the body, or an argument."""
        known = _values(scope)
        if not isinstance(tree.value, str):
            raise scope.problem(tree.span, f"must be the name of a value, found {tree.described()}")
        if "/" in tree.value:
            return self.value_of_turn(tree, scope)
        if tree.value not in known:
            hint = suggest(tree.value, known) or f"the values here are {', '.join(known)}"
            raise scope.problem(tree.span, f"unknown value '{tree.value[:40]}'", hint)
        return known[tree.value]

    def value_of_turn(self, tree: Tree, scope: Scope) -> Value:
        """The value that a turn of a repetition named: `down/0/skip`, or `down/(layers - 1 - layer)/skip`."""
        repetition, _, rest = tree.word.partition("/")
        written, _, name = rest.rpartition("/")
        if repetition not in scope.turns:
            hint = suggest(repetition, scope.turns) or "write the repetition's name, the turn and the step's name"
            raise scope.problem(tree.span, f"no repetition is named '{repetition[:40]}' here", hint)
        turns = scope.turns[repetition]
        start = len(repetition) + 1
        span = tree.span.part(start, start + len(written)) if tree.span.text == tree.word else tree.span
        turn = self.number(Tree(written, span), scope)
        if turn not in range(len(turns)):
            found = f"{written} = {turn:g}" if written != f"{turn:g}" else written
            raise scope.problem(tree.span, f"'{repetition}' has no turn {found}: it has {len(turns)} here")
        values = turns[int(turn)]
        if name not in values:
            hint = suggest(name, values) or f"its names are {', '.join(values)}"
            raise scope.problem(tree.span, f"no step of '{repetition}' is named '{name[:40]}'", hint)
        return values[name]

    def number(self, tree: Tree, scope: Scope) -> Number:
        """The number of a literal, or of arithmetic on arguments and sizes."""

        def lookup(name: str, span: Span) -> Number:
            bound = scope.arguments.get(name)
            if isinstance(bound, Quantity):
                return bound.value
            if isinstance(bound, Axis):
                return bound.size or 0
            if name not in self.sizes:
                raise scope.unknown_size(name, span, self.sizes)
            self.used.add(name)
            return self.sizes[name]

        return evaluate(tree, lookup)

    def quantity(self, name: str, tree: Tree, scope: Scope) -> Quantity:
        """A number, named after its size, or else after the argument."""
        value = self.number(tree, scope)
        bound = scope.arguments.get(tree.word)
        if isinstance(bound, Quantity):
            return bound
        if isinstance(bound, Axis):
            return Quantity(value, bound.name, tree)
        return Quantity(value, tree.word if tree.word in self.sizes else name, self.declared.get(tree.word, tree))

    def operand(self, name: str, tree: Tree, scope: Scope) -> Value | Quantity:
        """The value of this name, or else a number."""
        known, bound = _values(scope), scope.arguments.get(tree.word)
        if tree.word in known:
            return known[tree.word]
        if tree.word.partition("/")[0] in scope.turns:
            return self.value_of_turn(tree, scope)
        if not is_name(tree.word) or tree.word in self.sizes or isinstance(bound, Quantity | Axis):
            return self.quantity(name, tree, scope)
        hint = suggest(tree.word, (*known, *self.sizes)) or f"the values here are {', '.join(known)}"
        raise scope.problem(tree.span, f"unknown value '{tree.word[:40]}'", hint)

    def numbers(self, tree: Tree, scope: Scope) -> Numbers:
        """One number, or a list of them, which may be nested."""
        bound = scope.arguments.get(tree.word)
        if isinstance(bound, Numbers):
            return bound
        if not isinstance(tree.value, tuple):
            return Numbers((self.number(tree, scope),))
        if not tree.items:
            raise scope.problem(tree.span, "must be a number or a list of numbers, found an empty list")
        return Numbers(tuple(value for item in tree.items for value in self.numbers(item, scope).values))

    def initial(self, tree: Tree, scope: Scope) -> Initialization:
        """Initial values, or those bound to the argument of this name."""
        bound = scope.arguments.get(tree.word)
        if isinstance(bound, Initialization):
            return bound
        return read_initialization(tree, lambda number: self.number(number, scope))

    def axis(self, tree: Tree, scope: Scope) -> Axis:
        """The axis of this name: an argument, or a size, which must be a positive whole number.

        `{name: number}` is the axis with another size here.
        """
        if len(tree.entries) == 1:
            return self.resized(*next(iter(tree.entries.items())), scope)
        bound = scope.arguments.get(tree.word)
        if isinstance(bound, Axis):
            return bound
        value = self.number(tree, scope)
        if not isinstance(bound, Quantity) and tree.word not in self.sizes:
            raise scope.problem(tree.span, f"an axis needs a name, found {tree.described()}", "name it under sizes")
        name = bound.name if isinstance(bound, Quantity) else tree.word
        if value != int(value) or not 1 <= value <= MAX_AXIS:
            raise self.unfit(tree, scope, value, f"the axis {name} needs a positive whole number")
        return Axis(name, int(value))

    def resized(self, name: str, entry: Entry, scope: Scope) -> Axis:
        """The axis of a size, with another number."""
        if name not in self.sizes:
            raise scope.unknown_size(name, entry.key, self.sizes)
        self.used.add(name)
        value = self.number(entry.tree, scope)
        if value != int(value) or not 1 <= value <= MAX_AXIS:
            raise self.unfit(entry.tree, scope, value, f"the axis {name} needs a positive whole number")
        return Axis(name, int(value))

    def axes(self, tree: Tree, scope: Scope) -> tuple[Axis, ...]:
        """One axis, or a list of different ones; an argument may stand for several."""
        items = tree.items if isinstance(tree.value, tuple) else (tree,)
        axes = tuple(axis for item in items for axis in self.bound_axes(item, scope) or (self.axis(item, scope),))
        names = [axis.name for axis in axes]
        if not axes or len(set(names)) != len(names):
            raise scope.problem(tree.span, "must be one axis or several different ones")
        return axes

    def bound_axes(self, tree: Tree, scope: Scope) -> tuple[Axis, ...]:
        """The axes bound to the argument of this name, or none."""
        bound = scope.arguments.get(tree.word)
        return tuple(item for item in bound if isinstance(item, Axis)) if isinstance(bound, tuple) else ()

    def flag(self, tree: Tree, scope: Scope) -> bool:
        """A flag: true, false, or the name of an argument that is one."""
        bound = scope.arguments.get(tree.word) if isinstance(tree.value, str) else tree.value
        if not isinstance(bound, bool):
            raise scope.problem(tree.span, f"must be true or false, found {tree.described()}")
        return bound

    def word(self, tree: Tree, scope: Scope) -> str:
        """A word, or the word bound to the argument of this name."""
        if not isinstance(tree.value, str):
            raise scope.problem(tree.span, f"must be a word, found {tree.described()}")
        bound = scope.arguments.get(tree.value)
        return bound if isinstance(bound, str) else tree.value

    def name(self, tree: Tree, scope: Scope) -> str:
        """The name of an axis of the value, or of the axis bound to the argument of this name."""
        bound = scope.arguments.get(tree.word)
        return bound.name if isinstance(bound, Axis | Quantity) else self.word(tree, scope)

    def names(self, tree: Tree, scope: Scope) -> tuple[str, ...]:
        """One name of an axis, or several different ones."""
        bound = scope.arguments.get(tree.word)
        if isinstance(bound, tuple):
            return tuple(item if isinstance(item, str) else item.name for item in bound)
        names = tuple(self.name(item, scope) for item in (tree.items if isinstance(tree.value, tuple) else (tree,)))
        if not names or len(set(names)) != len(names):
            raise scope.problem(tree.span, "must be the name of one axis or of several different ones")
        return names

    def states(self, tree: Tree, scope: Scope) -> Mapping[str, tuple[Axis, ...]]:
        """The axes of each state, by name: sizes, or axes of values here, such as the positions of another input."""
        bound = scope.arguments.get(tree.word)
        if isinstance(bound, Mapping):
            return bound
        if not tree.entries:
            hint = "such as {hidden: d_model}"
            raise scope.problem(tree.span, f"must name states and their axes, found {tree.described()}", hint)
        for name, entry in tree.entries.items():
            if name == "x" or not is_name(name):
                raise scope.problem(entry.key, f"'{name[:40]}' cannot be the name of a state")
        axes = [axis for value in _values(scope).values() for axis in value.type.axes if axis.size is None]
        along = {axis.name: axis for axis in axes if axis.name != "batch" and axis.name not in self.sizes}
        scope = replace(scope, arguments={**along, **scope.arguments})
        return {name: self.axes(entry.tree, scope) for name, entry in tree.entries.items()}

    def unfit(self, tree: Tree, scope: Scope, value: Number, message: str) -> SpecError:
        """The error for an invalid number: at the size that it comes from, or where it is written."""
        bound = scope.arguments.get(tree.word)
        size = bound.written if isinstance(bound, Quantity) else self.declared.get(tree.word, tree)
        parts = parse_number(size).names()
        written = f"{size.value} = " if isinstance(size.value, str) else ""
        known = {**self.sizes, **{n: item.value for n, item in scope.arguments.items() if isinstance(item, Quantity)}}
        hint = ", ".join(f"{part} is {known[part]:g}" for part in dict.fromkeys(parts) if part in known)
        return SpecError.at(size.span, f"{message}, found {written}{value:g}", hint or None, scope.user)


def _values(scope: Scope) -> dict[str, Value]:
    """The values by name: from the body, and the arguments."""
    arguments = {name: bound for name, bound in scope.arguments.items() if isinstance(bound, Value)}
    return {**arguments, **scope.values}


_KINDS: dict[Kind, Callable[[Binder, Tree, Scope], Bound]] = {
    "name": Binder.name,
    "names": Binder.names,
    "states": Binder.states,
    "value": Binder.value,
    "axis": Binder.axis,
    "axes": Binder.axes,
    "flag": Binder.flag,
    "word": Binder.word,
    "numbers": Binder.numbers,
    "initial": Binder.initial,
}
