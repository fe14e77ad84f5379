"""Primitives: the built-in steps of specs. Each is registered next to the op that it writes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.graph import Graph, Initial, Op, Value
from xformc.compiler.graph.initialization import Initialization
from xformc.errors import UserError

Kind = Literal[
    "block",
    "value",
    "operand",
    "flag",
    "number",
    "numbers",
    "word",
    "axis",
    "axes",
    "name",
    "names",
    "states",
    "initial",
]
"""The kinds of arguments. `name`: an existing axis of a value. `operand`: a value or a number."""


@dataclass(frozen=True)
class Taken:
    """One argument of a primitive."""

    kind: Kind
    required: bool = True


@dataclass(frozen=True)
class Primitive:
    """A built-in step: `apply(site, x, **arguments)` writes the nodes and returns the result.

    `on` is the dtype of values that it accepts, None for any. `transparent`: it adds no level to paths.
    """

    name: str
    takes: Mapping[str, Taken]
    apply: Callable[..., Value]
    doc: str
    on: str | None
    transparent: bool


PRIMITIVES: dict[str, Primitive] = {}
"""All primitives by name. Filled at import, read-only afterwards."""


def optional(kind: Kind) -> Taken:
    """An optional argument."""
    return Taken(kind, required=False)


def primitive(
    name: str, *, on: str | None = "float32", transparent: bool = False, **takes: Kind | Taken
) -> Callable[[Callable[..., Value]], Callable[..., Value]]:
    """Decorator: register the function under this name. Its docstring is the primitive's documentation."""
    taken = {key: Taken(item) if isinstance(item, str) else item for key, item in takes.items()}

    def enter(function: Callable[..., Value]) -> Callable[..., Value]:
        assert name not in PRIMITIVES, f"there are two primitives '{name}'"
        PRIMITIVES[name] = Primitive(name, taken, function, (function.__doc__ or "").strip(), on, transparent)
        return function

    return enter


class Applied(Protocol):
    """A block passed as an argument."""

    def __call__(self, x: Value) -> Value:
        """Apply it to a value."""
        ...

    def named(self, x: Value, names: Mapping[str, Value]) -> tuple[Value, Mapping[str, Value]]:
        """Apply it with these additional names in scope; return the result and the values of all names at its end."""
        ...


class Site(Protocol):
    """The step of a spec that calls a primitive; its nodes and parameters are written here."""

    def emit(self, op: Op, *inputs: Value, name: str = "") -> Value:
        """Write a node; its result is named after the step and `name`."""
        ...

    def parameter(
        self,
        name: str,
        axes: tuple[Axis, ...],
        initial: Initial | Initialization,
        *,
        trained: bool = True,
        outputs: int | None = None,
    ) -> Value:
        """Declare a parameter of this step, whose first `outputs` axes (default: all but the last) are outputs."""
        ...

    def positions(self, value: Value) -> str:
        """The value's axis of positions: of an input, or of a step that made positions."""
        ...

    def holds_positions(self, axis: str) -> bool:
        """Whether this is an axis of positions."""
        ...

    def keys(self, value: Value) -> "Keys":
        """The value's axis of keys."""
        ...

    def make_keys(self, positions: str, window: int | None) -> "Keys":
        """The axis of keys for an axis of positions; each query sees a window of them, or all."""
        ...

    def make_positions(self, axis: str) -> None:
        """Declare that this axis holds positions, none of which is padding."""
        ...

    def fewer(self, of: Axis, stride: int, lost: int = 0, name: str | None = None, count: int | None = None) -> Axis:
        """The axis for every `stride`-th element of the axis `of` but its last `lost`: (size - lost) / stride elements,
        rounded up, and for positions at least one. If `of` holds positions, then so does it, the others are padding.

        With a `count`, it has only as many. The same numbers return the same axis. The default name says so.
        """
        ...

    def longer(self, of: Axis, times: int, name: str | None = None) -> Axis:
        """The axis with `times` elements for each of the axis `of`. If `of` holds positions, then so does it."""
        ...

    def origin(self, longer: Axis) -> tuple[Axis, Value] | None:
        """The axis of positions that `longer` restores, which may have fewer elements, and its mask; None if it was not
        made from a part of such an axis, or has a name of its own.
        """
        ...

    def joined(self, first: Axis, second: Axis, name: str | None = None) -> Axis:
        """The axis of the positions of one axis and then of another; the same axes return the same axis."""
        ...

    def rest(self, of: Axis, start: int, end: int) -> Axis | None:
        """What is left of a concatenated axis without `start` first and `end` last elements, if that is an axis."""
        ...

    def axis(self, value: Value, name: str) -> Axis:
        """The value's axis `name`; `positions` and `keys` refer to its axis of positions and of keys."""
        ...

    def last(self, value: Value) -> Axis:
        """The value's last axis, which must not be that of the batch."""
        ...

    def clear_last(self, value: Value) -> Axis:
        """The value's last axis, which must not have come behind another by matching names."""
        ...

    def trace(
        self, inputs: Mapping[str, Type], make: Callable[[tuple[Value, ...]], tuple[Value, ...]]
    ) -> tuple[Graph, tuple[Value, ...]]:
        """The graph that `make` writes, and the outer values that it captures as additional inputs."""
        ...

    def mask(self, axis: str) -> Value | None:
        """A mask, true at the real positions along this axis; None if all are real."""
        ...

    def padding(self, axis: str) -> Value | None:
        """The mask for an axis of positions; None for an axis of keys, whose scores `mask` hides."""
        ...

    def vocabulary(self, tokens: Value) -> Axis:
        """The vocabulary axis of an input of tokens."""
        ...

    def logits(self) -> Type | None:
        """The type of the logits of the text that the model writes; None if it writes none."""
        ...

    def refuse(self, message: str, hint: str | None = None) -> UserError:
        """The error for a mistake at this step; the caller raises it."""
        ...

    def refuse_number(self, argument: str, value: float, message: str) -> UserError:
        """The error for an invalid number for this argument; the caller raises it."""
        ...


@dataclass(frozen=True)
class Keys:
    """An axis of keys, which attention sums over. A query sees `window` positions around or before its own."""

    name: str
    positions: str
    window: int | None


def checked_probability(site: Site, argument: str, value: float) -> float:
    """Check a dropout probability. Raises: UserError at the argument if it is out of range."""
    if not 0 <= value < 1:
        raise site.refuse_number(argument, value, "the dropout probability must be at least 0 and less than 1")
    return float(value)
