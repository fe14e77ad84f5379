"""Writes tensors as safetensors; the same tensors and metadata give the same bytes.

The place of each tensor in a file follows from all names, types and sizes, so that several processes can write their
rows into one file at the same time.
"""

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

_TYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
_ALIGNMENT = 8


@dataclass(frozen=True)
class Rows:
    """Rows of a tensor with the sizes `shape`, from number `first` on; `in_parts` if other processes have the rest."""

    tensor: torch.Tensor
    shape: Sequence[int]
    first: int = 0
    in_parts: bool = False


def write_tensors(path: Path, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str]) -> None:
    """Write `path`. Raises: OSError if it cannot be written."""
    rows = {name: Rows(tensor, tensor.shape) for name, tensor in tensors.items()}
    begin_tensors(path, rows, metadata)
    write_rows(path, rows, rows)


def begin_tensors(path: Path, rows: Mapping[str, Rows], metadata: Mapping[str, str]) -> None:
    """Write `path` without its rows, which `write_rows` adds. Raises: OSError if it cannot be written."""
    header, size = _header(rows, metadata)
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + size)


def write_rows(path: Path, rows: Mapping[str, Rows], own: Mapping[str, Rows]) -> None:
    """Write the rows `own` into a file that was begun with `rows` of the same names, types and sizes. Raises: OSError.

    Parts of tensors reach the disk at once (O_DSYNC): network file systems would otherwise write whole pages, in which
    the rows of another process may lie.
    """
    in_parts = any(one.in_parts for one in own.values())
    places, _ = _places(rows)
    file = os.open(path, os.O_RDWR | (os.O_DSYNC if in_parts else 0))
    try:
        start = 8 + int.from_bytes(os.pread(file, 8, 0), "little")
        for name, one in own.items():
            row = math.prod(one.shape[1:]) * one.tensor.itemsize
            _write(file, _bytes(one.tensor), start + places[name] + one.first * row)
    finally:
        os.close(file)


def _write(file: int, content: memoryview, offset: int) -> None:
    while content:
        written = os.pwrite(file, content, offset)
        content, offset = content[written:], offset + written


def _bytes(tensor: torch.Tensor) -> memoryview:
    array: Any = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return memoryview(array)


def _places(rows: Mapping[str, Rows]) -> tuple[dict[str, int], int]:
    """The offset of each tensor, those of wide types first, and the size of all."""
    places, end = dict[str, int](), 0
    for name in sorted(rows, key=lambda name: (-rows[name].tensor.itemsize, name)):
        places[name], end = end, end + math.prod(rows[name].shape) * rows[name].tensor.itemsize
    return places, end


def _header(rows: Mapping[str, Rows], metadata: Mapping[str, str]) -> tuple[bytes, int]:
    places, size = _places(rows)
    header: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    for name, one in rows.items():
        end = places[name] + math.prod(one.shape) * one.tensor.itemsize
        header[name] = {
            "dtype": _TYPES[one.tensor.dtype],
            "shape": list(one.shape),
            "data_offsets": [places[name], end],
        }
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False, sort_keys=True).encode()
    return text.ljust(-(-len(text) // _ALIGNMENT) * _ALIGNMENT), size
