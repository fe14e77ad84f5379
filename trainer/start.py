"""Begins a run with the weights and the tokenizers of another one: fine-tuning."""

import hashlib
from pathlib import Path

import numpy as np
import torch

from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.backends.torch.parameter_paths import parameters_by_path
from xformc.compiler.weight_files import read_weights
from xformc.errors import UserError
from xformc.trainer.data.data_schema import DataSchema
from xformc.trainer.data.foreign_vocabulary import tokenizer_in
from xformc.trainer.data.vocabulary import Tokenizer

LISTED = 6


def start_from(start: Path, model: TorchModule) -> list[str]:
    """Copy the weights that have the path and the sizes of a parameter; return lines that say which.

    The other parameters keep their initial values. Raises: UserError as `read_weights`, or if no weight fits.
    """
    arrays, fresh, taken = read_weights(start).arrays, list[str](), 0
    with torch.no_grad():
        for path, parameter in parameters_by_path(model).items():
            array = arrays.get(path)
            if array is None or tuple(array.shape) != tuple(parameter.shape):
                fresh.append(path)
                continue
            parameter.copy_(torch.tensor(np.asarray(array, np.float32)))
            taken += 1
    if not taken:
        raise UserError(
            "none of these weights has the path and the sizes of a parameter of the spec",
            place=str(start),
            hint="the paths follow from the names of stages and blocks: xformc check SPEC --parameters",
        )
    more = f" and {len(fresh) - LISTED} more" if len(fresh) > LISTED else ""
    rest = f"; randomly initialized: {', '.join(fresh[:LISTED])}{more}" if fresh else ""
    return [f"start: {taken} of {taken + len(fresh)} parameters from {start}{rest}"]


def tokenizer_of(start: Path, schema: DataSchema) -> Tokenizer:
    """The tokenizer of each input of tokens in the other run. Raises: UserError as `tokenizer_in`."""
    return tokenizer_in(start if start.is_dir() else start.parent, schema)


def weights_hash(start: Path) -> str:
    """The SHA-256 of the weights. Raises: UserError as `read_weights`."""
    digest = hashlib.sha256()
    for name, array in sorted(read_weights(start).arrays.items()):
        digest.update(f"{name} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
