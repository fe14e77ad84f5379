"""Primitives: what a spec may call that is not a block. Each is registered beside the op that it writes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.graph import Graph, Initial, Op, Value
from xformc.errors import UserError

Kind = Literal["block", "value", "flag", "number", "word", "axis", "axes", "name", "states"]
"""What an argument of a block or primitive may be; `name` is an axis that a value already has."""


@dataclass(frozen=True)
class Taken:
    """One argument of a primitive."""

    kind: Kind
    required: bool = True


@dataclass(frozen=True)
class Primitive:
    """`apply(site, x, **arguments)` writes the nodes and gives the result.

    `on` is the dtype of values that it is applied to, None for any. `transparent`: it adds no level to paths.
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
    """An argument that may be left out."""
    return Taken(kind, required=False)


def primitive(
    name: str, *, on: str | None = "float32", transparent: bool = False, **takes: Kind | Taken
) -> Callable[[Callable[..., Value]], Callable[..., Value]]:
    """Decorator: enter the function under this name. Its docstring is the primitive's documentation."""
    taken = {key: Taken(item) if isinstance(item, str) else item for key, item in takes.items()}

    def enter(function: Callable[..., Value]) -> Callable[..., Value]:
        assert name not in PRIMITIVES, f"there are two primitives '{name}'"
        PRIMITIVES[name] = Primitive(name, taken, function, (function.__doc__ or "").strip(), on, transparent)
        return function

    return enter


class Applied(Protocol):
    """A block that was given as an argument."""

    def __call__(self, x: Value) -> Value:
        """What it makes of a value."""
        ...

    def named(self, x: Value, names: Mapping[str, Value]) -> tuple[Value, Mapping[str, Value]]:
        """What it makes of a value when it knows these names, too, and what each name means at its end."""
        ...


class Site(Protocol):
    """The step of a spec that calls a primitive: where its nodes and parameters go."""

    def emit(self, op: Op, *inputs: Value, name: str = "") -> Value:
        """Write a node; its result is called after the step, and `name`."""
        ...

    def parameter(self, name: str, axes: tuple[Axis, ...], initial: Initial, *, trained: bool = True) -> Value:
        """Declare a parameter of this step."""
        ...

    def positions(self, value: Value) -> str:
        """The axis of the value along which positions stand: that of an input, or one that a step made."""
        ...

    def keys(self, value: Value) -> "Keys":
        """The axis of keys that the value has."""
        ...

    def make_keys(self, positions: str, window: int | None) -> "Keys":
        """The axis of keys made of an axis of positions, of which each query sees a window or all."""
        ...

    def make_positions(self, axis: str) -> None:
        """Say that positions stand along this axis from now on; all of them are real."""
        ...

    def axis(self, value: Value, name: str) -> Axis:
        """The axis of the value that `name` says; `positions` and `keys` are those axes, whatever their names."""
        ...

    def trace(
        self, inputs: Mapping[str, Type], make: Callable[[tuple[Value, ...]], tuple[Value, ...]]
    ) -> tuple[Graph, tuple[Value, ...]]:
        """The graph of what `make` writes, and the values of the surroundings that it uses: its further inputs."""
        ...

    def mask(self, axis: str) -> Value | None:
        """True where there is a real position along this axis; None where all are."""
        ...

    def padding(self, axis: str) -> Value | None:
        """The same for an axis of positions; None for one of keys, whose scores `mask` hides."""
        ...

    def vocabulary(self, tokens: Value) -> Axis:
        """The axis of the vocabulary of an input of tokens."""
        ...

    def refuse(self, message: str, hint: str | None = None) -> UserError:
        """The error for what this step cannot do; the caller raises it."""
        ...

    def refuse_number(self, argument: str, value: float, message: str) -> UserError:
        """The error for a number that this argument cannot be; the caller raises it."""
        ...


@dataclass(frozen=True)
class Keys:
    """An axis of keys: what attention looks along. A query sees `window` positions around or before its own."""

    name: str
    positions: str
    window: int | None


def checked_probability(site: Site, argument: str, value: float) -> float:
    """A probability of dropout. Raises: UserError at the argument for a number that is none."""
    if not 0 <= value < 1:
        raise site.refuse_number(argument, value, "a probability of dropout is at least 0 and less than 1")
    return float(value)
