"""The items of a picture: boxes, groups of items, and sums, each with its input and result values."""

from collections.abc import Iterator
from dataclasses import dataclass

from xformc.compiler.graph.axes import Type
from xformc.compiler.graph.graph import Value


@dataclass(frozen=True)
class Box:
    """A rounded box: its text, a smaller second line, its kind, and the parameters inside."""

    label: str
    note: str
    kind: str
    inputs: tuple[str, ...]
    result: Value
    parameters: frozenset[str]


@dataclass(frozen=True)
class Group:
    """Items with a frame around them; `x` is the value that enters from below. `times`: the number of repetitions."""

    label: str
    times: int | None
    x: str
    items: "tuple[Item, ...]"
    inputs: tuple[str, ...]
    result: Value


@dataclass(frozen=True)
class Sum:
    """`x + items(x)`; `norm`: the norm that follows, drawn in the same box. `beside`: the items do not use x."""

    x: str
    items: "tuple[Item, ...]"
    norm: str
    beside: bool
    inputs: tuple[str, ...]
    result: Value


Item = Box | Group | Sum


@dataclass(frozen=True)
class Outline:
    """The stages of a model as groups, its inputs, and the parameters that several boxes share.

    `types` has the type of every value; `states` are the states of recurrences.
    """

    inputs: tuple[Value, ...]
    stages: tuple[Group, ...]
    tied: dict[str, Type]
    types: dict[str, Type]
    states: frozenset[str]


def boxes(item: Item) -> Iterator[Box]:
    """Every box in an item."""
    if isinstance(item, Box):
        yield item
    else:
        for inner in item.items:
            yield from boxes(inner)
