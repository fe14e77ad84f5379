"""Reads Marian's files: npz archives without objects, and the binary format with int8 weights, of checked sizes."""

import struct
import zipfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, cast

import numpy as np
import yaml

from xformc.errors import UserError
from xformc.imports.checkpoint import Array, Stored

CONFIG = "special:model.yml"
VERSION, MOST_TENSORS, MOST_AXES = 1, 100_000, 8
FLOAT32, INT8, INTGEMM8 = 0x404, 0x101, 0x4101
"""Marian's numbers of types; intgemm8 are int8 of matrices that lie transposed, and their multiplier after them."""

UNUSED = ("_QuantMultA", "special:")


def read_npz(path: Path) -> dict[str, Stored]:
    """The tensors of an archive. Raises: UserError if it is damaged, compressed, or holds objects."""
    try:
        with zipfile.ZipFile(path) as archive:
            if any(item.compress_type != zipfile.ZIP_STORED for item in archive.infolist()):
                raise UserError("a compressed archive; Marian writes none", place=str(path))
        with np.load(path, allow_pickle=False) as arrays:
            found: dict[str, Any] = {name: arrays[name] for name in arrays.files}
    except UserError:
        raise
    except Exception as error:  # whatever a damaged archive leads to
        raise UserError(f"not an archive of Marian: {' '.join(str(error).split())[:200]}", place=str(path)) from None
    return {name: _stored(name, array) for name, array in found.items()}


def _stored(name: str, array: Any) -> Stored:
    kind = {"float32": "F32", "float16": "F16"}.get(str(array.dtype), str(array.dtype))
    return Stored(name, tuple(array.shape), kind, lambda: np.asarray(array, np.float32))


def read_binary(path: Path) -> dict[str, Stored]:
    """The tensors of a binary file; weights in int8 become the numbers that they stand for.

    Raises: UserError for a file that is damaged or of another version or type.
    """
    data = np.memmap(path, np.uint8, "r") if path.stat().st_size else np.zeros(0, np.uint8)
    try:
        return _tensors(data)
    except (struct.error, UnicodeDecodeError, OverflowError) as error:
        raise UserError(f"not a complete binary model of Marian: {error}", place=str(path)) from None
    except UserError as error:
        raise UserError(error.message, place=str(path)) from None


def _tensors(data: Any) -> dict[str, Stored]:
    version, count = struct.unpack_from("<QQ", data, 0)
    if version != VERSION or count > MOST_TENSORS:
        raise UserError(
            f"not a binary model of Marian: version {version}, {count:,} tensors; imported is version {VERSION}"
        )
    headers = [struct.unpack_from("<QQQQ", data, 16 + 32 * index) for index in range(count)]
    place, names, shapes = 16 + 32 * count, list[str](), list[tuple[int, ...]]()
    for length, *_ in headers:
        names.append(bytes(_part(data, place, length)).rstrip(b"\0").decode())
        place += length
    for _, _, axes, _ in headers:
        if axes > MOST_AXES:
            raise UserError(f"a tensor has {axes} axes")
        shapes.append(struct.unpack_from(f"<{axes}i", data, place))
        place += 4 * axes
    place += 8 + struct.unpack_from("<Q", data, place)[0]
    found: dict[str, Stored] = {}
    for name, shape, (_, kind, _, size) in zip(names, shapes, headers, strict=True):
        part = _part(data, place, size)
        place += size
        if name == CONFIG or (not name.startswith(UNUSED[1]) and not name.endswith(UNUSED[0])):
            found[name] = Stored(name, shape, *_numbers(name, kind, shape, part))
    return found


def _part(data: Any, start: int, size: int) -> Any:
    if start + size > len(data):
        raise UserError("not a complete binary model of Marian")
    return data[start : start + size]


def _numbers(name: str, kind: int, shape: tuple[int, ...], part: Any) -> tuple[str, Any]:
    """The number format of a tensor, and the function that reads it."""
    width = 4 if kind == FLOAT32 else 1
    count, extra = prod(shape), 4 if kind == INTGEMM8 else 0
    if kind not in (FLOAT32, INT8, INTGEMM8) or min(shape, default=0) < 1 or count * width + extra > len(part):
        raise UserError(f"{name[:100]} has the type {kind:#x} and {len(part):,} bytes for {list(shape)}")
    if kind == INTGEMM8:
        return "F32", partial(_dequantized, part, shape, lies=name != "Wemb")
    return "F32", lambda: part[: count * width].view("<f4" if width == 4 else "i1").astype(np.float32).reshape(shape)


def _dequantized(part: Any, shape: tuple[int, ...], *, lies: bool) -> Array:
    """int8 / multiplier; `lies`: the matrix is stored with its axes exchanged."""
    count = prod(shape)
    multiplier = part[count : count + 4].view("<f4")[0]
    array = part[:count].view("i1").astype(np.float32) / multiplier
    return np.ascontiguousarray(array.reshape(shape[::-1]).T) if lies else array.reshape(shape)


def read_words(content: bytes, place: str) -> list[tuple[str, str]]:
    """The words of a dictionary in YAML and what is behind them, as they are written: `no` is a word.

    Raises: UserError if it is none.
    """
    with _reading(place):
        root: object = cast(Any, yaml).compose(content.decode(), Loader=yaml.BaseLoader)
        pairs: list[tuple[Any, Any]] = root.value if isinstance(root, yaml.MappingNode) else []
    if not pairs or not all(isinstance(node, yaml.ScalarNode) for pair in pairs for node in pair):
        raise UserError("must map words to ids", place=place)
    return [(word.value, number.value) for word, number in pairs]


@contextmanager
def _reading(place: str) -> Generator[None]:
    """Within it, whatever YAML raises is a UserError."""
    try:
        yield
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise UserError(f"is no YAML: {' '.join(str(error).split())[:200]}", place=place) from None


def read_yaml(content: bytes, place: str) -> dict[str, object]:
    """The options in a YAML text. Raises: UserError if it is none."""
    with _reading(place):
        found: object = yaml.safe_load(content.rstrip(b"\0").decode())
    if not isinstance(found, dict):
        raise UserError("its options are no mapping", place=place)
    return {str(key): one for key, one in cast(Mapping[object, object], found).items()}
