"""Reads PyTorch's checkpoints, which are pickles, without running what they name."""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeGuard, cast

import torch
from torch.serialization import safe_globals

from xformc.compiler.spec.tree import Scalar
from xformc.errors import UserError
from xformc.imports.checkpoint import Stored

NAMED = (
    "argparse.Namespace",
    "numpy.dtype", "numpy.ndarray",
    "numpy.core.multiarray._reconstruct", "numpy.core.multiarray.scalar",
    "numpy._core.multiarray._reconstruct", "numpy._core.multiarray.scalar",
)  # fmt: skip
"""What checkpoints name besides tensors: options, and numpy's numbers in the records of a training."""


class _Record:
    """Stands in for an object of the classes in NAMED: it keeps the state that the pickle sets, and does nothing."""

    def __init__(self, *_: object) -> None:
        self.state: object = None

    def __setstate__(self, state: object) -> None:
        self.state = state


def _stand_in(name: str) -> type[_Record]:
    module, _, last = name.rpartition(".")
    return type(last, (_Record,), {"__module__": module, "__qualname__": last})


_STAND_INS = [_stand_in(name) for name in NAMED]


def read_pickle(path: Path) -> dict[str, object]:
    """The mapping in a checkpoint; its tensors are read when they are used.

    No class and no function that the file names is imported or called. Raises: UserError if it is damaged, no mapping,
    or names anything but tensors and NAMED.
    """
    _check_archive(path)
    try:
        with safe_globals(cast(Any, _STAND_INS)):
            content: object = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except Exception as error:  # whatever a damaged pickle leads to
        raise UserError(
            f"not a checkpoint that can be read without running it: {_reason(error)}", place=str(path)
        ) from None
    if not isinstance(content, dict):
        raise UserError("not a checkpoint: it holds no mapping", place=str(path))
    return {str(key): value for key, value in cast(Mapping[object, object], content).items()}


def options(value: object) -> dict[str, object]:
    """The options in a mapping or a namespace; none of anything else."""
    state = value.state if isinstance(value, _Record) else value
    return (
        {str(key): one for key, one in cast(Mapping[object, object], state).items()} if isinstance(state, dict) else {}
    )


def names_in(path: Path) -> set[str]:
    """The names of the parts of a checkpoint; none of a file that cannot be read."""
    try:
        return {*read_pickle(path)}
    except UserError:
        return set()


def is_scalar(value: object) -> TypeGuard[Scalar]:
    """Whether an option is a number, a text or nothing."""
    return value is None or isinstance(value, str | bool | int | float)


def stored_tensor(name: str, tensor: torch.Tensor) -> Stored:
    """A tensor of a checkpoint as one that is read later."""
    plain = tensor.layout is torch.strided and tensor.device.type == "cpu" and not tensor.is_nested
    kind = _KINDS.get(tensor.dtype, str(tensor.dtype)) if plain else f"{tensor.layout} on {tensor.device.type}"
    return Stored(name, () if tensor.is_nested else tuple(tensor.shape), kind, lambda: tensor.detach().float().numpy())


_KINDS = {torch.float16: "F16", torch.float32: "F32", torch.float64: "F64", torch.bfloat16: "BF16"}


def _check_archive(path: Path) -> None:
    """Refuse archives that grow when they are read: PyTorch compresses nothing."""
    if not zipfile.is_zipfile(path):
        return
    try:
        with zipfile.ZipFile(path) as archive:
            grows = any(item.compress_type != zipfile.ZIP_STORED for item in archive.infolist())
    except Exception as error:  # whatever a damaged directory leads to
        raise UserError(f"not a complete checkpoint: {error}", place=str(path)) from None
    if grows:
        raise UserError("not a checkpoint of PyTorch: it is a compressed archive", place=str(path))


def _reason(error: Exception) -> str:
    """The first sentence about a refused name, without PyTorch's advice to trust the file."""
    text = " ".join(str(error).split())
    _, found, rest = text.partition("WeightsUnpickler error: ")
    return (rest if found else text).partition(" Please use")[0].partition(" Check the documentation")[0][:200] or type(
        error
    ).__name__
