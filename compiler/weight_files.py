"""Finds trained weights on disk, reads them (safetensors only), and checks them against a graph."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from xformc.compiler.graph.graph import Graph
from xformc.errors import UserError
from xformc.format.names import SPEC, WEIGHTS

READABLE = ("F32", "F16", "F64")
LISTED = 8

Array = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Weights:
    """Parameters by path, in float32, and the file's metadata (such as `spec_sha256`, `steps`)."""

    path: Path
    arrays: Mapping[str, Array]
    metadata: Mapping[str, str]


def load_weights(path: Path, graph: Graph) -> dict[str, Array]:
    """The parameters of `graph` from a run, a checkpoint or a file.

    Raises: UserError as `read_weights`, or with every parameter that is missing, unexpected or of the wrong shape.
    """
    weights = read_weights(path)
    check_shapes(weights.arrays, graph_shapes(graph), f"spec {graph.name}", str(weights.path))
    return dict(weights.arrays)


def check_arrays(arrays: Mapping[str, Array], graph: Graph, place: str) -> None:
    """Check that arrays from `place` are finite and have the shapes of the parameters of `graph`. Raises: UserError."""
    check_shapes(arrays, graph_shapes(graph), f"spec {graph.name}", place)
    _check_finite(arrays, place)


def graph_shapes(graph: Graph) -> dict[str, tuple[int, ...]]:
    """The shape of each parameter by its path."""
    return {parameter.name: parameter.type.sizes() for parameter in graph.parameters}


def read_weights(path: Path) -> Weights:
    """Read a run, a checkpoint or a file. Raises: UserError if it is none of these, broken, or not finite."""
    file = find_weights(path)
    try:
        handle: Any = safe_open(file, framework="np")
        with handle as tensors:
            names: list[str] = list(tensors.keys())
            foreign = {name: kind for name in names if (kind := tensors.get_slice(name).get_dtype()) not in READABLE}
            if foreign:
                name, kind = next(iter(foreign.items()))
                raise UserError(
                    f"{name} is stored as {kind}, must be {', '.join(READABLE)}",
                    place=str(file),
                    hint="convert the file to float32",
                )
            arrays = {name: np.asarray(tensors.get_tensor(name), dtype=np.float32) for name in names}
            metadata = dict(tensors.metadata() or {})
    except (OSError, SafetensorError) as error:
        raise UserError(f"not a complete safetensors file: {error}", place=str(file)) from error
    _check_finite(arrays, str(file))
    return Weights(file, arrays, metadata)


def find_weights(path: Path) -> Path:
    """The weights file of `path`: a run, a checkpoint or the file itself. Raises: UserError if there is none."""
    if path.is_file():
        return path
    if not path.exists():
        raise UserError("no such file or folder", place=str(path))
    if (path / WEIGHTS).is_file():
        return path / WEIGHTS
    checkpoints = sorted(path.glob(f"checkpoints/[0-9]*/{WEIGHTS}"))
    if checkpoints or (path / SPEC).is_file():
        other = f", or pass a checkpoint: {checkpoints[-1].parent}" if checkpoints else ""
        raise UserError(
            "this run is not finished, so it has no averaged weights yet",
            place=str(path),
            hint=f"finish it with --resume{other}",
        )
    raise UserError(
        f"has no {WEIGHTS}", place=str(path), hint="pass a run, one of its checkpoints, or a .safetensors file"
    )


def check_shapes(arrays: Mapping[str, Array], shapes: Mapping[str, tuple[int, ...]], owner: str, place: str) -> None:
    """Compare arrays from `place` with the parameters of `owner`. Raises: UserError that lists every difference."""
    found = {name: array.shape for name, array in arrays.items()}
    resized = [
        f"{name} (found {list(found[name])}, required {list(shape)})"
        for name, shape in shapes.items()
        if name in found and found[name] != shape
    ]
    problems = {
        "missing": [name for name in shapes if name not in found],
        "unexpected": [name for name in found if name not in shapes],
        "wrong shape": resized,
    }
    if any(problems.values()):
        listed = "".join(f"\n  {what}: {_some(names)}" for what, names in problems.items() if names)
        raise UserError(
            f"the weights do not match {owner}:{listed}",
            place=place,
            hint="use the spec that they were trained with; a run stores it as spec.yaml",
        )


def _check_finite(arrays: Mapping[str, Array], place: str) -> None:
    broken = [name for name, array in arrays.items() if not np.isfinite(array).all()]
    if broken:
        raise UserError(f"found values that are not finite in {_some(broken)}", place=place)


def _some(names: list[str]) -> str:
    rest = len(names) - LISTED
    return ", ".join(names[:LISTED]) + (f" and {rest} more" if rest > 0 else "")
