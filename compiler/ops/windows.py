"""Windows that move along axes: the arguments that convolution and pooling share."""

from dataclasses import dataclass
from typing import Literal, Protocol

from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.lengths import Length
from xformc.compiler.graph.primitives import Site

MAX_REACH = 2**16
"""The maximum number of positions that a window may see besides its own."""

Ends = Literal["same", "none", "end", "causal"]
"""Where windows lie: around each position (of an even width, with one more before it), only where they are whole, from
each position on, or up to it."""


@dataclass(frozen=True)
class Windows:
    """Windows of `width` elements, `dilation` apart, at every `stride`-th element of each of the `axes`.

    `before` and `after` are the numbers of elements that are missing at the ends. The windows form the axes `to`.
    """

    axes: tuple[str, ...]
    to: tuple[str, ...]
    width: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]


@dataclass(frozen=True)
class Wanted:
    """The arguments of a step that makes windows, as written: a number stands for all axes, no name for the default."""

    width: tuple[float, ...]
    stride: tuple[float, ...]
    dilation: tuple[float, ...]
    ends: Ends
    names: tuple[str, ...]


def make_windows(site: Site, axes: tuple[Axis, ...], wanted: Wanted) -> Windows:
    """The windows along these axes. Raises: UserError for numbers that make no windows."""
    if wanted.names and len(wanted.names) != len(axes):
        raise site.refuse(f"'to_positions' names {len(wanted.names)} axes, but the windows move along {len(axes)}")
    width = whole_numbers(site, "width", wanted.width, len(axes))
    stride = whole_numbers(site, "stride", wanted.stride, len(axes))
    dilation = whole_numbers(site, "dilation", wanted.dilation, len(axes))
    reaches = [(size - 1) * apart for size, apart in zip(width, dilation, strict=True)]
    if max(reaches) > MAX_REACH:
        raise site.refuse(f"it would see {max(reaches):,} positions besides its own; the limit is {MAX_REACH:,}")
    ends = [_ends(wanted.ends, axis, reach, site) for axis, reach in zip(axes, reaches, strict=True)]
    before, after, lost = zip(*ends, strict=True)
    names = wanted.names or (None,) * len(axes)
    to = tuple(site.fewer(*each).name for each in zip(axes, stride, lost, names, strict=True))
    return Windows(tuple(axis.name for axis in axes), to, width, stride, dilation, before, after)


def _ends(ends: Ends, axis: Axis, reach: int, site: Site) -> tuple[int, int, int]:
    """The numbers of missing elements before and after an axis, and how many fewer windows it has than elements.

    An axis whose size is known only at run time keeps its size, and its last windows are padding.
    """
    if ends == "causal":
        return (reach, 0, 0) if site.holds_positions(axis.name) else (reach // 2, reach - reach // 2, 0)
    if ends == "same":
        return reach - reach // 2, reach // 2, 0
    if ends == "end" or axis.size is None:
        return 0, reach, 0 if ends == "end" else reach
    if reach >= axis.size:
        raise site.refuse(f"the axis {axis} is shorter than a window, which has {reach + 1} elements")
    return 0, 0, reach


class Moving(Protocol):
    """An op whose windows move along axes; its fields are those of `Windows`."""

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes."""
        ...

    @property
    def to(self) -> tuple[str, ...]:
        """The axes that the windows form."""
        ...

    @property
    def stride(self) -> tuple[int, ...]:
        """The elements between two windows, of each axis."""
        ...


def window_lengths(op: Moving, x: Type) -> dict[str, Length]:
    """The sizes of new axes that are known only at run time."""
    return {
        to: Length((axis,), stride)
        for axis, to, stride in zip(op.axes, op.to, op.stride, strict=True)
        if to != axis and x.axis(axis).size is None
    }


def whole_numbers(site: Site, name: str, values: tuple[float, ...], count: int) -> tuple[int, ...]:
    """A number for each axis, from one or as many."""
    if len(values) not in (1, count):
        raise site.refuse(f"'{name}' has {len(values)} numbers, but the windows move along {count} axes")
    for value in values:
        if value != int(value) or value < 1:
            subject = {"width": "the width of a window", "by": "'by'"}.get(name, f"the {name}")
            raise site.refuse_number(name, value, f"{subject} must be a positive whole number")
    whole = tuple(int(value) for value in values)
    return whole if len(whole) == count else whole * count
