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
    """Every `stride`-th element of the axis `of` but its last `lost`."""

    of: str
    stride: int
    lost: int

    @property
    def name(self) -> str:
        """The name of such an axis, such as `frames_by_2` or `frames_less_3`."""
        less, by = (f"_less_{self.lost}" if self.lost else ""), (f"_by_{self.stride}" if self.stride > 1 else "")
        return f"{self.of}{less}{by}"


class NameTaken(Exception):
    """The name of a new axis already means something else; the message says what."""


@dataclass
class PositionAxes:
    """What is known of each axis of positions, by name.

    `whole`: axes that steps made from others and that have no padding. `fewer`: the parts of other axes, also of axes
    without positions. `named`: those of them that the spec names; the names of their parts begin with it.
    """

    inputs: Mapping[str, Input]
    sizes: Mapping[str, float]
    whole: set[str] = field(default_factory=set[str])
    fewer: dict[str, Fewer] = field(default_factory=dict[str, Fewer])
    named: set[str] = field(default_factory=set[str])
    keys: dict[str, Keys] = field(default_factory=dict[str, Keys])

    def holds(self, axis: str) -> bool:
        """Whether this is an axis of positions."""
        part = self.fewer.get(axis)
        return axis in self.inputs or axis in self.whole or (part is not None and self.holds(part.of))

    def make_keys(self, positions: str, window: int | None) -> Keys:
        """The axis of keys for these positions; the same window returns the same axis."""
        name = f"{positions}_keys" if window is None else f"{positions}_keys.{window}"
        return self.keys.setdefault(name, Keys(name, positions, window))

    def make_fewer(self, of: Axis, stride: int, lost: int, name: str | None) -> Axis:
        """See `graph.primitives.Site.fewer`. Raises: NameTaken."""
        base = None if of.name in self.named else self.fewer.get(of.name)
        part = Fewer(of.name, stride, lost)
        if base is not None:
            part = Fewer(base.of, base.stride * stride, base.lost + base.stride * lost)
        if (stride, lost) == (1, 0) and name in (None, of.name):
            return of
        result = Axis(name or part.name, None if of.size is None else divide_up(of.size - lost, stride))
        self._check(result, part)
        self.fewer[result.name] = part
        if name not in (None, part.name):
            self.named.add(result.name)
        return result

    def _check(self, axis: Axis, part: Fewer) -> None:
        known = self.fewer.get(axis.name, part)
        if known != part:
            raise NameTaken(f"the axis {axis.name} is already every {known.stride}. element of {known.of}")
        if axis.name in self.inputs or axis.name in self.whole or axis.name in self.keys:
            raise NameTaken(f"there is already an axis {axis.name}")
        if axis.name != part.name and (not is_name(axis.name) or axis.name in RESERVED):
            raise NameTaken(f"'{axis.name[:40]}' cannot be the name of an axis")
        size = self.sizes.get(axis.name)
        if size is not None and axis.size is None:
            raise NameTaken(f"the size {axis.name} is known before run time, the axis only then")
        if size is not None and size != axis.size:
            raise NameTaken(f"the axis {axis.name} has {axis.size} elements, but the size {axis.name} is {size:g}")
