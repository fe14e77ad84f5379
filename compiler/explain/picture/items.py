"""The items of a picture: boxes, groups of items, and sums; each knows the values that it takes and gives."""

from collections.abc import Iterator
from dataclasses import dataclass

from xformc.compiler.graph.axes import Type
from xformc.compiler.graph.graph import Value


@dataclass(frozen=True)
class Box:
    """One rounded box: its text, a smaller second line, what it is, and the parameters inside."""

    label: str
    note: str
    kind: str
    inputs: tuple[str, ...]
    result: Value
    parameters: frozenset[str]


@dataclass(frozen=True)
class Group:
    """Items around which a line is drawn; `x` is what comes in from below. `times`: how often they are repeated."""

    label: str
    times: int | None
    x: str
    items: "tuple[Item, ...]"
    inputs: tuple[str, ...]
    result: Value


@dataclass(frozen=True)
class Sum:
    """`x + items(x)`; with `norm`, the norm that follows, in the same box. `beside`: the items do not look at x."""

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

    `types` has the type of every value, `states` are those that a recurrence carries from one position to the next.
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
