"""Sweeps: the same training with several settings, one after the other, and a table of their results."""

import hashlib
import json
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, cast

from xformc.compiler.spec.problems import Source
from xformc.compiler.spec.tree import parse_yaml
from xformc.errors import UserError
from xformc.files import atomic_write
from xformc.format.names import WEIGHTS
from xformc.trainer.parent import end_with_parent
from xformc.trainer.run import METRICS, SCORES

MOST = 1_000
RESULTS = "sweep.json"
BEGUN = "begun.json"
Settings = Mapping[str, object]
"""Values of a spec by path, as those of --set."""


@dataclass(frozen=True)
class Result:
    """What became of one of the settings: `done` or `failed`. valid_loss: the lowest. scores: by key."""

    settings: Settings
    run: str
    state: str
    steps: int = 0
    seconds: float = 0.0
    valid_loss: float | None = None
    scores: Mapping[str, float] = field(default_factory=dict[str, float])
    error: str | None = None


def read_grid(path: Path) -> list[Settings]:
    """The settings of a file: a list of mappings from paths to values, or a mapping from paths to lists of values, of
    which all combinations are tried.

    Raises: UserError for a file of another form, for one without settings, and for equal ones.
    """
    hint = "write a list, such as `- {train.schedule.scale: 2.0}`, or a mapping from paths to lists of values"
    try:
        content: Any = parse_yaml(Source(str(path), path.read_text(encoding="utf-8"))).plain()  # 7e-4 is a number
    except (OSError, ValueError) as error:
        raise UserError(f"cannot be read: {error}", place=str(path)) from error
    if isinstance(content, dict):
        grid = cast(dict[Any, Any], content)
        if not all(isinstance(values, list) for values in grid.values()):
            raise UserError("a value is not a list", place=str(path), hint=hint)
        content = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
    if not isinstance(content, list) or not all(_is_settings(one) for one in cast(list[Any], content)):
        raise UserError("not a list of settings", place=str(path), hint=hint)
    found = cast(list[Settings], content)
    if not 0 < len(found) <= MOST:
        raise UserError(f"has {len(found):,} settings; 1 to {MOST:,} are allowed", place=str(path))
    names = [name_of(one) for one in found]
    twice = next((one for one, name in zip(found, names, strict=True) if names.count(name) > 1), None)
    if twice is not None:
        raise UserError(f"these settings are there twice: {text_of(twice)}", place=str(path))
    return found


def _is_settings(one: object) -> bool:
    return isinstance(one, dict) and all(isinstance(path, str) for path in cast(dict[Any, Any], one))


def name_of(settings: Settings) -> str:
    """The folder of a run, which depends on its settings only, so that a list may grow."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode()).hexdigest()[:8]


def text_of(settings: Settings) -> str:
    """The settings in a line."""
    return " ".join(f"{path}={json.dumps(value, default=str)}" for path, value in settings.items()) or "(as it is)"


def check_begun(out: Path, spec: str, data: str, options: Sequence[str]) -> None:
    """Record what all runs of a sweep have in common: the spec, a hash of the data, and the command line's options.

    Raises: UserError if the sweep in `out` was begun with others, so that its results would not belong together.
    """
    path, own = out / BEGUN, {"spec": spec, "data": data, "options": list(options)}
    if not path.exists():
        out.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as part:
            part.write_text(json.dumps(own, indent=2) + "\n", encoding="utf-8")
        return
    try:
        known: dict[str, object] = dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"cannot be read: {error}", place=str(path)) from error
    words = {"spec": "another spec", "data": "other data", "options": "other options"}
    changed = [words[name] for name, value in own.items() if known.get(name) != value]
    if changed:
        hint = "give the same ones, or another --output"
        raise UserError(f"the sweep was begun with {' and '.join(changed)}", place=str(out), hint=hint)


def sweep(
    grid: Sequence[Settings], command: Callable[[Settings, Path], Sequence[str]], out: Path, note: Callable[[str], None]
) -> list[Result]:
    """Run `command(settings, run)` for all settings, each in a process of its own, but for those that are done.

    The results are written to `out`/sweep.json after each; a failure does not end the others.
    """
    results = list[Result]()
    for number, settings in enumerate(grid, start=1):
        run = out / name_of(settings)
        note(f"{number} of {len(grid)}: {text_of(settings)}  ({run})")
        code = 0
        if not (run / SCORES).exists():
            code = _run(command(settings, run))
        results.append(_result(settings, run, code))
        out.mkdir(parents=True, exist_ok=True)
        with atomic_write(out / RESULTS) as part:
            part.write_text(json.dumps([asdict(one) for one in results], indent=2) + "\n", encoding="utf-8")
    return results


def _run(command: Sequence[str]) -> int:
    """Run a command; its exit code. What ends this process ends the command first, which may write a checkpoint."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, preexec_fn=end_with_parent)  # noqa: PLW1509
    try:
        return process.wait()
    except (KeyboardInterrupt, SystemExit) as ending:
        process.send_signal(signal.SIGINT if isinstance(ending, KeyboardInterrupt) else signal.SIGTERM)
        process.wait()
        raise


def _result(settings: Settings, run: Path, code: int) -> Result:
    last, losses = _metrics(run / METRICS)
    steps, seconds = int(last.get("step", 0)), float(last.get("seconds", 0.0))
    loss = min(losses, default=None)
    if code or not (run / SCORES).exists() or not (run / WEIGHTS).exists():
        return Result(settings, str(run), "failed", steps, seconds, loss, error=f"exit code {code}")
    scores = json.loads((run / SCORES).read_text(encoding="utf-8"))
    return Result(settings, str(run), "done", steps, seconds, loss, scores)


def _metrics(path: Path) -> tuple[Mapping[str, Any], list[float]]:
    """The last line of a run's metrics, and all validation losses."""
    last, losses = dict[str, Any](), list[float]()
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    for line in lines:
        try:
            last = json.loads(line)
        except ValueError:  # a killed run was writing this line
            break
        if "valid_loss" in last:
            losses.append(last["valid_loss"])
    return last, losses


def table(results: Sequence[Result]) -> list[str]:
    """The results as a table, in their order; a star is at the lowest validation loss."""
    keys = list(dict.fromkeys(key for one in results for key in one.scores))
    best = min((one.valid_loss for one in results if one.valid_loss is not None), default=None)
    rows = [["", "valid loss", *keys, "steps", "minutes", "run", "settings"]]
    for one in results:
        loss = "" if one.valid_loss is None else f"{one.valid_loss:.4f}"
        scores = [f"{one.scores[key]:.4g}" if key in one.scores else "" for key in keys]
        mark = "failed" if one.state == "failed" else "*" if one.valid_loss == best else ""
        rows.append([mark, loss, *scores, f"{one.steps:,}", f"{one.seconds / 60:.1f}", Path(one.run).name,
                     text_of(one.settings)])  # fmt: skip
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = list[str]()
    for row in rows:
        numbers = [cell.rjust(width) for cell, width in zip(row[:-2], widths[:-2], strict=True)]
        lines.append("  ".join([*numbers, row[-2].ljust(widths[-2]), row[-1]]).rstrip())
    return lines
