"""Lays out boxes, groups and sums, each from bottom to top."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from xformc.compiler.explain.picture.items import Box, Group, Item, Sum
from xformc.compiler.explain.picture.marks import (
    GAP,
    HEAD,
    LANE,
    NARROW,
    PAD,
    RADIUS,
    ROW,
    WIDTH,
    Door,
    Part,
    Rectangle,
    Settings,
    Style,
    Text,
    wrap,
)
from xformc.compiler.explain.picture.row_layout import Rows


@dataclass(frozen=True)
class Layout(Settings):
    """Lays out items."""

    def item(self, item: Item, alone: bool) -> Part:
        """An item; a box that is not alone in its row is as narrow as possible."""
        if isinstance(item, Box):
            return self.box(item, alone)
        return self.group(item) if isinstance(item, Group) else self.sum(item)

    def box(self, box: Box, alone: bool = True) -> Part:
        """A box with its text; entering lines are evenly spaced."""
        rows = [*self.rows(box.label, "label"), *self.rows(box.note, "note")]
        width = max(WIDTH if alone else NARROW, *(self.measure(text, style) + 12 for text, style in rows))
        part = Part(width / 2, width / 2, len(rows) * ROW + 8)
        tied = tuple(name for name in self.tied if name in box.parameters)
        part.rectangles.append(Rectangle("box", -width / 2, 0, width, part.height, box.kind, tied))
        for index, (text, style) in enumerate(rows):
            part.texts.append(Text(text, 0, part.height - 4 - ROW * (index + 0.5), style))
        near = [name for name in box.inputs if name not in self.far]
        for index, name in enumerate(near):
            part.doors[name] = [Door(_spread(index, len(near), width), 0, True)]
        for index, name in enumerate(name for name in box.inputs if name in self.far):
            part.sides[name] = [(part.height / 2 + 5 * index, -width / 2, width / 2)]
        return part

    def rows(self, text: str, style: Style) -> list[tuple[str, Style]]:
        """The rows of a text, with its style."""
        return [(row, style) for row in wrap(text, WIDTH - 12, self.measure, style)]

    def group(self, group: Group) -> Part:
        """A group: its items, a frame around them, and its name or number of repetitions."""
        own = replace(self, far=frozenset[str]()) if group.times is None else self
        inner = own.body(group.items, group.x, self.far - own.far)
        part = Part()
        part.add(inner, 0, 0)
        part.doors = inner.doors
        title = group.label if group.times is None else ""
        beside = isinstance(group.items[-1], Sum) and group.items[-1].beside
        side = self.outer
        needed = self.measure(title, "title") + 10 if title else 0.0
        part.reach(*((-needed, 0.0) if side < 0 else (0.0, needed)))
        part.reach(-part.left - PAD, part.right + PAD)
        part.height = inner.height + (HEAD if title else PAD) + 5 * beside
        part.line((0, inner.height), (0, part.height), head=False)
        shape = "group" if group.times is None else "repeat"
        frame = Rectangle(shape, -part.left, 0, part.left + part.right, part.height)
        part.rectangles.insert(0, frame)
        if title:
            x = side * ((part.left if side < 0 else part.right) - 6)
            part.texts.append(Text(title, x, part.height - 7, "title", "left" if side < 0 else "right"))
        else:
            self._times(part, f"{group.times}\N{MULTIPLICATION SIGN}")
        return part

    def _times(self, part: Part, text: str) -> None:
        edge = (part.left if self.outer < 0 else part.right) + 4
        part.texts.append(
            Text(text, self.outer * edge, part.height / 2, "times", "right" if self.outer < 0 else "left")
        )
        edge += self.measure(text, "times")
        part.reach(*((-edge, 0.0) if self.outer < 0 else (0.0, edge)))

    def sum(self, item: Sum) -> Part:
        """Items with a residual line around them to a sum, which is a circle, or a box if a norm follows."""
        if item.beside and len(item.items) == 1 and isinstance(item.items[0], Box):
            return self.sum_beside(item, item.items[0])
        part, inner = Part(), self.body(item.items, item.x)
        part.add(inner, 0, 0)
        part.doors = {**inner.doors, item.x: [Door(0, 0, False)]}
        bottom = inner.height + 9
        top = self._plus(part, bottom) if not item.norm else self._add_and_norm(part, bottom, item)
        part.line((0, inner.height), (0, bottom))
        lane = self.outer * ((part.left if self.outer < 0 else part.right) + LANE)
        middle, edge = (bottom + top) / 2, RADIUS if not item.norm else WIDTH / 2
        part.line((0, 4.5), (lane, 4.5), (lane, middle), (self.outer * edge, middle))
        part.reach(min(lane, 0), max(lane, 0))
        part.height = top
        return part

    def _plus(self, part: Part, bottom: float) -> float:
        part.rectangles.append(Rectangle("plus", -RADIUS, bottom, 2 * RADIUS, 2 * RADIUS))
        return bottom + 2 * RADIUS

    def _add_and_norm(self, part: Part, bottom: float, item: Sum) -> float:
        box = Box(f"Add & {item.norm}", "", "norm", (), item.result, frozenset())
        part.add(self.box(box), 0, bottom)
        return bottom + ROW + 8

    def sum_beside(self, item: Sum, box: Box) -> Part:
        """A box next to a circle, where its value is added to the value passing through."""
        side, part = self.box(box, alone=False), Part()
        center = max(GAP + RADIUS, side.height / 2)
        part.rectangles.append(Rectangle("plus", -RADIUS, center - RADIUS, 2 * RADIUS, 2 * RADIUS))
        part.reach(-RADIUS, RADIUS)
        x = self.outer * (RADIUS + GAP + side.right)
        part.add(side, x, center - side.height / 2)
        part.line((x - self.outer * side.right, center), (self.outer * RADIUS, center))
        part.line((0, 0), (0, center - RADIUS))
        part.doors[item.x] = [Door(0, 0, False)]
        part.height = center + RADIUS
        return part

    def body(self, items: Sequence[Item], x: str, far: frozenset[str] = frozenset()) -> Part:
        """Items in rows, each above its inputs, with lines between them; `x` enters at (0, 0)."""
        return Rows(self, self.item, items, x, far).part


def _spread(index: int, count: int, width: float) -> float:
    return (index + 0.5) / count * width * 0.7 - width * 0.35 if count > 1 else 0.0
