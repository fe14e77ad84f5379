"""Reads and removes checkpoints, one folder per saved step.

No random state is saved. Dropout is drawn from (seed, step) and batches from (seed, epoch), so the step and the
position in the data are enough to continue a run bit for bit.
"""

import json
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from xformc.compiler.backends.torch.parameter_paths import parameters_by_path
from xformc.errors import UserError
from xformc.format.names import CHECKPOINTS, WEIGHTS
from xformc.trainer.parallel import read_like

OPTIMIZER, STATE, SCORES = "optimizer.safetensors", "state.json", "scores.json"
KEPT_OPTIMIZERS = 2
_DAMAGED = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)


@dataclass(frozen=True)
class State:
    """The progress of a run.

    step: updates done. epoch, window, batch: the next batch of the data. seconds: training time.
    tokens: labels trained on. best_loss: lowest validation loss in nats per token. best_step: the step that had it.
    valid_loss: validation loss of this step. worse: checkpoints since the best one, by what the recipe selects by.
    skipped: updates that were skipped. best_score: the highest score of the checkpoints before this one.
    steps_after, seconds_after: the steps and the time since the last checkpoint that the recipe asked for.
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
    best_score: float | None = None
    steps_after: int = 0
    seconds_after: float = 0.0

    @property
    def between(self) -> bool:
        """Whether this is between two checkpoints of the recipe. A checkpoint of it is there to go on from, no more: it
        has no validation loss, and is not a part of averages."""
        return self.steps_after > 0


def checkpoint_folder(run: Path, step: int) -> Path:
    """The folder of a run's checkpoint."""
    return run / CHECKPOINTS / f"{step:08d}"


def load_checkpoint(folder: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> State:
    """Load a checkpoint into `model` and `optimizer`. Raises: UserError if it does not fit them.

    Of a model in parts, each process reads its rows only.
    """
    parameters = parameters_by_path(model)
    with _opened(folder / WEIGHTS) as weights, _opened(folder / OPTIMIZER) as moments, torch.no_grad():
        _check_fit(folder, parameters, weights, set(moments.keys()))
        for name, parameter in parameters.items():
            parameter.copy_(read_like(parameter, weights, name))
        for place in moments.keys():  # noqa: SIM118 (a file, not a mapping)
            kind, _, name = place.partition("/")
            like = torch.empty(()) if kind == "step" else parameters[name]
            optimizer.state[parameters[name]][kind] = read_like(like, moments, place)
    return _read_state(folder)


def newest_checkpoint(run: Path) -> Path | None:
    """Return the newest checkpoint that a run can continue from, or None."""
    return next((folder for folder in reversed(list_checkpoints(run)) if _can_continue(folder)), None)


def list_checkpoints(run: Path) -> list[Path]:
    """Return the folders of a run's checkpoints, oldest first."""
    folder = run / CHECKPOINTS
    found = folder.iterdir() if folder.is_dir() else ()
    return sorted(path for path in found if re.fullmatch(r"\d{8,}", path.name) and path.is_dir())


def recipe_checkpoints(run: Path) -> list[Path]:
    """The checkpoints that the recipe asked for, oldest first, without those of stops between them."""
    return [folder for folder in list_checkpoints(run) if not (_has_state(folder) and _read_state(folder).between)]


def chosen_checkpoints(run: Path, count: int, select: str = "last") -> list[Path]:
    """Return `count` checkpoints of a run, oldest first: the last ones, the `best` ones, of lowest validation loss, or
    those of the highest score, such as `bleu`; the last ones if none was scored. Those of stops do not count."""
    folders = recipe_checkpoints(run)
    if select == "last":
        return folders[-count:]
    if select == "best":
        costs = {folder: _read_state(folder).valid_loss for folder in folders if _has_state(folder)}
    else:
        scores = {folder: read_scores(folder).get(select) for folder in folders}
        costs = {folder: None if score is None else -score for folder, score in scores.items()}
    measured = [folder for folder, cost in costs.items() if cost is not None]
    return sorted(sorted(measured, key=lambda folder: costs[folder] or 0.0)[:count]) or folders[-count:]


def read_scores(checkpoint: Path) -> dict[str, float]:
    """The scores of a checkpoint's engine by their keys; none if it has none."""
    try:
        return json.loads((checkpoint / SCORES).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def prune_checkpoints(run: Path, keep: int, select: str = "last") -> None:
    """Remove all but the newest `keep` checkpoints, and the optimizer state of all but the newest two.

    Of those that are selected by a loss or a score, remove all but the best `keep` and the newest two. The newest one,
    from which a run goes on, stays in any case.
    """
    folders = list_checkpoints(run)
    newest = folders[-KEPT_OPTIMIZERS:]
    kept = {*chosen_checkpoints(run, keep, select), *(newest[-1:] if select == "last" else newest)}
    for folder in folders:
        if folder not in kept:
            remove_checkpoint(folder)
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
            remove_checkpoint(folder)
    for part in [*run.glob(".*.partial"), *run.glob("checkpoints/.*.partial")]:
        remove_checkpoint(part)


def optimizer_tensors(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """The states of the optimizer under their kind and the path of their parameter."""
    return {
        f"{kind}/{name}": moment
        for name, parameter in parameters_by_path(model).items()
        if parameter.requires_grad
        for kind, moment in optimizer.state[parameter].items()
    }


@contextmanager
def _opened(path: Path) -> Generator[Any]:
    """A safetensors file. Raises: UserError if it cannot be read, also later."""
    try:
        opened: Any = safe_open(path, framework="pt")
        with opened as file:
            yield file
    except (OSError, SafetensorError) as error:
        raise UserError(f"cannot be read: {error}", place=str(path)) from error


def _check_fit(folder: Path, parameters: Mapping[str, torch.Tensor], weights: Any, moments: set[str]) -> None:
    fits = set(weights.keys()) == set(parameters) and all(
        tuple(weights.get_slice(name).get_shape()) == tuple(parameter.shape) for name, parameter in parameters.items()
    )
    learned = {name for name, parameter in parameters.items() if parameter.requires_grad}
    if not fits or (moments and {name.partition("/")[2] for name in moments} != learned):
        raise UserError("the parameters do not fit this spec", place=str(folder))


def _read_state(folder: Path) -> State:
    content = json.loads((folder / STATE).read_text())
    content.setdefault("window", 0)  # runs from before there were windows, and scores
    for name in ("best_score", "steps_after", "seconds_after"):
        content.setdefault(name, State.__dataclass_fields__[name].default)
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


def remove_checkpoint(path: Path) -> None:
    """Remove a checkpoint or a partial file; a folder is renamed first, so that no reader sees a part of it."""
    if not path.is_dir():
        path.unlink(missing_ok=True)
        return
    hidden = path if path.name.startswith(".") else path.rename(path.parent / f".{path.name}.old.partial")
    for file in hidden.iterdir():
        file.unlink()
    hidden.rmdir()
