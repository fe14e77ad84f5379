"""Begins a run with the weights and the tokenizers of another one: fine-tuning."""

import hashlib
from pathlib import Path

import numpy as np
import torch

from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.backends.torch.parameter_paths import parameters_by_path
from xformc.compiler.spec.sections import Tokenizer as TokenizerSection
from xformc.compiler.weight_files import read_weights
from xformc.errors import UserError
from xformc.format.names import TOKENIZER
from xformc.trainer.data.data_schema import DataSchema
from xformc.trainer.data.vocabulary import Tokenizer, Vocabulary, tokenizer_files, vocabulary_at

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


def tokenizer_of(start: Path, schema: DataSchema, wanted: TokenizerSection) -> Tokenizer:
    """The tokenizer of each input of tokens: the file of its name in the other run, or the run's only one.

    Raises: UserError if there is none, or if it is larger than the spec's vocabulary.
    """
    folder = start if start.is_dir() else start.parent
    files = tokenizer_files(schema.texts, shared=False)
    loaded: dict[Path, Vocabulary] = {}
    found: dict[str, Vocabulary] = {}
    for name in schema.texts:
        own = folder / files[name]
        path = own if own.is_file() else folder / TOKENIZER
        if not path.is_file():
            hint = f"give a run whose data was text, with {TOKENIZER}"
            raise UserError(
                f"there is no tokenizer for the input '{name}' beside these weights", place=str(folder), hint=hint
            )
        found[name] = loaded.get(path) or vocabulary_at(path, schema.inputs[name].vocabulary)
        loaded[path] = found[name]
    return Tokenizer(found)


def weights_hash(start: Path) -> str:
    """The SHA-256 of the weights. Raises: UserError as `read_weights`."""
    digest = hashlib.sha256()
    for name, array in sorted(read_weights(start).arrays.items()):
        digest.update(f"{name} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
