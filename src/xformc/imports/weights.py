"""Maps the tensors of a checkpoint to the parameters of a spec, by the rows of a family's table."""

import math
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import mul

import numpy as np

from xformc.compiler.spec.tree import Tree
from xformc.errors import UserError
from xformc.imports.checkpoint import READABLE, Array, Stored
from xformc.imports.config import Config
from xformc.imports.family import Family

LISTED = 12


@dataclass(frozen=True)
class Row:
    """How a parameter is made of one tensor, in this order.

    pick: the index of the part along the first axis, for a tensor that is a stack of several.
    axes: the tensor's axes in the parameter's order, for a tensor that has them in another. rows: only these rows, from
    start to stop; of each group, if there are `each` groups and no parts. part, of, each: the rows are `each` groups
    (such as heads) of `of` equal parts, of which one is taken. plus: added to every number.
    gain: the tensor of lengths, if `source` has only directions; it has one for each index of `gain_axis`.
    first: the rows that come first, in this order.
    shape_there: the tensor's shape, where that is not the parameter's with merged axes; an export needs it.
    """

    source: str
    pick: int | None = None
    axes: tuple[int, ...] | None = None
    part: int = 0
    of: int = 1
    each: int = 1
    rows: tuple[int, int] | None = None
    plus: float = 0.0
    shape_there: tuple[int, ...] | None = None
    gain: str | None = None
    gain_axis: int = 0
    first: tuple[int, ...] = ()

    @property
    def groups(self) -> int:
        """The number of groups whose rows are chosen."""
        return self.each if self.of == 1 else 1

    def shape(self, found: Sequence[int]) -> tuple[int, ...] | None:
        """The shape of the parameter before its axes are told apart; None if the tensor does not fit the row."""
        found = found if self.pick is None else found[1:]
        if self.axes is not None and len(found) != len(self.axes):
            return None
        shape = list(found) if self.axes is None else [found[axis] for axis in self.axes]
        if not shape:
            return None if self.rows or self.of * self.each > 1 else ()
        if self.rows is not None:
            start, stop = self.rows
            if not (self.groups and 0 <= start < stop <= shape[0] // self.groups) or shape[0] % self.groups:
                return None
            shape[0] = (stop - start) * self.groups
        if not (all(0 <= one < shape[0] for one in self.first) and len(set(self.first)) == len(self.first)):
            return None
        if self.of < 1 or self.each < 1 or not 0 <= self.part < self.of or shape[0] % (self.of * self.each):
            return None
        return (shape[0] // self.of, *shape[1:])

    def gain_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of the lengths of a tensor of this shape."""
        return tuple(size if axis == self.gain_axis else 1 for axis, size in enumerate(shape))

    def order(self, count: int) -> list[int]:
        """The rows in the parameter's order."""
        return [*self.first, *(row for row in range(count) if row not in self.first)]

    def of_array(self, array: Array, shape: tuple[int, ...]) -> Array:
        """The parameter, made of the tensor that fits."""
        array = array if self.pick is None else array[self.pick]
        array = array if self.axes is None else array.transpose(self.axes)
        if self.rows is not None:
            grouped = array.reshape(self.groups, -1, *array.shape[1:])[:, self.rows[0] : self.rows[1]]
            array = grouped.reshape(-1, *array.shape[1:])
        if self.of > 1:
            array = array.reshape(self.each, self.of, -1, *array.shape[1:])[:, self.part]
        if self.first:
            array = array[self.order(len(array))]
        return np.array(array.reshape(shape) + np.float32(self.plus) if self.plus else array.reshape(shape), order="C")


def map_weights(
    family: Family,
    config: Config,
    shapes: Mapping[str, tuple[int, ...]],
    stored: Mapping[str, Stored],
    place: str,
    unlike: Sequence[str],
) -> dict[str, Array]:
    """The parameters of these shapes from the stored tensors; `unlike` are those of `unlike_copies`.

    Raises: UserError that names every weight that is missing, left over, of a wrong shape or format, or not finite.
    """
    rows = {path: family_row(family, config, path, stored) for path in shapes}
    named = sorted({name for row in rows.values() if row is not None for name in (row.source, row.gain) if name})
    used = {name: stored[name] for name in named if name in stored}
    patterns = [_pattern(name) for name in family.surplus]
    problems = {
        "without a row in the table": [path for path, row in rows.items() if row is None],
        "missing": [name for name in named if name not in stored],
        "left over": [
            name
            for name in stored
            if name not in used and name not in family.copies and not any(one.fullmatch(name) for one in patterns)
        ],
        "no copy of the weight that it is tied to": [name for name in unlike if name not in used],
        "wrong shape": [
            f"{row.source} (found {list(used[row.source].shape)}, {path} is {list(shapes[path])})"
            for path, row in rows.items()
            if row is not None and row.source in used and not _fits(row.shape(used[row.source].shape), shapes[path])
        ]
        + [
            f"{row.gain} (found {list(used[row.gain].shape)})"
            for row in rows.values()
            if row is not None and row.gain in used and row.source in used
            if used[row.gain].shape != row.gain_shape(used[row.source].shape)
        ]
        + [
            f"{name} (found {list(used[name].shape)}, of which {count} are picked)"
            for name, count in _picked(rows.values()).items()
            if name in used and used[name].shape[:1] != (count,)
        ],
        f"not of {', '.join(READABLE)}": [
            f"{name} ({one.kind})" for name, one in used.items() if one.kind not in READABLE
        ],
    }
    _refuse(problems, f"the weights do not fit the table of {family.name}", place)
    return _arrays({path: row for path, row in rows.items() if row is not None}, shapes, used, place)


def _picked(rows: Iterable[Row | None]) -> dict[str, int]:
    """The number of parameters that are parts of each stack."""
    picks: dict[str, set[int]] = {}
    for row in rows:
        if row is not None and row.pick is not None:
            picks.setdefault(row.source, set()).add(row.pick)
    return {name: len(found) for name, found in picks.items()}


def unlike_copies(family: Family, config: Config, stored: Mapping[str, Stored]) -> list[str]:
    """The stored weights that are tied to another one in the family, but hold other numbers."""
    unlike: list[str] = []
    for name, path in family.copies.items():
        row = family_row(family, config, path, stored) if name in stored else None
        if row is None or row.source not in stored or row.source == name:
            continue
        copy, original = stored[name], stored[row.source]
        if not {copy.kind, original.kind} <= {*READABLE}:
            unlike.append(name)
            continue
        if copy.shape != original.shape or not np.array_equal(copy.read(), original.read()):
            unlike.append(name)
    return unlike


def _arrays(
    rows: Mapping[str, Row], shapes: Mapping[str, tuple[int, ...]], used: Mapping[str, Stored], place: str
) -> dict[str, Array]:
    """Read each tensor once, and make the parameters that are from it."""
    paths: dict[str, list[str]] = {}
    for path, row in rows.items():
        paths.setdefault(row.source, []).append(path)
    made: dict[str, Array] = {}
    broken: list[str] = []
    for name, targets in paths.items():
        array = used[name].read()
        if not np.isfinite(array).all():
            broken.append(name)
        for path in targets:
            gain, axis = rows[path].gain, rows[path].gain_axis
            whole = array if gain is None else _with_lengths(array, used[gain].read(), axis)
            if gain is not None and not np.isfinite(whole).all():
                broken.append(gain)
            made[path] = rows[path].of_array(whole, shapes[path])
    _refuse({"not finite": broken}, "the weights hold values that are no numbers", place)
    return {path: made[path] for path in shapes}


def lengths_of(array: Array, axis: int) -> Array:
    """The length of each part of a tensor along an axis, with the other axes of size 1."""
    over = tuple(other for other in range(array.ndim) if other != axis)
    return np.sqrt(np.square(array.astype(np.float64)).sum(over, keepdims=True)).astype(np.float32)


def _with_lengths(directions: Array, lengths: Array, axis: int) -> Array:
    """The tensor with these directions and lengths (Salimans and Kingma, 2016, equation 2)."""
    found = np.maximum(lengths_of(directions, axis), np.finfo(np.float32).tiny)
    return directions * (lengths / found).astype(np.float32)


def _refuse(problems: Mapping[str, Sequence[str]], message: str, place: str) -> None:
    if any(problems.values()):
        lines = "".join(f"\n  {what}: {_some(names)}" for what, names in problems.items() if names)
        raise UserError(f"{message}:{lines}", place=place)


def _some(names: Sequence[str]) -> str:
    more = len(names) - LISTED
    return ", ".join(name[:300] for name in names[:LISTED]) + (f" and {more} more" if more > 0 else "")


def family_row(family: Family, config: Config, path: str, stored: Container[str]) -> Row | None:
    """The row of a parameter: of the patterns that match its path, the last one; of several names, a stored one."""
    for pattern, tree in reversed(list(family.weights.items())):
        match = _pattern(pattern).fullmatch(path)
        if match is not None:
            source = tree.get("from") or tree
            parts = match.groups()
            gain = tree.get("gain")
            row = _filled_row(tree, config, _stored_name(source, parts, stored))
            if tree.get("pick") is not None:
                row = replace(row, pick=int(parts[-1]))
            return row if gain is None else replace(row, gain=_stored_name(gain, parts, stored))
    return None


def _stored_name(source: Tree, parts: Sequence[str], stored: Container[str]) -> str:
    """Of the names of a tensor, the one that is stored, or the first one."""
    names = [_with_parts(item.word, parts) for item in source.items or (source,)]
    return next((name for name in names if name in stored), names[0])


def label_order(family: Family, config: Config, shapes: Mapping[str, tuple[int, ...]]) -> list[int]:
    """The ids there of the labels here; none if they are the same."""
    rows = ((family_row(family, config, path, ()), shape) for path, shape in shapes.items())
    orders = [row.order(shape[0]) for row, shape in rows if row is not None and row.first]
    return orders[0] if orders else []


def _with_parts(name: str, parts: Sequence[str]) -> str:
    """The name, in which each `*` is a part of the path."""
    left = iter(parts)
    return re.sub(r"\*", lambda _: next(left, "*"), name)


def _filled_row(tree: Tree, config: Config, name: str) -> Row:
    def number(key: str, other: float) -> float:
        item = tree.get(key)
        value = other if item is None else config.filled(item)
        if not (isinstance(value, int | float) and math.isfinite(value)):
            raise UserError(f"'{key}' must be a number", place=(item or tree).span.place)
        return value

    def whole(key: str) -> tuple[int, ...] | None:
        item = tree.get(key)
        return None if item is None else tuple(one for one in map(config.filled, item.items) if type(one) is int)

    rows, bounds, shape = tree.get("rows"), whole("rows"), whole("shape")
    order, axes = tree.get("axes"), (1, 0) if number("transposed", False) else whole("axes")
    if axes is not None and sorted(axes) != list(range(len(axes))):
        raise UserError("'axes' must name each axis from 0 once", place=(order or tree).span.place)
    if rows is not None and (bounds is None or len(bounds) != 2 or len(rows.items) != 2):
        raise UserError("'rows' must be two whole numbers, [start, stop]", place=rows.span.place)
    return Row(
        name,
        axes=axes,
        part=int(number("part", 0)),
        of=int(number("of", 1)),
        each=int(number("each", 1)),
        rows=(bounds[0], bounds[1]) if bounds else None,
        plus=float(number("plus", 0.0)),
        shape_there=shape,
        first=whole("first") or (),
        gain_axis=int(number("gain_axis", 0)),
    )


def _pattern(text: str) -> re.Pattern[str]:
    """`*` is any one name of a path or number of a weight's name."""
    return re.compile(re.escape(text).replace(r"\*", r"([^/.]+)"))


def _fits(found: tuple[int, ...] | None, wanted: tuple[int, ...]) -> bool:
    """Whether the axes of `found` are those of `wanted`, of which neighbours may be merged."""
    if found is None:
        return False
    borders = set(accumulate(wanted, mul, initial=1))
    return set(accumulate(found, mul, initial=1)) <= borders and max(borders) in set(accumulate(found, mul, initial=1))
