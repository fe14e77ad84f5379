"""Lays out the items of a body in rows from bottom to top, each above its inputs, with lines between them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xformc.compiler.explain.picture.items import Box, Group, Item, Sum, boxes
from xformc.compiler.explain.picture.marks import BESIDE, GAP, LANE, Door, Part, Settings, Text, type_text, wrap
from xformc.compiler.explain.picture.tracks import order_tracks

TRACK, TYPE_ROW, TYPE_WIDTH, PORT = 5.0, 7.0, 50.0, 10.0
"""Distance between horizontal lines of a gap; height of a row of axes, and its width next to other items; distance
between values that enter from the side."""


@dataclass
class _Place:
    """An item, or a value from outside (`port`), and its place."""

    part: Part
    item: Item | None
    port: str
    row: int = 0
    x: float = 0.0
    y: float = 0.0
    axes: tuple[str, ...] = ()

    @property
    def top(self) -> float:
        return self.y + self.part.height


class Rows:
    """Lays out a body; `part` is the result. Values in `far` enter from the side, other values from below."""

    def __init__(
        self, settings: Settings, lay: Callable[[Item, bool], Part], items: Sequence[Item], x: str, far: frozenset[str]
    ) -> None:
        self.settings, self.lay, self.x, self.part = settings, lay, x, Part()
        self.makers = {item.result.name: index for index, item in enumerate(items)}
        self.places = [_Place(Part(), item, "") for item in items]
        self._add_ports(far)
        self._assign_rows()
        self.count = 1 + max((place.row for place in self.places), default=-1)
        self.lowest = 1 if self.places and self._only_ports(0) else 0
        self._build_parts()
        self._place_columns()
        self._place_rows()
        self._draw()

    def _near(self, place: _Place) -> tuple[str, ...]:
        return tuple(name for name in place.item.inputs if name not in self.settings.far) if place.item else ()

    def _maker(self, name: str) -> _Place | None:
        """The place whose item makes a value inside the body; None for the value that enters at the bottom."""
        return self.places[self.makers[name]] if name in self.makers else None

    def _add_ports(self, far: frozenset[str]) -> None:
        outside = [name for place in self.places for name in self._near(place) if name != self.x]
        for name in dict.fromkeys(name for name in outside if name not in self.makers):
            self.makers[name] = len(self.places)
            port = self._port(name, name in far)
            self.places.append(_Place(port, None, name))
            if name not in far:
                self.part.doors[name] = []

    def _port(self, name: str, far: bool) -> Part:
        stage, _, rest = name.partition("/")
        text = stage if name in self.settings.results else rest.rpartition("/")[2] or stage
        if name in self.settings.states:
            text = f"previous {text}"
        width = self.settings.measure(text, "note") + 8
        port = Part(width / 2, width / 2, 11)
        port.texts.append(Text(text, 0, 5.5, "note"))
        if far:
            port.sides[name] = [(5.5, -width / 2, width / 2)]
        return port

    def _assign_rows(self) -> None:
        for place in self.places:
            makers = [self._maker(name) for name in self._near(place)]
            place.row = 1 + max((maker.row for maker in makers if maker), default=-1)
        for place in reversed(self.places):
            free = not any(self._maker(name) for name in self._near(place))
            users = [other.row for other in self.places if place.item and place.item.result.name in self._near(other)]
            if free and users:
                place.row = min(users) - 1

    def _row(self, row: int) -> list[_Place]:
        return [place for place in self.places if place.row == row]

    def _build_parts(self) -> None:
        for place in self.places:
            if place.item is None:
                continue
            alone = len(self._row(place.row)) == 1
            place.part = self.lay(place.item, alone)
            place.axes = self._shown_axes(place.item, alone)
            room = 4 + max((self.settings.measure(row, "type") for row in place.axes), default=0.0)
            if place.axes:
                place.part.reach(*((0, room) if self.settings.outer < 0 else (-room, 0)))

    def _shown_axes(self, item: Item, alone: bool) -> tuple[str, ...]:
        """The axes of a result if they differ from its inputs' and, for a result of the body, from the body's input."""
        types, text = self.settings.types, type_text(item.result.type)
        if item.result.name in self.settings.results:
            return ()
        known = {type_text(types[name]) for name in item.inputs if name in types}
        if item is self.places[len(self.makers) - 1].item or not self._used(item):
            known |= {type_text(types[self.x])} if self.x in types else set()
        known |= {type_text(box.result.type) for box in boxes(item) if box is not item}
        if text in known:
            return ()
        return tuple(wrap(text, TYPE_WIDTH if not alone else 2 * TYPE_WIDTH, self.settings.measure, "type"))

    def _used(self, item: Item) -> bool:
        return any(item.result.name in self._near(place) for place in self.places)

    def _place_columns(self) -> None:
        for row in range(self.count):
            places = sorted(self._row(row), key=self._middle)
            x = 0.0
            _make_equal([place.part for place in places])
            for place in places:
                place.x = x + place.part.left
                x += place.part.left + place.part.right + BESIDE
            middle = self._center(row, places)
            if self._only_ports(row):
                middle = x / 2 + self.settings.outer * (x / 2 + BESIDE)
            elif self._on_the_axis(row, places, middle):
                middle += (places[0].part.left + places[0].part.right + BESIDE) / 2
            for place in places:
                place.x -= middle
                self.part.reach(place.x - place.part.left, place.x + place.part.right)

    def _center(self, row: int, places: Sequence[_Place]) -> float:
        """The x of a row that is put on the axis: its middle or, next to values from outside, the users of `x`."""
        users = [place.x for place in places if self.x in self._near(place)]
        if row == 0 and users and any(place.item is None for place in places):
            return sum(users) / len(users)
        return (places[0].x + places[-1].x) / 2

    def _on_the_axis(self, row: int, places: Sequence[_Place], middle: float) -> bool:
        """Whether a value from outside would be where the line of `x` passes this row, which does not use it."""
        ports = any(place.item is None and abs(place.x - middle) < 0.5 for place in places)
        users = {place.row for place in self.places if self.x in self._near(place)}
        return ports and bool(users) and row not in users

    def _only_ports(self, row: int) -> bool:
        """Whether a row has only values from outside, which are placed next to the line from the bottom, not on it."""
        return all(place.item is None for place in self._row(row))

    def _middle(self, place: _Place) -> tuple[bool, float]:
        makers = [self._maker(name) for name in self._near(place)]
        xs = [maker.x if maker else 0.0 for maker in makers]
        return bool(place.item), sum(xs) / len(xs) if xs else 0.0

    def _place_rows(self) -> None:
        """Choose the heights of the gaps, which contain the horizontal lines, and thereby of all rows."""
        self.tracks = [self._turns(row) for row in range(self.count)]
        lanes = [name for tracks in self.tracks for name in tracks if self._has_lane(name)]
        self.lanes = {name: index + 1 for index, name in enumerate(dict.fromkeys(lanes))}
        self.inner = self.part.left if self.settings.outer < 0 else self.part.right
        self.tracks = [self._ordered(row, tracks) for row, tracks in enumerate(self.tracks)]
        self.bases: list[float] = []
        y = 0.0
        for row, tracks in enumerate(self.tracks):
            below = max((len(place.axes) for place in self._row(row - 1)), default=0)
            room = below * TYPE_ROW + (7 + TRACK * len(tracks) if tracks else 0)
            gap = room + 7 if tracks else room + 5 if below else 0.0
            y += max(gap, *(self._least_gap(place, row) for place in self._row(row)))
            self.bases.append(y)
            for index, place in enumerate(sorted(self._row(row), key=lambda one: one.x)):
                place.y = y + PORT * index * bool(place.part.sides and not place.item)
            y = max(place.top for place in self._row(row))
        self.part.height = y
        lanes = [self._lane(name) for name in self.lanes]
        self.part.reach(min(lanes, default=0.0), max(lanes, default=0.0))

    def _lane(self, name: str) -> float:
        return self.settings.outer * (self.inner + LANE * self.lanes[name])

    def _ordered(self, row: int, names: Sequence[str]) -> Sequence[str]:
        """Sort the values with a horizontal line in the gap below this row by their lines, from the top."""
        starts: dict[str, float] = {}
        ends: dict[str, list[float]] = {name: [] for name in names}
        for name in names:
            maker = self._maker(name)
            first = maker.row + 1 if maker else self.lowest
            starts[name] = self._lane(name) if row > first else maker.x if maker else 0.0
            if row == first and name in self.lanes:
                ends[name].append(self._lane(name))
            for place in self._row(row):
                if name in self._near(place):
                    ends[name] += [place.x + door.x for door in self._doors(place, name)]
        return order_tracks(names, starts, ends)

    @staticmethod
    def _least_gap(place: _Place, row: int) -> float:
        """The minimum gap below a place; a sum has its own gap, and a value from outside needs little."""
        if isinstance(place.item, Sum):
            return 5.0 if row else 0.0
        return 4.0 if place.item is None else 12.0 if isinstance(place.item, Group) else GAP

    def _turns(self, row: int) -> list[str]:
        """The values with a horizontal line in the gap below this row, from the top; the body's input is lowest."""
        found: list[str] = []
        for place in self.places:
            for name in self._near(place):
                maker = self._maker(name)
                start = maker.row + 1 if maker else self.lowest
                lane = place.row > start
                straight = not lane and self._straight(place, name)
                if (row == place.row and not straight) or (lane and row == start):
                    found.append(name)
        return sorted(dict.fromkeys(found), key=lambda name: name == self.x)

    def _straight(self, place: _Place, name: str) -> bool:
        maker = self._maker(name)
        from_x = maker.x if maker else 0.0
        return all(abs(door.x + place.x - from_x) < 0.5 for door in self._doors(place, name))

    def _doors(self, place: _Place, name: str) -> list[Door]:
        """The points where a value enters an item; for a box, in the order of the places that the values come from."""
        doors = place.part.doors.get(name, [])
        if not isinstance(place.item, Box):
            return doors
        near = self._near(place)
        xs = sorted(place.part.doors[one][0].x for one in near)
        order = sorted(near, key=lambda one: maker.x if (maker := self._maker(one)) else 0.0)
        return [Door(xs[order.index(name)], doors[0].y, True)]

    def _has_lane(self, name: str) -> bool:
        maker = self._maker(name)
        start = maker.row + 1 if maker else self.lowest
        return any(place.row > start for place in self.places if name in self._near(place))

    def _draw(self) -> None:
        for place in self.places:
            self.part.add(place.part, place.x, place.y)
            self._write_axes(place)
            for name in self._near(place):
                for door in self._doors(place, name):
                    self._connect(place, name, door)
            if place.port and place.port in self.part.doors:
                self.part.doors[place.port] = [Door(place.x, place.y, False)]
        if any(self.x in self._near(place) for place in self.places):
            self.part.doors[self.x] = [Door(0, 0, False)]
        last = self.places[max(self._results())] if self._results() else None
        if last and (last.x or last.top < self.part.height):
            self.part.line((last.x, last.top), (last.x, self.part.height), (0, self.part.height), head=False)

    def _results(self) -> list[int]:
        return [index for index, place in enumerate(self.places) if place.item]

    def _connect(self, place: _Place, name: str, door: Door) -> None:
        maker = self._maker(name)
        start = (maker.x, maker.top) if maker else (0.0, 0.0)
        end = (place.x + door.x, place.y + door.y)
        first = maker.row + 1 if maker else self.lowest
        if place.row > first:
            lane = self._lane(name)
            low, high = self._track(first, name), self._track(place.row, name)
            points = [start, (start[0], low), (lane, low), (lane, high), (end[0], high), end]
        elif abs(start[0] - end[0]) < 0.5:
            points = [start, (start[0], end[1])]
        else:
            middle = self._track(place.row, name)
            points = [start, (start[0], middle), (end[0], middle), end]
        self.part.line(*points, head=door.head)

    def _track(self, row: int, name: str) -> float:
        return self.bases[row] - 8 - TRACK * self.tracks[row].index(name)

    def _write_axes(self, place: _Place) -> None:
        side = -self.settings.outer
        for index, text in enumerate(place.axes):
            y = place.top + 5.5 + TYPE_ROW * (len(place.axes) - 1 - index)
            self.part.texts.append(Text(text, place.x + 4 * side, y, "type", "left" if side > 0 else "right"))


def _make_equal(parts: Sequence[Part]) -> None:
    """Give parts next to each other the same extent, so that they are evenly spaced."""
    left, right = max(part.left for part in parts), max(part.right for part in parts)
    for part in parts:
        part.reach(-left, right)
