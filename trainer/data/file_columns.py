"""Columns of texts that name files: reads the files, each as an input of its line's example."""

import hashlib
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from xformc.compiler.spec.model import Input as Declared
from xformc.errors import UserError
from xformc.format.inputs import Input
from xformc.runtime.media.reader import read_file, suffixes_of
from xformc.runtime.rows import Array, stack
from xformc.trainer.data.columns import Column, Sequences, Values
from xformc.trainer.data.label_names import COLUMN
from xformc.trainer.data.npz import Arrays
from xformc.trainer.data.text_files import Texts

MOST_BYTES = 1 << 37
"""The maximum total size of the arrays of a split."""


def read_files(texts: Texts, inputs: Mapping[str, Input]) -> Texts:
    """Return the texts with the arrays of these columns, whose cells name files below the folder of the texts.

    The hash covers the content of the files.

    Raises: UserError with the line, for a file outside that folder or one that cannot be read as the input.
    """
    digest, total = hashlib.sha256(texts.sha256.encode()), 0
    arrays: dict[str, list[Array]] = {}
    for name, item in inputs.items():
        arrays[name] = []
        for line, cell in zip(texts.lines, texts.columns[name], strict=True):
            place = f"{texts.path}:{line}"
            array = _read(texts, cell, name, item, place)
            total += array.nbytes
            if total > MOST_BYTES:
                raise UserError(f"the files have more than {MOST_BYTES:,} bytes in all", place=place)
            digest.update(array.tobytes())
            arrays[name].append(array)
    return replace(texts, arrays=arrays, sha256=digest.hexdigest())


def file_column(texts: Texts, name: str, item: Declared) -> Column:
    """The column of an input that was read from files."""
    arrays = texts.arrays[name]
    if item.kind == "values":
        return Values(np.stack(arrays))
    lengths = np.array([len(array) for array in arrays], np.int64)
    ends = np.cumsum(lengths)
    return Sequences(np.concatenate(arrays), ends - lengths, ends, masked=True)


def as_arrays(texts: Texts, inputs: Mapping[str, Input]) -> Arrays:
    """The texts of a task as arrays: those of the files, vectors padded, and the labels."""
    rows = [dict(zip(inputs, row, strict=True)) for row in zip(*(texts.arrays[name] for name in inputs), strict=True)]
    found = stack(inputs, rows)
    for name in [name for name, item in inputs.items() if item.is_sequence]:
        found[f"{name}_lengths"] = found.pop(f"{name}_mask").sum(1)
    return Arrays({**found, COLUMN: np.array(texts.columns[COLUMN])}, texts.path, texts.sha256)


def _read(texts: Texts, cell: str, name: str, item: Input, place: str) -> Array:
    folder = texts.path.parent
    path = folder / cell
    try:
        contained = path.resolve().is_relative_to(folder.resolve())
        if not contained:
            message = f"{cell[:80]} is not below the folder of this file"
            raise UserError(message, place=place, hint="copy it there, and name it relative to the folder")
        return read_file(path, name, item)
    except ValueError:
        raise UserError(f"'{name}' must be the name of a file, found {cell[:80]!r}", place=place) from None
    except UserError as error:
        if error.place == place:
            raise
        hint = error.hint
        if path.suffix.lower() not in suffixes_of(item):
            hint = f"each line must be {', one tab, '.join(texts.columns)}"
        elif not path.exists():
            hint = "a name is relative to the folder of this file"
        raise UserError(f"{cell[:80]}: {error.message}", place=place, hint=hint) from error
