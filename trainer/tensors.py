"""Writes tensors as safetensors; the same tensors and metadata give the same bytes."""

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file  # pyright: ignore[reportUnknownVariableType]


def write_tensors(path: Path, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str]) -> None:
    """Write `path`. Raises: OSError or SafetensorError if it cannot be written."""
    if not tensors and not metadata:
        metadata = {"tensors": "none"}  # safetensors writes a damaged header for nothing at all
    save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, path, dict(metadata))
    _order_metadata(path)


def _order_metadata(path: Path) -> None:
    """Sort the header's metadata, whose order in safetensors changes from call to call."""
    with path.open("r+b") as file:
        size = int.from_bytes(file.read(8), "little")
        header: dict[str, object] = json.loads(file.read(size))
        metadata = header.pop("__metadata__", {})
        ordered = {"__metadata__": metadata, **header}
        text = json.dumps(ordered, separators=(",", ":"), ensure_ascii=False, sort_keys=True).encode()
        assert len(text) <= size
        file.seek(8)
        file.write(text.ljust(size))
