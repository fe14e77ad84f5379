"""Named axes and the types of values; every rule of the compiler works on these."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

DType = Literal["float32", "float16", "int64", "int32", "int8", "bool"]


@dataclass(frozen=True)
class Axis:
    """One named dimension. `size` is an integer, or None if known only at run time (the name is the symbol)."""

    name: str
    size: int | None = None

    def __str__(self) -> str:
        return self.name if self.size is None else f"{self.name}={self.size}"


@dataclass(frozen=True)
class Type:
    """The dtype and the ordered axes of a value."""

    dtype: DType
    axes: tuple[Axis, ...] = ()

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the axes, in order."""
        return tuple(axis.name for axis in self.axes)

    def axis(self, name: str) -> Axis:
        """The axis called `name`. Raises: KeyError if there is none."""
        for axis in self.axes:
            if axis.name == name:
                return axis
        raise KeyError(name)

    def sizes(self) -> tuple[int, ...]:
        """All sizes as integers. Raises: ValueError if one is known only at run time."""
        sizes = tuple(axis.size for axis in self.axes if axis.size is not None)
        if len(sizes) != len(self.axes):
            raise ValueError(f"{self} has an axis whose size is known only at run time")
        return sizes

    def without(self, names: tuple[str, ...]) -> tuple[Axis, ...]:
        """The axes that are not in `names`, in order."""
        return tuple(axis for axis in self.axes if axis.name not in names)

    def replaced(self, name: str, axis: Axis) -> "Type":
        """The type with this axis in the place of the one called `name`, if there is one."""
        return Type(self.dtype, tuple(axis if each.name == name else each for each in self.axes))

    def __str__(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.axes))}]"
