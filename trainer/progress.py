"""Reports the progress of a run: a progress bar and notes on stderr, and numbers in `metrics.jsonl`."""

import json
import math
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, cast

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

from xformc.compiler.results.kind import Declared
from xformc.errors import UserError
from xformc.files import atomic_write, writing
from xformc.trainer.checkpoint import State
from xformc.trainer.loop import Update, mean_losses
from xformc.trainer.scores.checkpoint_scores import Scored
from xformc.trainer.sinks import Numbers, Outcome, Sink

UPDATES_PER_LINE = 10
SKIPPED_IN_A_ROW = 10
SHOWN_CHARACTERS = 48
WIDE = 140
"""The characters of a terminal that has room for a bar beside the numbers."""
OF_TOKENS = ("text", "ctc")
"""The kinds of results whose loss counts tokens; that of the others counts what their kind is called."""

NO_SCORE = "an earlier attempt failed"


class _Numbers(ProgressColumn):
    """The numbers of the last updates, the only column that is cut where a terminal is narrow."""

    def render(self, task: Task) -> Text:
        """Return them as one line."""
        return Text(str(task.fields["numbers"]), no_wrap=True, overflow="ellipsis")


class Report:
    """The progress of one call of `fit`: every ten updates it writes a line of `metrics.jsonl` and updates the bar."""

    def __init__(
        self,
        metrics: Path | None,
        steps: int,
        state: State,
        sinks: Sequence[Sink] = (),
        *,
        results: Sequence[Declared] = (),
        seconds: float | None = None,
        peak: float | None = None,
        quiet: bool = False,
    ) -> None:
        """The bar ends at `steps`, or where the run will be after `seconds`, if that is less. `peak` is the machine's
        most operations per second. `results` are those of the spec, which have a loss each.

        Lines of `metrics` after `state` are dropped; None: nothing is written. `sinks` get the same numbers.
        """
        self._steps, self._seconds, self._peak = steps, seconds, peak
        self._metrics, self._results = metrics, results
        first = results[0].kind if results else OF_TOKENS[0]
        self._unit = "tokens" if first in OF_TOKENS else first
        self._sinks = list(sinks)
        self._console = Console(stderr=True, quiet=quiet)
        self._progress = Progress(
            TextColumn("{task.description}"),
            *([BarColumn()] if self._console.width >= WIDE else []),
            TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
            TimeRemainingColumn(table_column=Column(no_wrap=True)),
            _Numbers(),
            console=self._console,
        )
        self._task: TaskID = self._progress.add_task("training", total=steps, completed=state.step, numbers="")
        self._pending: list[Update] = []
        self._since = time.monotonic()
        self._skipped = 0
        if metrics is not None:
            _drop_lines_after(metrics, state.step)

    def __enter__(self) -> "Report":
        """Show the bar."""
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the bar and start a new line."""
        self._progress.stop()
        outcome: Outcome = "finished" if error is None else "failed" if isinstance(error, Exception) else "killed"
        for sink in list(self._sinks):
            self._attempt(sink, partial(sink.close, outcome))

    def note(self, text: str) -> None:
        """Print one line above the bar."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def update(self, state: State, update: Update) -> None:
        """Count one update. Raises: UserError if the loss is NaN or infinite, or ten updates in a row are skipped."""
        if update.skipped:
            self._skip(state)
        else:
            self._skipped = 0
            self._pending.append(update)
        self._progress.update(self._task, completed=state.step, total=self._end(state))
        if state.step % UPDATES_PER_LINE == 0:
            self.flush(state)

    def _end(self, state: State) -> int:
        """The last step, as far as it is known."""
        if self._seconds is None or not state.seconds:
            return self._steps
        return max(state.step, min(self._steps, round(state.step * self._seconds / state.seconds)))

    def _skip(self, state: State) -> None:
        self._skipped += 1
        self.note(f"step {state.step:,}: skipped, because its gradient is not finite")
        if self._skipped == SKIPPED_IN_A_ROW:
            raise _diverged(f"the gradients of {SKIPPED_IN_A_ROW} steps up to step {state.step} are not finite")

    def flush(self, state: State) -> None:
        """Write a line for the updates since the last line. Raises: UserError as `update`."""
        if not self._pending:
            return
        tokens = sum(update.count for update in self._pending)
        *losses, auxiliary = mean_losses(self._pending)
        loss = sum(losses) + auxiliary
        check_finite(state, loss)
        seconds = max(time.monotonic() - self._since, 1e-9)
        speed, operations = tokens / seconds, sum(update.operations for update in self._pending) / seconds
        rate = self._pending[-1].learning_rate
        numbers = {f"{self._unit}_per_second": round(speed), self._unit: state.tokens}
        numbers |= {"skipped": state.skipped} if state.skipped else {}
        numbers |= {"flops_per_second": round(operations)} if operations else {}
        mfu = {"mfu": round(operations / self._peak, 4)} if operations and self._peak else {}
        labelled = [any(update.counts[index] for update in self._pending) for index in range(len(losses))]
        each = self._named(losses, labelled)
        several = {"losses": each} if each else {}
        self.line(state, loss=loss, **several, learning_rate=rate, **numbers, **mfu)
        shown = f"{speed:,.0f} {self._unit}/s  {_operations_text(operations, self._peak)}lr {rate:.2e}"
        shown = f"epoch {state.epoch + 1}  loss {loss:.3f}{_parts(each)}  {shown}  {_memory() / 1e9:.1f} GB"
        self._progress.update(self._task, numbers=shown)
        self._pending.clear()
        self._since = time.monotonic()

    def validation(self, state: State, loss: float, losses: Sequence[float] = ()) -> None:
        """Report the validation loss, and the part of each result; the time it took does not count as training time."""
        each = self._named(losses, [True] * len(losses))
        several = {"valid_losses": each} if each else {}
        self.line(state, valid_loss=loss, **several)
        of_text = [result.kind for result in self._results] == ["text"]  # whose loss is one of a token, in nats
        perplexity = f" (perplexity {math.exp(min(loss, 99)):.2f})" if of_text else ""
        self.note(f"step {state.step:,}: validation loss {loss:.4f}{_parts(each)}{perplexity}")
        self._since = time.monotonic()

    def _named(self, losses: Sequence[float], labelled: Sequence[bool]) -> dict[str, float]:
        """The losses of several results by name, without their weights, for those that have labels; else none."""
        if len(self._results) < 2:
            return {}
        every = zip(self._results, losses, labelled, strict=True)
        return {result.name: loss / result.weight for result, loss, known in every if known and result.weight}

    def score(self, state: State, scored: Scored) -> None:
        """Report the scores of a checkpoint, which are known at the next one."""
        self.line(state, scored_step=scored.step, **scored.scores)
        shown = ", ".join(f"{name} {value:.2f}" for name, value in scored.scores.items())
        self.note(f"step {scored.step:,}: {shown or f'no score: {scored.problem or NO_SCORE}'}")

    def line(self, state: State, **numbers: float | str | Mapping[str, float] | None) -> None:
        """Append one line to `metrics.jsonl`."""
        if self._metrics is None:
            return
        content = {"step": state.step, "epoch": state.epoch, "seconds": round(state.seconds, 3), **numbers}
        with writing(self._metrics), self._metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(content) + "\n")
        for sink in list(self._sinks):
            self._attempt(sink, partial(sink.log, state.step, _numbers(numbers)))

    def _attempt(self, sink: Sink, call: Callable[[], None]) -> None:
        """Call a sink; one that fails, as its server is gone, gets nothing more, and training goes on."""
        try:
            call()
        except Exception as error:
            self.note(f"--log {sink.name} has failed, and gets no more metrics: {error}")
            self._sinks.remove(sink)


