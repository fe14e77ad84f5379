"""The axes of positions and of keys of a model: those of its inputs, and those that steps make."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from xformc.compiler.graph.axes import Axis
from xformc.compiler.graph.lengths import divide_up
from xformc.compiler.graph.primitives import Keys
from xformc.compiler.spec.model import Input
from xformc.compiler.spec.resolve import RESERVED
from xformc.compiler.spec.signature import is_name


@dataclass(frozen=True)
class Fewer:
    """Every `stride`-th element of the axis `of` but its last `lost`; with a `count`, only the first of them."""

    of: str
    stride: int
    lost: int
    count: int | None = None

    @property
    def name(self) -> str:
        """The name of such an axis, such as `frames_by_2` or `frames_less_3`."""
        less, by = (f"_less_{self.lost}" if self.lost else ""), (f"_by_{self.stride}" if self.stride > 1 else "")
        return f"{self.of}{less}{by}" + (f"_to_{self.count}" if self.count else "")


@dataclass(frozen=True)
class Longer:
    """The axis `of`, each element `times` times; `named` if the spec names it."""

    of: str
    times: int
    named: bool


class NameTaken(Exception):
    """The name of a new axis already means something else; the message says what."""


@dataclass
class PositionAxes:
    """What is known of each axis of positions, by name.

    `whole`: axes that steps made from others and that have no padding. `fewer` and `longer`: the parts and the
    multiples of other axes, also of axes without positions. `named`: those parts that the spec names; the names of
    their parts begin with it. `joined`: the two axes that an axis is concatenated from.
    """

    inputs: Mapping[str, Input]
    sizes: Mapping[str, float]
    whole: set[str] = field(default_factory=set[str])
    fewer: dict[str, Fewer] = field(default_factory=dict[str, Fewer])
    longer: dict[str, Longer] = field(default_factory=dict[str, Longer])
    named: set[str] = field(default_factory=set[str])
    joined: dict[str, tuple[Axis, Axis]] = field(default_factory=dict[str, tuple[Axis, Axis]])
    keys: dict[str, Keys] = field(default_factory=dict[str, Keys])

    def holds(self, axis: str) -> bool:
        """Whether this is an axis of positions."""
        part = self.fewer.get(axis)
        return (
            axis in self.inputs
            or axis in self.whole
            or axis in self.joined
            or (part is not None and self.holds(part.of))
            or (axis in self.longer and self.holds(self.longer[axis].of))
        )

    def padded(self, axis: str) -> bool:
        """Whether some of its positions may be padding."""
        if axis in self.inputs:
            return self.inputs[axis].is_sequence
        part = self.fewer.get(axis)
        if part is not None:
            return self.padded(part.of)
        if axis in self.longer:
            return self.padded(self.longer[axis].of)
        return any(self.padded(each.name) for each in self.joined.get(axis, ()))

    def make_keys(self, positions: str, window: int | None) -> Keys:
        """The axis of keys for these positions; the same window returns the same axis."""
        name = f"{positions}_keys" if window is None else f"{positions}_keys.{window}"
        return self.keys.setdefault(name, Keys(name, positions, window))

    def make_fewer(self, of: Axis, stride: int, lost: int, name: str | None, count: int | None = None) -> Axis:
        """See `graph.primitives.Site.fewer`. Raises: NameTaken."""
        base = None if of.name in self.named else self.fewer.get(of.name)
        part = Fewer(of.name, stride, lost, count)
        if base is not None and base.count is None:
            part = Fewer(base.of, base.stride * stride, base.lost + base.stride * lost, count)
        if (stride, lost, count) == (1, 0, None) and name in (None, of.name):
            return of
        result = Axis(name or part.name, count or (None if of.size is None else divide_up(of.size - lost, stride)))
        known = self.fewer.get(result.name, part)
        if known != part:
            raise NameTaken(f"the axis {result.name} is already every {known.stride}. element of {known.of}")
        self._check(result, (*self.inputs, *self.whole, *self.joined, *self.longer), part.name)
        self.fewer[result.name] = part
        if result.name != part.name:
            self.named.add(result.name)
        return result

    def make_longer(self, of: Axis, times: int, name: str | None) -> Axis:
        """See `graph.primitives.Site.longer`. Raises: NameTaken."""
        if times == 1 and name in (None, of.name):
            return of
        default = f"{of.name}_times_{times}"
        result = Axis(name or default, None if of.size is None else of.size * times)
        made = Longer(of.name, times, named=result.name != default)
        if self.longer.get(result.name, made) != made:
            raise NameTaken(f"the axis {result.name} is already made from {self.longer[result.name].of}")
        self._check(result, (*self.inputs, *self.whole, *self.joined, *self.fewer), default)
        self.longer[result.name] = made
        return result

    def origin(self, longer: Axis) -> Axis | None:
        """The axis that an axis restores whose size is known only at run time. See `graph.primitives.Site.origin`."""
        made = self.longer.get(longer.name)
        part = None if made is None or made.named else self.fewer.get(made.of)
        if made is None or part is None or longer.size is not None or (part.lost, part.count) != (0, None):
            return None
        if part.stride == made.times:
            return Axis(part.of)
        return (
            self.make_fewer(Axis(part.of), part.stride // made.times, 0, None)
            if part.stride % made.times == 0
            else None
        )

    def make_joined(self, first: Axis, second: Axis, name: str | None) -> Axis:
        """The axis of the positions of one axis and then of another. Raises: NameTaken."""
        default = f"{first.name}_and_{second.name}"
        size = None if first.size is None or second.size is None else first.size + second.size
        result = Axis(name or default, size)
        if self.joined.get(result.name, (first, second)) != (first, second):
            raise NameTaken(f"the axis {result.name} is already concatenated from others")
        self._check(result, (*self.inputs, *self.whole, *self.fewer, *self.longer), default)
        self.joined[result.name] = first, second
        return result

    def rest(self, of: Axis, start: int, end: int) -> Axis | None:
        """What is left of a concatenated axis without `start` first and `end` last elements, if that is an axis."""
        first, second = self.joined.get(of.name, (of, of))
        if end == 0 and start == first.size and not self.padded(first.name):
            return second
        return first if start == 0 and end == second.size and not self.padded(second.name) else None

    def _check(self, axis: Axis, taken: tuple[str, ...], default: str) -> None:
        """Check the name of a new axis. Raises: NameTaken."""
        if axis.name in taken or axis.name in self.keys:
            raise NameTaken(f"there is already an axis {axis.name}")
        if axis.name != default and (not is_name(axis.name) or axis.name in RESERVED):
            raise NameTaken(f"'{axis.name[:40]}' cannot be the name of an axis")
        size = self.sizes.get(axis.name)
        if size is not None and axis.size is None:
            raise NameTaken(f"the size {axis.name} is known before run time, the axis only then")
        if size is not None and size != axis.size:
            raise NameTaken(f"the axis {axis.name} has {axis.size} elements, but the size {axis.name} is {size:g}")
