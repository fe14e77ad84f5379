"""Arranges the stages of a model in columns, with their inputs, their result and the lines between them."""

from dataclasses import dataclass, field, replace

from xformc.compiler.explain.picture.items import Box, Group, Outline
from xformc.compiler.explain.picture.marks import GAP, LANE, PAD, Measure, Part, Rectangle, Text, type_text
from xformc.compiler.explain.picture.placement import Layout
from xformc.compiler.graph.axes import Type

MARGIN, STAGE_GAP, BUS, INPUT, TYPE = 6.0, 22.0, 11.5, 36.0, 10.0
"""Margin of the page; distance between a stage and the one above; height from a result to the line that takes it
elsewhere; height of an input's name with the line from it; height of a type above a stage."""


@dataclass
class _Column:
    """Stages above each other, and the heights at which their input and results leave."""

    part: Part
    layout: Layout
    result: str
    exits: dict[str, float] = field(default_factory=dict[str, float])
    x: float = 0.0


def lay_page(outline: Outline, measure: Measure) -> Part:
    """All marks of the picture; its lower left corner is (0, 0), `right` is its width and `height` its height."""
    return _Page(outline, measure).page


class _Page:
    def __init__(self, outline: Outline, measure: Measure) -> None:
        self.outline, self.types, self.measure, self.page = outline, outline.types, measure, Part()
        stages = {stage.result.name for stage in outline.stages}
        self.results = frozenset(stages)
        self.far = frozenset(stages | {value.name for value in outline.inputs})
        self.columns: list[_Column] = []
        for stage in outline.stages:
            self._add_stage(stage)
        self._finish_result()
        self._place_columns()
        self._connect_columns()
        self._legend()
        self._trim()

    def _add_stage(self, stage: Group) -> None:
        column = next((one for one in self.columns if one.result == stage.x), None)
        if column is None:
            column = self._new_column(stage)
        first = stage.x
        layout = replace(column.layout, far=self.far - {first})
        part = self._stage_part(stage, layout)
        bottom = column.part.height
        start = 22.0 if bottom == INPUT else bottom - STAGE_GAP
        column.part.add(part, 0, bottom)
        column.part.line((0, start), (0, bottom), head=not part.doors.get(first) or part.doors[first][0].head)
        column.part.height = bottom + part.height
        column.exits[stage.result.name] = column.part.height
        column.result = stage.result.name
        self._write_axes(column, stage.result.type)
        column.part.height += STAGE_GAP

    def _new_column(self, stage: Group) -> _Column:
        outer = 1 if self.columns else -1
        layout = Layout(
            self.measure, self.types, self.far, self.results, self.outline.states, tuple(self.outline.tied), outer
        )
        column = _Column(Part(), layout, stage.x)
        self.columns.append(column)
        given = next((value for value in self.outline.inputs if value.name == stage.x), None)
        if given is not None:
            column.part.texts.append(Text(given.name, 0, 16, "name"))
            column.part.texts.append(Text(type_text(given.type), 0, 6, "type"))
            column.part.reach(-self.measure(given.name, "name") / 2, self.measure(given.name, "name") / 2)
            column.exits[given.name] = 22.0
        column.part.height = INPUT
        return column

    def _stage_part(self, stage: Group, layout: Layout) -> Part:
        if len(stage.items) == 1 and isinstance(box := stage.items[0], Box):
            note = "" if stage.result.name == self.outline.stages[-1].result.name else stage.label.lower()
            return layout.box(replace(box, note=box.note or note))
        inner, part = layout.body(stage.items, stage.x), Part()
        part.add(inner, 0, 0)
        part.doors = inner.doors
        part.reach(-part.left - PAD, part.right + PAD)
        part.height = inner.height + PAD + 7
        part.line((0, inner.height), (0, part.height), head=False)
        part.rectangles.insert(0, Rectangle("stage", -part.left, 0, part.left + part.right, part.height))
        side = layout.outer
        x = side * ((part.left if side < 0 else part.right) - 7)
        part.texts.append(Text(stage.label, x, part.height - 8, "title", "left" if side < 0 else "right"))
        return part

    def _write_axes(self, column: _Column, type: Type) -> None:
        side = -column.layout.outer
        text = type_text(type)
        room = 4 + self.measure(text, "type")
        column.part.reach(*((0, room) if side > 0 else (-room, 0)))
        column.part.texts.append(Text(text, 4 * side, column.part.height + 6, "type", "left" if side > 0 else "right"))

    def _finish_result(self) -> None:
        """Write the name of the model's result above it; other columns end above the type of their last stage."""
        last = self.outline.stages[-1]
        for column in self.columns:
            column.part.height -= STAGE_GAP
            if column.result == last.result.name:
                top = column.part.height
                column.part.line((0, top), (0, top + GAP + 4))
                column.part.texts.append(Text(last.label.lower(), 0, top + GAP + 11, "name"))
                column.part.height = top + GAP + 18
            else:
                column.part.height += TYPE

    def _place_columns(self) -> None:
        """Place the columns from left to right, with space for the lines between them."""
        self.gutters = [self._gutter(index) for index in range(len(self.columns) + 1)]
        x = 0.0
        for index, column in enumerate(self.columns):
            x += self.gutters[index] + column.part.left
            column.x = x
            x += column.part.right
        for column in self.columns:
            part = column.part
            self.page.add(replace(part, sides={}), column.x, 0)
            self.page.height = max(self.page.height, part.height)
        self.page.left = 0.0

    def _crossings(self) -> list[tuple[str, int, int]]:
        """The values that columns take from other stages: value, source column, target column."""
        found: list[tuple[str, int, int]] = []
        for index, column in enumerate(self.columns):
            for name in column.part.sides:
                makers = [number for number, one in enumerate(self.columns) if name in one.exits]
                found.append((name, makers[0] if makers else -1, index))
        return found

    def _gutter(self, index: int) -> float:
        lanes = sum(self._lane_gutter(start, end) == index for _, start, end in self._crossings())
        return (12.0 if 0 < index < len(self.columns) else 0.0) + LANE * (lanes + (lanes > 0))

    @staticmethod
    def _lane_gutter(start: int, end: int) -> int:
        return end if start < end else end + 1

    def _connect_columns(self) -> None:
        used: dict[int, int] = {}
        taken: list[tuple[int, str, float]] = []
        for name, start, end in self._crossings():
            gutter = self._lane_gutter(start, end)
            used[gutter] = used.get(gutter, 0) + 1
            column = self.columns[end]
            if gutter == end:
                lane = column.x - column.part.left - LANE * used[gutter]
            else:
                lane = column.x + column.part.right + LANE * used[gutter]
            for entry, left, right in column.part.sides[name]:
                target, height = column.x + (left if gutter == end else right), entry
                while any(to == end and other != name and abs(height - at) < 2.5 for to, other, at in taken):
                    height += 3.0
                taken.append((end, name, height))
                self.page.line(*self._way(name, start, end, lane), (lane, height), (target, height))

    def _way(self, name: str, start: int, end: int, lane: float) -> list[tuple[float, float]]:
        """The line from the source of a value to the lane next to the column that takes it."""
        if start < 0:
            self.page.texts.append(Text(name, lane, 16, "name"))
            width = max(self.measure(name, "name"), self.measure(type_text(self.types[name]), "type"))
            self.page.reach(lane - width / 2, lane + width / 2)
            self.page.texts.append(Text(type_text(self.types[name]), lane, 6, "type"))
            return [(lane, 22.0)]
        column = self.columns[start]
        exit = column.exits[name]
        bus = exit + next((rise for rise in (BUS, BUS - 5, BUS + 5) if self._free(exit + rise)), BUS)
        points = [(column.x, exit), (column.x, bus)]
        self.page.height = max(self.page.height, bus + 2)
        between = self.columns[start + 1 : end]
        if between:
            above = max(one.part.height for one in between) + 2.2 * BUS
            first = between[0].x - between[0].part.left - LANE
            points += [(first, bus), (first, above), (lane, above)]
            self.page.height = max(self.page.height, above + 4)
        else:
            points.append((lane, bus))
        return points

    def _free(self, height: float) -> bool:
        """Whether no line enters a column near this height."""
        sides = [end for column in self.columns for ends in column.part.sides.values() for end in ends]
        return all(abs(height - entry) >= 4 for entry, _, _ in sides)

    def _legend(self) -> None:
        for index, (name, type) in enumerate(self.outline.tied.items()):
            y = -10.0 - 12.0 * index
            self.page.rectangles.append(Rectangle("tie", 4, y - 3, 6, 6, "", (name,)))
            text = f"one matrix {type_text(type)}"
            self.page.texts.append(Text(text, 15, y, "note", "left"))
            self.page.reach(0, 15 + self.measure(text, "note"))

    def _trim(self) -> None:
        """Move everything so that the lower left corner is (0, 0), with a margin."""
        low = -4.0 - 12.0 * len(self.outline.tied) if self.outline.tied else 0.0
        page = Part()
        page.add(self.page, MARGIN + self.page.left, MARGIN - low)
        page.height = self.page.height + 2 * MARGIN - low
        page.right = self.page.left + self.page.right + 2 * MARGIN
        page.left = 0.0
        self.page = page
