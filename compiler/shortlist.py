"""The tokens that may occur in a translation, by those of its source: a file, and what a search allows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, numpy, safe_open

from xformc.errors import UserError
from xformc.files import atomic_write
from xformc.format.inputs import Input

TENSORS = COMMON, LIKELY = "common", "likely"
"""The tensors of a file; those of a model have the names `in_model`."""

NO_TOKEN = -1
"""What pads the rows of `likely`."""

MOST_LIKELY = 4096
"""The most tokens of a row."""

MOST_NUMBERS = 2**31
"""The most numbers of a tensor, 8 GiB of them."""


@dataclass(frozen=True)
class Shortlist:
    """Target tokens that any translation may have, `common` int32 [count], and those that each source token allows,
    `likely` int32 [source vocabulary, most], padded with NO_TOKEN."""

    common: NDArray[np.int32]
    likely: NDArray[np.int32]

    @property
    def tensors(self) -> dict[str, NDArray[np.int32]]:
        """The lists by their names in a file."""
        return {COMMON: self.common, LIKELY: self.likely}

    def allowed(
        self, source: Sequence[int] | NDArray[np.int64], others: Sequence[int], vocabulary: int
    ) -> NDArray[np.bool_]:
        """Which tokens a translation of `source` may have, [vocabulary]; `others` are those that a call asks for."""
        found = np.zeros(vocabulary, np.bool_)
        for tokens in (self.common, self.likely[np.asarray(source, np.int64)].ravel(), np.asarray(others, np.int64)):
            found[tokens[tokens >= 0]] = True
        return found

    def equals(self, other: "Shortlist") -> bool:
        """Whether both have the same lists."""
        return all(np.array_equal(own, other.tensors[name]) for name, own in self.tensors.items())

    def fitted(self, source: Input, written: Input, place: str) -> "Shortlist":
        """The list in which any text may end, padding is never written, and the padding of a source allows nothing.

        Raises: UserError if it does not fit the vocabularies of a model, which both have padding.
        """
        if len(self.likely) != source.pieces:
            raise UserError(
                f"the shortlist has a row for {len(self.likely):,} source tokens, the model has {source.pieces:,}",
                place=place,
                hint="make it with the model's tokenizer: xformc shortlist RUN --data DATA",
            )
        largest = max(int(array.max(initial=NO_TOKEN)) for array in (self.common, self.likely))
        if largest >= written.pieces:
            message = f"the shortlist has the token {largest:,}; the model writes {written.pieces:,}"
            raise UserError(message, place=place, hint=_MAKE)
        special, pad = written.special, written.special.absent
        likely = np.where(self.likely == pad, NO_TOKEN, self.likely)
        likely[source.special.absent] = NO_TOKEN
        common = np.setdiff1d(np.union1d(self.common, special.end), [NO_TOKEN, pad])
        return Shortlist(common.astype(np.int32), likely.astype(np.int32))


def read_shortlist(path: Path) -> Shortlist:
    """Read a file. Raises: UserError if it is none."""
    if not path.is_file():
        raise UserError("is no file" if path.exists() else "no such file", place=str(path), hint=_MAKE)
    try:
        handle: Any = safe_open(path, framework="np")
        with handle as tensors:
            names = set(tensors.keys())
            if names != {*TENSORS}:
                listed = ", ".join(repr(name)[:40] for name in sorted(names)[:4]) or "no tensors"
                raise UserError(f"not a shortlist: it has {listed}", place=str(path), hint=_MAKE)
            if any(_size(tensors.get_slice(name)) > MOST_NUMBERS for name in names):
                raise UserError("not a shortlist: its tensors are not lists of tokens", place=str(path), hint=_MAKE)
            found = {name: tensors.get_tensor(name) for name in names}
    except (OSError, SafetensorError) as error:
        raise UserError(f"not a complete safetensors file: {error}", place=str(path), hint=_MAKE) from error
    return shortlist_of(found, str(path))


def _size(tensor: Any) -> float:
    """The numbers of a stored tensor; infinity of one that is no list of int32."""
    shape: list[int] = tensor.get_shape()
    return prod(max(1, size) for size in shape) if tensor.get_dtype() == "I32" else inf


def shortlist_of(found: Mapping[str, NDArray[Any] | None], place: str) -> Shortlist:
    """The list with these tensors. Raises: UserError if they are not those of one."""
    common, likely = (found[name] for name in TENSORS)
    if common is None or likely is None:
        raise UserError("not a whole shortlist", place=place, hint=_MAKE)
    right = common.dtype == likely.dtype == np.int32 and common.ndim == 1 and likely.ndim == 2
    if not right or likely.shape[1] > MOST_LIKELY or min(common.min(initial=0), likely.min(initial=0)) < NO_TOKEN:
        raise UserError("not a shortlist: its tensors are not lists of tokens", place=place, hint=_MAKE)
    if not (common >= 0).any():
        raise UserError("the shortlist has no common tokens", place=place, hint=_MAKE)
    return Shortlist(common, likely if likely.shape[1] else padded([*likely], 1))


def write_shortlist(shortlist: Shortlist, path: Path) -> None:
    """Write a file, whole or not at all."""
    with atomic_write(path) as partial:
        files: Any = numpy
        partial.write_bytes(files.save(shortlist.tensors))


def in_model(name: str) -> str:
    """The name of a tensor in a model; a parameter's has no dot."""
    return f"shortlist.{name}"


def padded(rows: Sequence[NDArray[np.int32]], most: int) -> NDArray[np.int32]:
    """Rows of tokens as one array [rows, longest], of at least one column, each cut to the first `most` tokens."""
    width = max(1, min(most, max((len(row) for row in rows), default=0)))
    found = np.full((len(rows), width), NO_TOKEN, np.int32)
    for row, tokens in zip(found, rows, strict=True):
        row[: min(width, len(tokens))] = tokens[:width]
    return found


_MAKE = "make one with `xformc shortlist`"
