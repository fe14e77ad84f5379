"""Writes and reads checkpoints, one folder per saved step, each written atomically.

No random state is saved. Dropout is drawn from (seed, step) and batches from (seed, epoch), so the step and the
position in the data are enough to continue a run bit for bit.
"""

import json
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file  # pyright: ignore[reportUnknownVariableType]

from xformc.compiler.backends.torch.parameter_paths import parameters_by_path
from xformc.errors import UserError
from xformc.files import atomic_directory
from xformc.format.names import WEIGHTS
from xformc.trainer.parallel import placed_like, whole
from xformc.trainer.tensors import write_tensors

OPTIMIZER, STATE = "optimizer.safetensors", "state.json"
KEPT_OPTIMIZERS = 2
_DAMAGED = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)


@dataclass(frozen=True)
class State:
    """The progress of a run.

    step: updates done. epoch, window, batch: the next batch of the data. seconds: training time.
    tokens: labels trained on. best_loss: lowest validation loss in nats per token. best_step: the step that had it.
    valid_loss: validation loss of this step. worse: checkpoints since the best one. skipped: updates that were skipped.
    """

    step: int = 0
    epoch: int = 0
    batch: int = 0
    seconds: float = 0.0
    tokens: int = 0
    best_loss: float | None = None
    best_step: int = 0
    valid_loss: float | None = None
    worse: int = 0
    skipped: int = 0
    window: int = 0


def save_checkpoint(
    run: Path,
    state: State,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    metadata: Mapping[str, str],
    *,
    first: bool = True,
) -> Path:
    """Write `run/checkpoints/STEP` atomically and return it. Raises: UserError if it cannot be written.

    All processes call this together, and the `first` one writes.
    """
    folder = run / "checkpoints" / f"{state.step:08d}"
    weights, moments = _gathered(parameters_by_path(model)), _gathered(_optimizer_tensors(model, optimizer))
    if folder.exists() or not first:
        return folder
    with writing(folder), atomic_directory(folder) as part:
        write_tensors(part / WEIGHTS, weights, {**metadata, "steps": str(state.step)})
        write_tensors(part / OPTIMIZER, moments, {})
        sizes = {name: (part / name).stat().st_size for name in (WEIGHTS, OPTIMIZER)}
        (part / STATE).write_text(json.dumps({**asdict(state), "bytes": sizes}, indent=2) + "\n")
    return folder


def load_checkpoint(folder: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> State:
    """Load a checkpoint into `model` and `optimizer`. Raises: UserError if it does not fit them."""
    weights, moments = _read_tensors(folder / WEIGHTS), _read_tensors(folder / OPTIMIZER)
    parameters = parameters_by_path(model)
    fits = weights.keys() == parameters.keys() and all(
        weights[name].shape == parameter.shape for name, parameter in parameters.items()
    )
    learned = {name for name, parameter in parameters.items() if parameter.requires_grad}
    if not fits or (moments and {name.partition("/")[2] for name in moments} != learned):
        raise UserError("the parameters do not fit this spec", place=str(folder))
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(placed_like(weights[name], parameter))
        for place, moment in moments.items():
            kind, _, name = place.partition("/")
            kept = moment if kind == "step" else placed_like(moment, parameters[name])
            optimizer.state[parameters[name]][kind] = kept
    return _read_state(folder)


def newest_checkpoint(run: Path) -> Path | None:
    """Return the newest checkpoint that a run can continue from, or None."""
    return next((folder for folder in reversed(list_checkpoints(run)) if _can_continue(folder)), None)


def list_checkpoints(run: Path) -> list[Path]:
    """Return the folders of a run's checkpoints, oldest first."""
    folder = run / "checkpoints"
    found = folder.iterdir() if folder.is_dir() else ()
    return sorted(path for path in found if re.fullmatch(r"\d{8,}", path.name) and path.is_dir())


def chosen_checkpoints(run: Path, count: int, *, best: bool) -> list[Path]:
    """Return the last `count` checkpoints of a run, or the `best`: those of lowest validation loss; oldest first."""
    folders = list_checkpoints(run)
    if best:
        losses = {folder: _read_state(folder).valid_loss for folder in folders if _has_state(folder)}
        measured = [folder for folder, loss in losses.items() if loss is not None]
        return sorted(sorted(measured, key=lambda folder: losses[folder] or 0.0)[:count])
    return folders[-count:]


def prune_checkpoints(run: Path, keep: int, *, best: bool = False) -> None:
    """Remove all but the newest `keep` checkpoints, and the optimizer state of all but the newest two.

    With `best`, remove all but the best `keep` and the newest two.
    """
    folders = list_checkpoints(run)
    newest = folders[-KEPT_OPTIMIZERS:]
    kept = {*chosen_checkpoints(run, keep, best=best), *(newest if best else ())}
    for folder in folders:
        if folder not in kept:
            _remove(folder)
        elif folder not in newest:
            (folder / OPTIMIZER).unlink(missing_ok=True)


def remove_leavings(run: Path) -> None:
    """Remove partial files of a killed run, and the damaged checkpoints after the newest one that is whole.

    Raises: UserError if there are checkpoints but none is whole; then nothing is removed.
    """
    newest, folders = newest_checkpoint(run), list_checkpoints(run)
    if newest is None and folders:
        raise UserError(
            f"cannot continue: all {len(folders)} checkpoints are damaged",
            place=str(run),
            hint="train into a new folder; to restart this run, remove its checkpoints",
        )
    for folder in folders:
        if newest is not None and folder.name > newest.name:
            _remove(folder)
    for part in [*run.glob(".*.partial"), *run.glob("checkpoints/.*.partial")]:
        _remove(part)


@contextmanager
def writing(path: Path, hint: str | None = None) -> Generator[None]:
    """Turn a failed write (a full disk, a missing permission) into a UserError that names `path`."""
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror or error}", place=str(path), hint=hint) from error
    except SafetensorError as error:
        raise UserError(f"cannot be written: {error}", place=str(path)) from error


def _gathered(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: whole(tensor) for name, tensor in tensors.items()}


def _optimizer_tensors(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    return {
        f"{kind}/{name}": moment
        for name, parameter in parameters_by_path(model).items()
        if parameter.requires_grad
        for kind, moment in optimizer.state[parameter].items()
    }


def _read_tensors(path: Path) -> dict[str, torch.Tensor]:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise UserError(f"cannot be read: {error}", place=str(path)) from error


def _read_state(folder: Path) -> State:
    content = json.loads((folder / STATE).read_text())
    content.setdefault("window", 0)  # runs from before there were windows
    return State(**{name: content[name] for name in State.__dataclass_fields__})


def _has_state(folder: Path) -> bool:
    try:
        _read_state(folder)
    except _DAMAGED:
        return False
    return True


def _can_continue(folder: Path) -> bool:
    try:
        content = json.loads((folder / STATE).read_text())
        return _has_state(folder) and all(
            (folder / name).stat().st_size == size for name, size in content["bytes"].items()
        )
    except _DAMAGED:
        return False


def _remove(path: Path) -> None:
    """Remove a file or folder; a folder is renamed first, so that no reader sees a part of it."""
    if not path.is_dir():
        path.unlink(missing_ok=True)
        return
    hidden = path if path.name.startswith(".") else path.rename(path.parent / f".{path.name}.partial")
    for file in hidden.iterdir():
        file.unlink()
    hidden.rmdir()
