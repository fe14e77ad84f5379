"""Reads untrusted JSON: every value is read with its required type and range."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from xformc.errors import UserError


@dataclass(frozen=True)
class Document:
    """A JSON object at `path` in the file `place`. Every method returns a checked value or raises UserError."""

    place: str
    fields: Mapping[str, object]
    path: str = ""

    def text(self, key: str, choices: tuple[str, ...] = ()) -> str:
        """Return a printable string, one of `choices` if there are any."""
        value = self._get(key)
        if not isinstance(value, str) or not value.isprintable() or (choices and value not in choices):
            raise self._wrong(key, " or ".join(choices) if choices else "a printable string", value)
        return value

    def optional_text(self, key: str, choices: tuple[str, ...] = ()) -> str | None:
        """Return a printable string, or None for null."""
        return None if self._get(key) is None else self.text(key, choices)

    def optional_texts(self, key: str) -> tuple[str, ...] | None:
        """Return a list of one or more distinct printable strings, or None for null."""
        value = self._get(key)
        if value is None:
            return None
        items = cast(list[object], value) if isinstance(value, list) else []
        texts = [item for item in items if isinstance(item, str) and item.isprintable()]
        if not texts or len(set(texts)) < len(items):
            raise self._wrong(key, "a list of distinct strings", self._get(key))
        return tuple(texts)

    def integer(self, key: str, low: int, high: int = 2**62) -> int:
        """Return an integer in [low, high]."""
        value = self._get(key)
        if type(value) is not int or not low <= value <= high:
            raise self._wrong(key, f"an integer from {low:,} to {high:,}", value)
        return value

    def optional_integer(self, key: str, low: int, high: int = 2**62) -> int | None:
        """Return an integer from `low` to `high`, or None for null."""
        return None if self._get(key) is None else self.integer(key, low, high)

    def integers(self, key: str, count: int) -> tuple[int, ...]:
        """Return a list of `count` integers, each 1 or more."""
        value = self._get(key)
        items = cast(list[object], value) if isinstance(value, list) else []
        sizes = tuple(item for item in items if type(item) is int and item >= 1)
        if len(items) != count or len(sizes) != count:
            raise self._wrong(key, f"a list of {count} integers, each 1 or more", self._get(key))
        return sizes

    def ids(self, key: str, most: int, size: int, least: int = 1, *, distinct: bool = True) -> tuple[int, ...]:
        """Return a list of `least` to `most` integers in [0, size), each once if they are to be `distinct`."""
        value = self._get(key)
        items = cast(list[object], value) if isinstance(value, list) else []
        found = tuple(item for item in items if type(item) is int and 0 <= item < size)
        fit = len(set(found) if distinct else found) == len(items)
        if not isinstance(value, list) or not least <= len(items) <= most or not fit:
            required = f"a list of {least} to {most} {'distinct ' * distinct}integers from 0 to {size - 1:,}"
            raise self._wrong(key, required, self._get(key))
        return found

    def number(self, key: str, low: float, high: float) -> float:
        """Return a finite number in [low, high]."""
        value = self._get(key)
        if type(value) not in (int, float) or not low <= cast(float, value) <= high:
            raise self._wrong(key, f"a number from {low:g} to {high:g}", value)
        return float(cast(float, value))

    def boolean(self, key: str) -> bool:
        """Return true or false."""
        value = self._get(key)
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false", value)
        return value

    def section(self, key: str) -> "Document":
        """Return the object under `key`."""
        value = self._get(key)
        if not isinstance(value, dict):
            raise self._wrong(key, "an object", value)
        return Document(self.place, cast(dict[str, object], value), f"{self.path}{key}.")

    def optional_section(self, key: str) -> "Document | None":
        """Return the object under `key`, or None for null."""
        return None if self._get(key) is None else self.section(key)

    def sections(self, key: str) -> "list[Document]":
        """Return the objects in the list under `key`."""
        value = self._get(key)
        if not isinstance(value, list):
            raise self._wrong(key, "a list", value)
        items = {str(index): item for index, item in enumerate(cast(list[object], value))}
        inner = Document(self.place, items, f"{self.path}{key}.")
        return [inner.section(index) for index in items]

    def _get(self, key: str) -> object:
        if key not in self.fields:
            raise UserError(f"the key {self.path}{key} is missing", place=self.place, hint=_REBUILD)
        return self.fields[key]

    def _wrong(self, key: str, required: str, found: object) -> UserError:
        shown = json.dumps(found, separators=(",", ":"))
        shown = shown if len(shown) <= 60 else shown[:60] + "..."
        return UserError(f"{self.path}{key} must be {required}, not {shown}", place=self.place, hint=_REBUILD)


def read_document(path: Path, *, limit: int) -> Document:
    """Return the JSON object in the file `path`.

    Raises: UserError if the file is missing, larger than `limit` bytes, or not one JSON object.
    """
    with path.open("rb") as handle:
        data = handle.read(limit + 1)
    if len(data) > limit:
        raise UserError(f"larger than {limit:,} bytes", place=str(path), hint=_REBUILD)
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UserError("not JSON", place=str(path), hint=_REBUILD) from error
    if not isinstance(fields, dict):
        raise UserError("not a JSON object", place=str(path), hint=_REBUILD)
    return Document(str(path), cast(dict[str, object], fields))


_REBUILD = "the file is damaged or was not written by xformc: copy the engine again, or rebuild it with `xformc build`"
