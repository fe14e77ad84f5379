"""Begins a run with the weights and the tokenizers of another one: fine-tuning."""

import hashlib
from collections.abc import Collection, Sequence
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


def start_from(start: Path, model: TorchModule, vocabularies: Collection[str] = ()) -> list[str]:
    """Copy the weights that have the path and the sizes of a parameter; return lines that say which.

    A weight that is smaller along axes of `vocabularies` only is copied to the rows of the first tokens. The other
    parameters keep their initial values. Raises: UserError as `read_weights`, or if no weight fits.
    """
    arrays, axes = read_weights(start).arrays, {one.name: one.value.type.names for one in model.graph.parameters}
    fresh, grown, parameters = list[str](), list[str](), parameters_by_path(model)
    with torch.no_grad():
        for path, parameter in parameters.items():
            array = arrays.get(path)
            if array is None or not _fits(array.shape, parameter.shape, axes.get(path, ()), vocabularies):
                fresh.append(path)
                continue
            given = torch.tensor(np.asarray(array, np.float32))
            parameter[tuple(slice(size) for size in given.shape)] = given.to(parameter.device)
            if given.shape != parameter.shape:
                grown.append(path)
    if len(fresh) == len(parameters):
        raise UserError(
            "none of these weights has the path and the sizes of a parameter of the spec",
            place=str(start),
            hint="the paths follow from the names of stages and blocks: xformc check SPEC --parameters",
        )
    idle = sorted(arrays.keys() - parameters.keys())
    rest = f"; randomly initialized: {_listed(fresh)}" if fresh else ""
    lines = [f"start: {len(parameters) - len(fresh)} of {len(parameters)} parameters from {start}{rest}"]
    lines += [f"start: with randomly initialized rows for new tokens: {_listed(grown)}"] if grown else []
    return lines + ([f"start: the spec has no parameter for: {_listed(idle)}"] if idle else [])


def _fits(given: Sequence[int], wanted: Sequence[int], axes: Sequence[str], vocabularies: Collection[str]) -> bool:
    """Whether a weight has the sizes of a parameter, or smaller ones along the axes of vocabularies."""
    return tuple(given) == tuple(wanted) or (
        len(given) == len(wanted) == len(axes)
        and all(
            old == new or (old < new and axis in vocabularies)
            for old, new, axis in zip(given, wanted, axes, strict=True)
        )
    )


def _listed(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - LISTED} more" if len(paths) > LISTED else ""
    return f"{', '.join(paths[:LISTED])}{more}"


def tokenizer_of(start: Path, schema: DataSchema) -> Tokenizer:
    """The tokenizer of each input of tokens in the other run, of which `start` may be a checkpoint or a file.

    Raises: UserError as `tokenizer_in`.
    """
    from xformc.trainer.run_files import run_folders  # noqa: PLC0415 (it imports what builds engines)

    return tokenizer_in(run_folders(start), schema)


def weights_hash(start: Path) -> str:
    """The SHA-256 of the weights. Raises: UserError as `read_weights`."""
    digest = hashlib.sha256()
    for name, array in sorted(read_weights(start).arrays.items()):
        digest.update(f"{name} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
