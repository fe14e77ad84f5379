"""The marks of a picture, in points, and the parts that contain them.

Each part is laid out around its own axis x = 0, from its own bottom y = 0, then moved into the part around it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from xformc.compiler.graph.axes import Type

GAP, LANE, HEAD, ROW = 15.0, 8.0, 13.0, 9.5
"""Distance between items; distance between parallel lines; height of a group's title; height of a line of text."""
BESIDE, PAD, RADIUS = 12.0, 9.0, 6.0
"""Distance between parallel items; padding inside a group's frame; radius of the circle of a sum."""
WIDTH, NARROW = 88.0, 46.0
"""Width of a box that is alone in its row; minimum width of other boxes."""

Shape = Literal["box", "group", "stage", "repeat", "plus", "tie"]
Style = Literal["label", "note", "type", "title", "times", "name"]
Align = Literal["left", "center", "right"]
Measure = Callable[[str, Style], float]
"""The width of a text in a style."""


@dataclass(frozen=True)
class Rectangle:
    """A shape with its lower left corner; for a box also its kind and its tied parameters."""

    shape: Shape
    x: float
    y: float
    width: float
    height: float
    kind: str = ""
    tied: tuple[str, ...] = ()


@dataclass(frozen=True)
class Line:
    """A line through these points, with or without an arrowhead at its end."""

    points: tuple[tuple[float, float], ...]
    head: bool = True


@dataclass(frozen=True)
class Door:
    """The end of a line from below, with an arrowhead, or without one if the line continues inside."""

    x: float
    y: float
    head: bool


@dataclass(frozen=True)
class Text:
    """A line of text; (x, y) is its center, or the center of its left or right end."""

    text: str
    x: float
    y: float
    style: Style
    align: Align = "center"


@dataclass
class Part:
    """A laid-out part: its extent from its axis, its marks, and the points where lines enter.

    `doors` has, for each value, the points where lines from below end. `sides` has, for each value of another stage,
    the height and the left and right ends that a line from there can lead to. The result leaves at (0, height).
    """

    left: float = 0.0
    right: float = 0.0
    height: float = 0.0
    rectangles: list[Rectangle] = field(default_factory=list[Rectangle])
    lines: list[Line] = field(default_factory=list[Line])
    texts: list[Text] = field(default_factory=list[Text])
    doors: dict[str, list[Door]] = field(default_factory=dict[str, list[Door]])
    sides: dict[str, list[tuple[float, float, float]]] = field(
        default_factory=dict[str, list[tuple[float, float, float]]]
    )

    def add(self, part: "Part", x: float, y: float) -> None:
        """Add the marks of another part at an offset, without its doors."""
        self.rectangles += [replace(one, x=one.x + x, y=one.y + y) for one in part.rectangles]
        self.lines += [replace(one, points=tuple((a + x, b + y) for a, b in one.points)) for one in part.lines]
        self.texts += [replace(one, x=one.x + x, y=one.y + y) for one in part.texts]
        for value, ends in part.sides.items():
            self.sides.setdefault(value, []).extend((height + y, a + x, b + x) for height, a, b in ends)
        self.reach(x - part.left, x + part.right)

    def reach(self, left: float, right: float) -> None:
        """Grow to cover the range between these."""
        self.left, self.right = max(self.left, -left), max(self.right, right)

    def line(self, *points: tuple[float, float], head: bool = True) -> None:
        """Draw a line."""
        self.lines.append(Line(points, head))


def type_text(type: Type) -> str:
    """The axes of a value without the batch: `[source, d_model=512]`."""
    return f"[{', '.join(str(axis) for axis in type.axes if axis.name != 'batch')}]"


@dataclass(frozen=True)
class Settings:
    """Settings of all parts of a column. `outer` is the side of sums (-1 left, 1 right); axes are on the other side.

    `types` has the type of every value; `far` are the values of other stages, `results` the values whose axes the page
    shows, `states` the states of recurrences, `tied` the parameters that boxes share.
    """

    measure: Measure
    types: Mapping[str, Type]
    far: frozenset[str]
    results: frozenset[str]
    states: frozenset[str]
    tied: Sequence[str]
    outer: int


def wrap(text: str, width: float, measure: Measure, style: Style = "label") -> list[str]:
    """Break a text into rows of at most this width."""
    rows: list[str] = []
    for word in text.split():
        longer = f"{rows[-1]} {word}" if rows else word
        if rows and measure(longer, style) <= width:
            rows[-1] = longer
        else:
            rows.append(word)
    return rows
