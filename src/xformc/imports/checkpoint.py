"""Reads the safetensors files of a folder: shapes first, then one tensor at a time, in float32. Never a pickle."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from xformc.errors import UserError
from xformc.imports.json_file import read_json

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
READABLE = ("F64", "F32", "F16", "BF16")
MAX_INDEX_BYTES = 64 << 20

Array = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Stored:
    """A tensor of a file: its name there, the shape and the number format.

    read: the numbers in float32; it raises UserError if they cannot be read.
    """

    name: str
    shape: tuple[int, ...]
    kind: str
    read: Callable[[], Array]


def stored_tensors(folder: Path, prefix: str) -> dict[str, Stored]:
    """The tensors of a folder by their names without the prefix, if they have it.

    Raises: UserError for files that are missing, damaged or outside the folder, and for a name found twice.
    """
    found: dict[str, Stored] = {}
    for file in _files(folder):
        for stored in _headers(file):
            name = stored.name.removeprefix(prefix)
            if name in found:
                raise UserError(f"the weight {name[:200]} is there twice", place=str(file))
            found[name] = stored
    return found


def stored_in(file: Path) -> list[Stored]:
    """The tensors of one file of safetensors. Raises: UserError if it is damaged."""
    return _headers(file)


def _files(folder: Path) -> list[Path]:
    if (folder / SINGLE).is_file():
        return [folder / SINGLE]
    if (folder / INDEX).is_file():
        return _shards(folder, folder / INDEX)
    hint = "load the model with transformers and call save_pretrained, which writes safetensors"
    raise UserError(f"has neither {SINGLE} nor {INDEX}", place=str(folder), hint=hint)


def _shards(folder: Path, index: Path) -> list[Path]:
    """The files that an index names. Raises: UserError if it is damaged, or names a file outside the folder."""
    content = read_json(index, MAX_INDEX_BYTES, "an index", lambda content: content)
    table = cast(Mapping[str, object], content).get("weight_map") if isinstance(content, dict) else None
    files = list(cast(Mapping[str, object], table).values()) if isinstance(table, dict) else []
    names = sorted({name for name in files if isinstance(name, str)})
    if not names or not all(isinstance(name, str) for name in files):
        raise UserError("has no weight_map from names to files", place=str(index))
    outside = [name for name in names if Path(name).name != name or "\\" in name or not name.endswith(".safetensors")]
    if outside:
        raise UserError(f"names {outside[0][:200]!r}, which is no safetensors file of the folder", place=str(index))
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise UserError(f"names files that are not there: {', '.join(missing[:8])}", place=str(index))
    return [folder / name for name in names]


def _headers(file: Path) -> list[Stored]:
    try:
        handle: Any = safe_open(file, framework="pt")
        with handle as tensors:
            slices = {name: tensors.get_slice(name) for name in sorted(tensors.keys())}
            return [
                Stored(name, tuple(part.get_shape()), str(part.get_dtype()), partial(_numbers, file, name))
                for name, part in slices.items()
            ]
    except (OSError, SafetensorError, ValueError) as error:
        raise UserError(f"not a complete safetensors file: {error}", place=str(file)) from error


def _numbers(file: Path, name: str) -> Array:
    try:
        handle: Any = safe_open(file, framework="pt")
        with handle as tensors:
            return tensors.get_tensor(name).float().numpy()
    except (OSError, SafetensorError) as error:
        raise UserError(f"cannot be read: {error}", place=str(file)) from error
