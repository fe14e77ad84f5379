"""Reads the files of a model of CTranslate2: its binary file has variables, in their number formats, and names for the
same ones; its config.json has options."""

import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, cast

import numpy as np

from xformc.compiler.spec.tree import Scalar
from xformc.errors import UserError
from xformc.format.manifest import TOKENIZER_BYTES
from xformc.imports.checkpoint import Array, Stored
from xformc.imports.json_file import read_json
from xformc.imports.tokenizers import unused_name

MODEL, CONFIG = "model.bin", "config.json"
PADDINGS = ("<pad>", "<blank>")
VERSION, MOST_VARIABLES, MOST_AXES = 6, 100_000, 8
KINDS = ("F32", "I8", "I16", "I32", "F16", "BF16")
"""The formats of numbers, by CTranslate2's number of each."""

_TYPES = {"F32": "<f4", "I8": "i1", "I16": "<i2", "I32": "<i4", "F16": "<f2", "BF16": "<u2"}
_SCALE = "_scale"


@dataclass(frozen=True)
class Binary:
    """The content of a file: the name of the model's class, its variables, and other names of these."""

    name: str
    variables: Mapping[str, Stored]
    aliases: Mapping[str, str]

    def numbers(self) -> dict[str, int | float]:
        """The variables of one number by name, but for the scales of weights."""
        scales = {f"{name}{_SCALE}" for name, one in self.variables.items() if one.shape}
        single = {name: one for name, one in self.variables.items() if one.shape == () and name not in scales}
        found = {name: one.read().item() for name, one in single.items()}
        floats = ("F32", "F16", "BF16")
        return {name: one if self.variables[name].kind in floats else int(one) for name, one in found.items()}

    def tensors(self) -> dict[str, Stored]:
        """The weights by each of their names; those in int8 and int16 become the numbers that they stand for."""
        named = {name: one for name, one in self.variables.items() if one.shape and not name.endswith(_SCALE)}
        found = {name: self._whole(name, one) for name, one in named.items()}
        return found | {alias: found[name] for alias, name in self.aliases.items() if name in found}

    def _whole(self, name: str, one: Stored) -> Stored:
        scale = self.variables.get(f"{name}{_SCALE}")
        if scale is None or one.kind not in ("I8", "I16"):
            return one
        return Stored(name, one.shape, "F32", partial(_divided, one, scale))


def class_of(path: Path) -> bytes:
    """The name of the class that a model.bin, or the one in a folder, begins with; empty for any other file."""
    file = path / MODEL if path.is_dir() else path
    if file.name != MODEL or not file.is_file():
        return b""
    with file.open("rb") as opened:
        start = opened.read(256)
    if len(start) < 6:
        return b""
    version, length = struct.unpack_from("<IH", start)
    return start[6 : 6 + length] if 1 <= version <= VERSION else b""


def read_options(folder: Path) -> Mapping[str, object]:
    """The options beside a model. Raises: UserError for a file that is damaged."""
    content: object = read_json(folder / CONFIG, TOKENIZER_BYTES, "options of CTranslate2", lambda found: found)
    if not isinstance(content, dict):
        raise UserError("must be a mapping", place=str(folder / CONFIG))
    return cast(Mapping[str, object], content)


def read_vocabulary(folder: Path, name: str) -> list[str]:
    """The tokens in `name.json` or `name.txt` by id; none without either. One that is there again has the first id, and
    another name. Raises: UserError for no list of texts."""
    path, lines = folder / f"{name}.json", folder / f"{name}.txt"
    if path.is_file():
        content: object = read_json(path, TOKENIZER_BYTES, "a vocabulary", lambda found: found)
        items = cast(list[object], content) if isinstance(content, list) else []
        names = [item for item in items if isinstance(item, str)]
        if not names or len(names) < len(items):
            raise UserError("must be a list of tokens", place=str(path))
        return _each_once(names)
    if not lines.is_file():
        return []
    if lines.stat().st_size > TOKENIZER_BYTES:
        raise UserError(f"larger than {TOKENIZER_BYTES:,} bytes", place=str(lines))
    return _each_once(lines.read_text(encoding="utf-8", errors="replace").rstrip("\n").split("\n"))