def _parts(losses: Mapping[str, float]) -> str:
    """The losses of several results in brackets, if that is short."""
    text = ", ".join(f"{name} {loss:.3f}" for name, loss in losses.items())
    return f" ({text})" if 0 < len(text) <= SHOWN_CHARACTERS else ""


def _operations_text(operations: float, peak: float | None) -> str:
    """Operations per second, and their share of the peak if it is known; nothing if they were not counted."""
    if not operations:
        return ""
    text = f"{operations / 1e12:,.1f} TFLOP/s  " if operations >= 1e12 else f"{operations / 1e9:,.1f} GFLOP/s  "
    return text if peak is None else f"{text}MFU {operations / peak:.0%}  "


def _memory() -> int:
    """The most bytes that this process has held: of the GPU, or of memory."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def check_finite(state: State, loss: float) -> None:
    """Raises: UserError if the loss is NaN or infinite, so that no checkpoint is written."""
    if not loss < float("inf"):
        raise _diverged(f"the loss is {loss} at step {state.step}")


def _diverged(reason: str) -> UserError:
    hint = "lower the learning rate in train.schedule, raise warmup_steps or set clip_norm; use a new folder"
    return UserError(f"training diverged: {reason}", hint=hint)


def lines_until(metrics: Path, step: int) -> list[tuple[int, Numbers]]:
    """The lines that stay when a run goes on behind this step: their steps and numbers."""
    lines = [(line.pop("step"), line) for line in _kept(metrics, step)]
    return [(step, _numbers(line, without=("epoch", "seconds"))) for step, line in lines]


def _numbers(line: Mapping[str, object], without: Sequence[str] = ()) -> Numbers:
    """The numbers of a line; those of several results as `losses/NAME`."""
    found = dict[str, object]()
    for name, value in line.items():
        if isinstance(value, Mapping):
            found |= {f"{name}/{key}": one for key, one in cast(Mapping[str, object], value).items()}
        else:
            found[name] = value
    return {name: value for name, value in found.items() if isinstance(value, int | float) and name not in without}


def _drop_lines_after(metrics: Path, step: int) -> None:
    if metrics.exists():
        kept = [json.dumps(line) + "\n" for line in _kept(metrics, step)]
        with atomic_write(metrics) as part:
            part.write_text("".join(kept), encoding="utf-8")


def _kept(metrics: Path, step: int) -> list[dict[str, Any]]:
    kept: list[dict[str, Any]] = []
    for line in metrics.read_text(encoding="utf-8").splitlines() if metrics.exists() else ():
        try:
            content = json.loads(line)
        except ValueError:  # a killed run was writing this line
            break
        if content["step"] <= step and content.get("scored_step") != step:  # that score comes again
            kept.append(content)
    return kept
