"""Averages checkpoints (section 6.1), reading one file at a time and summing in float64."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from xformc.compiler.weight_files import Weights, check_shapes, read_weights
from xformc.errors import UserError
from xformc.files import atomic_write
from xformc.trainer.checkpoint import list_checkpoints
from xformc.trainer.tensors import write_tensors


def average_checkpoints(paths: Sequence[Path], out: Path) -> Path:
    """Write the mean of the weights at `paths` (runs, checkpoints or files) to the file `out` and return `out`.

    The metadata is that of the first input, with the steps of all.

    Raises: UserError if there is no input, one cannot be read, or they have different specs.
    """
    if not paths:
        raise UserError("nothing to average", hint="give one or more checkpoints")
    first = read_weights(paths[0])
    sums = {name: array.astype(np.float64) for name, array in first.arrays.items()}
    shapes = {name: array.shape for name, array in first.arrays.items()}
    all_metadata = [first.metadata]
    for path in paths[1:]:
        weights = read_weights(path)
        check_shapes(weights.arrays, shapes, str(first.path), str(weights.path))
        _check_spec(first, weights)
        for name, array in weights.arrays.items():
            sums[name] += array
        all_metadata.append(weights.metadata)
    means = {name: torch.tensor(total / len(paths), dtype=torch.float32) for name, total in sums.items()}
    metadata = {name: value for name, value in first.metadata.items() if name != "steps"}
    metadata["steps"] = ",".join(found["steps"] for found in all_metadata if "steps" in found)
    with atomic_write(out) as part:
        write_tensors(part, means, metadata)
    return out


def average_last(run: Path, last: int, out: Path) -> tuple[Path, list[int]]:
    """Write the mean of the `last` newest checkpoints of a run to `out`; return `out` and their steps.

    Raises: UserError if the run has fewer checkpoints, and as `average_checkpoints`.
    """
    checkpoints = list_checkpoints(run)
    if len(checkpoints) < last:
        hint = "a run is a folder written by `xformc train`"
        if checkpoints:
            hint = f"average {len(checkpoints)}; `average`, in the section train of the spec, says how many are kept"
        raise UserError(f"has {len(checkpoints)} checkpoints, but --last is {last}", place=str(run), hint=hint)
    chosen = checkpoints[-last:]
    return average_checkpoints(chosen, out), [int(path.name) for path in chosen]


def _check_spec(first: Weights, other: Weights) -> None:
    specs = [weights.metadata.get("spec_sha256") for weights in (first, other)]
    if None not in specs and specs[0] != specs[1]:
        raise UserError(
            f"was trained with a different spec from {first.path}",
            place=str(other.path),
            hint="average the checkpoints of one run",
        )