def _each_once(names: list[str]) -> list[str]:
    first = {name: number for number, name in reversed([*enumerate(names)])}
    return [name if first[name] == number else unused_name(number) for number, name in enumerate(names)]


def scalars(options: Mapping[str, object]) -> dict[str, Scalar]:
    """The options that are one value, by the names of a table."""
    return {f"config.{key}": one for key, one in options.items() if isinstance(one, str | bool | int | float)}


def scaled(scale: float, width: int, place: str, name: str) -> int:
    """Whether the embeddings are scaled, 1 or 0: of an integer itself, else by the factor. Raises: UserError."""
    if isinstance(scale, int):
        return scale
    whole = math.isclose(scale, math.sqrt(width), rel_tol=1e-6)
    if not whole and not math.isclose(scale, 1):
        raise UserError(f"{name} is {scale:g}; imported are 1 and sqrt(d_model)", place=place)
    return int(whole)


def count_layers(tensors: Mapping[str, Stored], side: str) -> int:
    """The number of layers of the encoder or the decoder."""
    return len({name.split("/")[1] for name in tensors if name.startswith(f"{side}/layer_") and name.count("/") > 2})


def read_binary(path: Path) -> Binary:
    """The content of a model.bin. Raises: UserError for a file that is damaged or of another version."""
    data = np.memmap(path, np.uint8, "r") if path.stat().st_size else np.zeros(0, np.uint8)
    try:
        return _Cursor(data).content()
    except (struct.error, UnicodeDecodeError, OverflowError) as error:
        raise UserError(f"not a complete model of CTranslate2: {error}", place=str(path)) from None
    except UserError as error:
        raise UserError(error.message, place=str(path)) from None


class _Cursor:
    """A place in the file, which moves on as it is read."""

    def __init__(self, data: Any) -> None:
        self._data, self._place = data, 0

    def content(self) -> Binary:
        version = self._number("<I")
        if version != VERSION:
            raise UserError(f"not a model of CTranslate2: version {version:,}; imported is version {VERSION}")
        name, _ = self._text(), self._number("<I")
        variables = [self._variable() for _ in range(self._count())]
        aliases = [(self._text(), self._text()) for _ in range(self._count())]
        return Binary(name, {one.name: one for one in variables}, dict(aliases))

    def _count(self) -> int:
        count = self._number("<I")
        if count > MOST_VARIABLES:
            raise UserError(f"has {count:,} variables")
        return count

    def _variable(self) -> Stored:
        name, axes = self._text(), self._number("<B")
        if axes > MOST_AXES:
            raise UserError(f"{name[:100]} has {axes} axes")
        shape = tuple(self._number("<I") for _ in range(axes))
        kind, size = self._number("<B"), self._number("<I")
        if kind >= len(KINDS) or prod(shape) * np.dtype(_TYPES[KINDS[kind]]).itemsize != size:
            raise UserError(f"{name[:100]} has the type {kind} and {size:,} bytes for {list(shape)}")
        return Stored(name, shape, KINDS[kind], _reader(self._part(size), KINDS[kind], shape))

    def _number(self, form: str) -> int:
        size = struct.calcsize(form)
        (found,) = struct.unpack(form, bytes(self._part(size)))
        return int(found)

    def _text(self) -> str:
        return bytes(self._part(self._number("<H"))).rstrip(b"\0").decode()

    def _part(self, size: int) -> Any:
        start, self._place = self._place, self._place + size
        if self._place > len(self._data):
            raise UserError("not a complete model of CTranslate2")
        return self._data[start : self._place]


def _reader(part: Any, kind: str, shape: tuple[int, ...]) -> Callable[[], Array]:
    def read() -> Array:
        numbers = np.frombuffer(bytes(part), _TYPES[kind]).reshape(shape)
        if kind != "BF16":
            return numbers.astype(np.float32)
        return (numbers.astype(np.uint32) << 16).view(np.float32)

    return read


def _divided(one: Stored, scale: Stored) -> Array:
    """The quotients by the scale: one for each row, or one for all."""
    by = scale.read()
    return one.read() / by.reshape(-1, *[1] * (len(one.shape) - 1)) if by.ndim else one.read() / by
