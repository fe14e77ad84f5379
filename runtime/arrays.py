"""Reads examples given as arrays: one array for each input, with all rows padded to one length."""

import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast
from zipfile import BadZipFile, ZipFile

import numpy as np
from numpy.typing import NDArray

from xformc.errors import UserError
from xformc.format.inputs import Input
from xformc.runtime.rows import Array, Row

MOST_BYTES = 1 << 37
"""The maximum total size of the arrays of a file."""


def read_npz(path: Path) -> dict[str, Array]:
    """Return the arrays of an .npz file by name.

    Raises: OSError if the file cannot be read; UserError if it is not a whole .npz file, holds Python objects, or is
    larger than MOST_BYTES.
    """
    try:
        with ZipFile(path) as packed:
            size = sum(member.file_size for member in packed.infolist())
        if size > MOST_BYTES:
            raise ValueError(f"{size:,} bytes, more than {MOST_BYTES:,}")
        with np.load(path, allow_pickle=False) as file:
            return {name: _plain(path, name, file) for name in sorted(file.files)}
    except _BROKEN as error:
        reason = str(error) or type(error).__name__
        raise UserError(f"not an .npz file of plain arrays: {reason}", place=str(path), hint=_NPZ) from error


def _plain(path: Path, name: str, file: Mapping[str, Array]) -> Array:
    try:
        return file[name]
    except ValueError as error:
        if "Object arrays" not in str(error):  # numpy's words for an array that only pickle can read
            raise
        raise UserError(f"the array '{name}' holds Python objects", place=str(path), hint=_OBJECTS) from error


def read_rows(
    inputs: Mapping[str, Input], arrays: Mapping[str, Any], targets: Collection[str] = ("labels",)
) -> list[Row]:
    """Return the examples in `arrays`, whose layout is described in docs/runtime.md.

    `targets` are names that the file may have besides, for training.

    Raises: UserError for an array that is missing, unknown, or has the wrong type, shape or values.
    """
    found = {name: as_array(name, array) for name, array in arrays.items() if name not in targets}
    measured = [name for name, item in inputs.items() if item.kind == "vectors" and item.is_sequence]
    wanted = [*inputs, *(f"{name}_lengths" for name in measured)]
    missing = [name for name in wanted if name not in found]
    strange = [name for name in found if name not in wanted]
    _require_all(missing, strange, wanted)
    for name, item in inputs.items():
        _check(name, item, found)
    counts = {name: len(found[name]) for name in wanted}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise UserError(f"the arrays must have the same number of rows, not {listed}")
    return [_row(inputs, found, index) for index in range(min(counts.values()))]


def is_float32(array: Array) -> NDArray[np.bool_]:
    """Return for each number, of any float type, whether it is finite in float32."""
    return np.abs(array) <= np.finfo(np.float32).max


def as_array(name: str, given: Any) -> Array:
    """Return the array of nested lists. Raises: UserError with the place of a list that is longer or shorter."""
    try:
        return np.asarray(given)
    except ValueError as error:
        raise UserError(_uneven(name, given), hint="pad the shorter lists") from error


def _uneven(name: str, given: Any) -> str:
    """Say which of the nested lists differs in length from the first one at its depth."""
    level = [(name, given)]
    while level:
        counts = [_count(one) for _, one in level]
        other = next((index for index, count in enumerate(counts) if count != counts[0]), None)
        if other is not None:
            (first, _), (place, _) = level[0], level[other]
            return f"{place} {_of_size(counts[other])}, and {first} {_of_size(counts[0])}"
        lists = level if counts[0] is not None else []
        level = [(f"{place}[{index}]", item) for place, one in lists for index, item in enumerate(one)]
    return f"{name} is no array"


def _count(given: Any) -> int | None:
    """The items of a list or an array; None for anything else."""
    return len(cast(Sequence[Any], given)) if isinstance(given, list | tuple) or np.ndim(given) else None


def _of_size(count: int | None) -> str:
    return "is no list" if count is None else f"has {count:,} item{'s' * (count != 1)}"


def as_rows(inputs: Mapping[str, Input], rows: Sequence[Any]) -> list[Row]:
    """Return rows that a caller gives, with arrays in the place of lists.

    Raises: UserError with the number of a row, from 0, that lacks an input or has another type, shape or value.
    """
    checked: list[Row] = []
    for index, row in enumerate(rows):
        try:
            if not isinstance(row, Mapping):
                raise UserError(f"must be a mapping from {', '.join(inputs)} to arrays, not {type(row).__name__}")
            found = {name: as_array(name, array) for name, array in cast(Mapping[str, Any], row).items()}
            _require_all([name for name in inputs if name not in found], [], inputs)
            for name, item in inputs.items():
                _check_array(name, item, found[name], ())
        except UserError as error:
            raise UserError(error.message, place=f"row {index}", hint=error.hint) from error
        checked.append(found)
    return checked


