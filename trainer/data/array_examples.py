"""Makes examples of arrays: checks each array against the spec's inputs, and turns it into a column."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from xformc.compiler.spec.model import Input, InputKind
from xformc.errors import UserError
from xformc.format.tokens import IGNORE, PAD
from xformc.runtime.arrays import is_float32
from xformc.trainer.data.batches import Examples, without_long
from xformc.trainer.data.columns import Column, Counts, Edges, Sequences, Values, inside
from xformc.trainer.data.data_schema import DataSchema
from xformc.trainer.data.label_names import COLUMN, some
from xformc.trainer.data.npz import Array, Arrays, label_ids_of


def encode_arrays(arrays: Arrays, schema: DataSchema, names: Sequence[str]) -> Examples:
    """Return the examples of one split, without those that are too long; label `i` has the name `names[i]`.

    Raises: UserError that lists everything that does not fit the schema.
    """
    require_rows(arrays)
    reader = ArrayReader(arrays.arrays, schema)
    for name, item in sorted(schema.inputs.items(), key=lambda pair: pair[1].of is not None):
        _KINDS[item.kind](reader, name, item)
    reader.labels(names)
    for name in sorted(arrays.arrays.keys() - reader.known):
        reader.problems.append(f"'{name}' is not one of the arrays {', '.join(sorted(reader.known))}")
    if reader.problems:
        raise UserError(
            "\n  ".join(reader.problems),
            place=str(arrays.path),
            hint="n is the number of examples; rows are counted from 0",
        )
    inputs = {name: reader.columns[name] for name in schema.inputs}
    return without_long(Examples(inputs, {COLUMN: reader.columns[COLUMN]}, {COLUMN: IGNORE}, schema.longest))


def require_rows(arrays: Arrays) -> None:
    """Check that every array has as many rows as the others, and one at least. Raises: UserError with their numbers."""
    counts = {name: len(array) if array.ndim else 0 for name, array in arrays.arrays.items()}
    if len(set(counts.values())) != 1 or 0 in counts.values():
        found = ", ".join(f"'{name}' has {count}" for name, count in counts.items())
        raise UserError(
            f"every array needs one row for each example; {found or 'there are no arrays'}", place=str(arrays.path)
        )


@dataclass(frozen=True)
class ArrayReader:
    """Checks the arrays one by one: each becomes one of `columns` or adds to `problems`.

    `known` collects the names of the expected arrays.
    """

    arrays: Mapping[str, Array]
    schema: DataSchema
    columns: dict[str, Column] = field(default_factory=dict[str, Column])
    problems: list[str] = field(default_factory=list[str])
    known: set[str] = field(default_factory=set[str])

    def read(self, name: str, array: str | None = None) -> None:
        """Read an input from the array of its name, or from another array."""
        item = self.schema.inputs[name]
        _KINDS[item.kind](self, array or name, item)

    def array(self, name: str, kinds: str, *sizes: int | str) -> Array | None:
        """Return the array `name` if its dtype is one of `kinds` and its shape [n, *sizes]; a str is any size."""
        self.known.add(name)
        array = self.arrays.get(name)
        words = " or ".join(dict.fromkeys(_DTYPES[kind] for kind in kinds))
        wanted = f"'{name}' must be {words} [{', '.join(map(str, ('n', *sizes)))}]"
        if array is None:
            self.problems.append(f"{wanted}, but is missing")
            return None
        fits = array.ndim == 1 + len(sizes) and all(
            isinstance(size, str) or size == found for size, found in zip(sizes, array.shape[1:], strict=True)
        )
        if array.dtype.kind not in kinds or not fits:
            self.problems.append(f"{wanted}, found {array.dtype} {list(array.shape)}")
            return None
        finite = array.dtype.kind != "f" or is_float32(array)
        return array if self.holds(finite, f"'{name}' must be finite numbers in float32") else None

    def holds(self, right: Array | bool, message: str) -> bool:
        """Return whether all of `right` [n, ..] is true; if not, add a problem with the message and first bad row."""
        if np.all(right):
            return True
        rows = np.asarray(right)
        where = f"; row {np.argmin(rows.reshape(len(rows), -1).all(1))} is not" if rows.ndim else ""
        self.problems.append(message + where)
        return False

    def tokens(self, name: str, item: Input) -> None:
        """Read ids."""
        array = self.array(name, "iu", "longest")
        if array is None:
            return
        filled, most = array != PAD, item.vocabulary - 1
        lengths = filled.sum(1)
        ended = (filled == inside(lengths, array.shape[1])).all(1) & (lengths > 0)
        known = self.holds((array >= 0) & (array <= most), f"'{name}' must be ids from 0 to {most}")
        if known and self.holds(ended, f"'{name}' must be one or more ids in each row, then padding (0)"):
            along = self.columns.get(item.of or "")
            message = f"'{name}' must have as many ids as '{item.of}' has positions"
            if along is None or self.holds(lengths == along.lengths(), message):
                self.columns[name] = _ragged(array.astype(np.int32), lengths)

    def vectors(self, name: str, item: Input) -> None:
        """Read vectors and their lengths."""
        array = self.array(name, "f", "longest", item.axes[0].size or 0)
        if item.of is not None:
            self.vectors_along(name, item.of, array)
            return
        lengths = self.array(f"{name}_lengths", "iu")
        if array is None or lengths is None:
            return
        most = array.shape[1]
        if self.holds((lengths >= 1) & (lengths <= most), f"'{name}_lengths' must be from 1 to {most}"):
            vectors = _ragged(array, lengths.astype(np.int64))
            self.columns[name] = Sequences(vectors.items, vectors.starts, vectors.ends, masked=True)

    def vectors_along(self, name: str, of: str, array: Array | None) -> None:
        """Read vectors that have the lengths of another input."""
        along = self.columns.get(of)
        if array is None or along is None:
            return
        lengths, held = along.lengths(), array.shape[1]
        if self.holds(lengths <= held, f"'{name}' must cover all positions of '{of}', found {held}"):
            self.columns[name] = _ragged(array, lengths)

    def values(self, name: str, item: Input) -> None:
        """Read values."""
        array = self.array(name, "fiu", *(axis.size or 0 for axis in item.axes))
        if array is not None:
            self.columns[name] = Values(array)

    def edges(self, name: str, item: Input) -> None:
        """Read edges, after the input whose positions they join."""
        array = self.array(name, "biu", "longest", "longest")
        joined = self.columns.get(item.of or "")
        if array is None or joined is None:
            return
        lengths, held = joined.lengths(), min(array.shape[1:])
        enough = self.holds(lengths <= held, f"'{name}' must cover all positions of '{item.of}', found {held}")
        if enough and self.holds((array == 0) | (array == 1), f"'{name}' must be 0 or 1"):
            self.columns[name] = Edges(array.astype(np.bool_), lengths)

    def labels(self, names: Sequence[str]) -> None:
        """Read the labels of a task."""
        each = self.schema.positions
        array = self.array(COLUMN, "iuU", *(() if each is None else ("longest",)))
        sequence = self.columns.get(each or "")
        if array is None or (each is not None and sequence is None):
            return
        ids = label_ids_of(array, names)
        known = (ids >= 0) & (ids < self.schema.classes)
        words = f"one of {some(names)}" if array.dtype.kind == "U" else f"from 0 to {self.schema.classes - 1}"
        wanted = f"'{COLUMN}' must be {words}"
        if sequence is None:
            if self.holds(known, wanted):
                self.columns[COLUMN] = Values(ids, whole=True)
            return
        lengths, width = sequence.lengths(), array.shape[1]
        right = (known & inside(lengths, width)) | (ids == IGNORE)
        if not self.holds(lengths <= width, f"'{COLUMN}' must cover all positions of '{each}', found {width}"):
            return
        if self.holds(right, f"{wanted}, or {IGNORE} for positions without a label") and self.holds(
            (known & right).any(1), f"'{COLUMN}' must have a label in each row"
        ):
            self.columns[COLUMN] = _ragged(ids, lengths, fill=IGNORE)


_KINDS: Mapping[InputKind, Callable[[ArrayReader, str, Input], None]] = {
    "tokens": ArrayReader.tokens,
    "vectors": ArrayReader.vectors,
    "values": ArrayReader.values,
    "edges": ArrayReader.edges,
}
_DTYPES = {"b": "bool", "i": "int", "u": "int", "f": "float", "U": "text"}


def _ragged(array: Array, lengths: Counts, fill: int = PAD) -> Sequences:
    """Return the rows of `array` [n, longest, ..], each cut to its length."""
    ends = np.cumsum(lengths)
    return Sequences(array[inside(lengths, array.shape[1])], ends - lengths, ends, fill)