def _require_all(missing: Sequence[str], strange: Sequence[str], wanted: Iterable[str]) -> None:
    if missing or strange:
        problem = [f"lack {', '.join(missing)}"] * bool(missing) + [f"have {', '.join(strange)}"] * bool(strange)
        raise UserError(f"the arrays {' and '.join(problem)}", hint=f"the inputs are {', '.join(wanted)}")


def _check(name: str, item: Input, found: Mapping[str, Array]) -> None:
    _check_array(name, item, found[name], ("rows",))
    if item.kind == "vectors" and item.is_sequence:
        _check_lengths(f"{name}_lengths", found[f"{name}_lengths"], found[name].shape[1])


def _check_array(name: str, item: Input, array: Array, before: tuple[str, ...]) -> None:
    """Check the array of an input; `before` are its axes before those of one row."""
    sizes = tuple(item.axes.values())
    kinds, what, positions = {
        "tokens": ("iu", "integers", (name,)),
        "vectors": ("fiu", "numbers", (name,)),
        "values": ("fiu", "numbers", ()),
        "edges": ("b", "true or false", (item.of, item.of)),
    }[item.kind]
    fixed = array.shape[array.ndim - len(sizes) :] == sizes
    if array.dtype.kind not in kinds or array.ndim != len(before) + len(positions) + len(sizes) or not fixed:
        shape = ", ".join(map(str, (*before, *positions, *sizes)))
        raise UserError(f"{name} must be {what} of shape [{shape}], not {array.dtype} of {list(array.shape)}")
    if item.rate is not None and array.dtype.kind != "f":
        raise UserError(f"{name} must be samples from -1 to 1, not {array.dtype}", hint=_SAMPLES)
    if item.kind == "tokens" and array.size and (array.min() < 0 or array.max() >= item.pieces):
        raise UserError(f"the ids of {name} must be from 0 to {item.pieces - 1}; one of them is not")
    if array.dtype.kind == "f" and not (finite := is_float32(array)).all():
        where = f"; row {np.argmin(finite.reshape(len(finite), -1).all(1))} is not" if before else ""
        raise UserError(f"{name} must be finite numbers in float32{where}")


def _check_lengths(name: str, lengths: Array, longest: int) -> None:
    if lengths.dtype.kind not in "iu" or lengths.ndim != 1:
        raise UserError(f"{name} must be integers of shape [rows], not {lengths.dtype} of {list(lengths.shape)}")
    if lengths.size and (lengths.min() < 1 or lengths.max() > longest):
        raise UserError(f"{name} must be from 1 to {longest}; one of them is not")


def _row(inputs: Mapping[str, Input], found: Mapping[str, Array], index: int) -> Row:
    lengths: dict[str, int] = {}
    for name, item in inputs.items():
        if item.kind == "tokens":
            lengths[name] = _filled(name, found[name][index], item.special.fill, index)
        elif item.kind == "vectors" and item.is_sequence:
            lengths[name] = int(found[f"{name}_lengths"][index])
    for name, length in lengths.items():
        longest = inputs[name].longest
        if longest is not None and length > longest:
            raise UserError(f"row {index} of {name} has {length:,} positions; this engine takes at most {longest:,}")
    lengths |= {
        name: _along(name, item, found[name][index], lengths, index) for name, item in inputs.items() if item.of
    }
    row: dict[str, Array] = {}
    for name, item in inputs.items():
        if item.kind == "edges":
            row[name] = _edges(name, found[name][index], lengths[item.of or ""], index)
        else:
            row[name] = found[name][index][: lengths.get(name)]
    return row


def _along(name: str, item: Input, array: Array, lengths: Mapping[str, int], index: int) -> int:
    """Return the positions of an input that lies along another one, or joins its positions."""
    wanted = lengths[item.of or ""]
    length = lengths.get(name, wanted if item.kind == "edges" else len(array))
    if length < wanted or (item.kind == "tokens" and length > wanted):
        raise UserError(f"row {index} of {name} has {length:,} positions, and {item.of} has {wanted:,}")
    return wanted


def _filled(name: str, ids: Array, fill: int, index: int) -> int:
    length = int((ids != fill).sum())
    if length == 0 or bool((ids[:length] == fill).any()):
        raise UserError(f"row {index} of {name} must be one or more tokens, then padding ({fill}) only")
    return length


def _edges(name: str, edges: Array, length: int, index: int) -> Array:
    if len(edges) < length or edges.shape[0] != edges.shape[1]:
        raise UserError(f"row {index} of {name} has shape {list(edges.shape)} for {length} positions")
    return edges[:length, :length]


_BROKEN = (ValueError, KeyError, EOFError, AttributeError, TypeError, MemoryError, BadZipFile, zlib.error)
_OBJECTS = "write numbers or texts: rows of one size, padded at the end, and their lengths in an array of their own"
_SAMPLES = "divide samples of 16 bits by 32768, as .wav files are read"
_NPZ = "write the file with numpy.savez('data.npz', name=array, ...)"
