"""Writes checkpoints while training goes on, each atomically; of a model in parts, each process writes its rows.

A step waits for a copy of the weights and the optimizer's states, and for the end of the last write.
"""

import json
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType

import torch

from xformc.compiler.backends.torch.parameter_paths import parameters_by_path
from xformc.files import flush, writing
from xformc.format.names import WEIGHTS
from xformc.trainer.checkpoint import OPTIMIZER, STATE, State, checkpoint_folder, optimizer_tensors, remove_checkpoint
from xformc.trainer.parallel import rows_of
from xformc.trainer.processes import ALONE, Processes
from xformc.trainer.tensors import Rows, begin_tensors, write_rows

SECONDS = 0.01
"""How often the first process looks whether the others have written their rows."""

Files = Mapping[str, Mapping[str, Rows]]


class CheckpointWriter:
    """Writes the checkpoints of a run in a thread, one at a time."""

    def __init__(
        self,
        run: Path,
        metadata: Mapping[str, str],
        processes: Processes = ALONE,
        *,
        written: Callable[[Path], None] = lambda folder: None,
    ) -> None:
        """`metadata` is that of the weights. The first process calls `written` with the folder of each checkpoint."""
        self._run, self._metadata, self._processes, self._written = run, metadata, processes, written
        self._thread: threading.Thread | None = None
        self._failed: Exception | None = None
        self._in_parts = False
        self._own_written, self._given_up = threading.Event(), threading.Event()
        self._copies: dict[tuple[str, str], torch.Tensor] = {}

    def __enter__(self) -> "CheckpointWriter":
        """Nothing is written yet."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for the last write. Raises: as `wait`, unless there is another error."""
        if error is None:
            return self.wait()
        if self._processes.count > 1:  # others may have ended, and never write their rows
            self._given_up.set()
        self._join()
        return None

    def save(self, state: State, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Begin to write `run/checkpoints/STEP`, after the last write. Raises: UserError as `wait`.

        One of this step that is there is replaced. All processes call this together. The tensors may change afterwards.
        """
        self.wait()
        folder = checkpoint_folder(self._run, state.step)
        tensors = {WEIGHTS: parameters_by_path(model), OPTIMIZER: optimizer_tensors(model, optimizer)}
        rows = {file: {name: rows_of(one) for name, one in group.items()} for file, group in tensors.items()}
        in_parts = any(one.in_parts for one in rows[WEIGHTS].values())
        if not (in_parts or self._processes.first):
            return
        part = folder.parent / f".{folder.name}.partial"
        if self._processes.first:
            with writing(folder):
                self._begin(part, rows, state)
        if in_parts:
            self._processes.agree(0.0)
        copies = {file: {name: self._copy(file, name, one) for name, one in group.items()}
                  for file, group in rows.items()}  # fmt: skip
        self._in_parts = in_parts
        self._own_written.clear()
        self._thread = threading.Thread(target=self._work, args=(part, folder, copies, state), name="writer")
        self._thread.start()

    def check(self) -> None:
        """Raises: UserError if the last write has failed (a full disk, a missing permission)."""
        if self._failed is not None:
            failed, self._failed = self._failed, None
            raise failed

    def wait(self) -> None:
        """Wait for the last write; all processes call this together, if the model is in parts.

        Raises: as `check`; RuntimeError of torch, if another process has ended.
        """
        if self._thread is not None and self._in_parts:
            # The files do not say that another process has ended, and will never write its rows; its connection does.
            self._own_written.wait()
            failed = self._processes.add(torch.tensor(float(self._failed is not None)))
            if failed.item() > 0:
                self._given_up.set()
        self._join()
        self.check()

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _begin(self, part: Path, rows: Files, state: State) -> None:
        part.mkdir(parents=True)
        metadata = {**self._metadata, "steps": str(state.step)}
        try:
            for file, group in rows.items():
                begin_tensors(part / file, group, metadata if file == WEIGHTS else {})
        except OSError:
            shutil.rmtree(part, ignore_errors=True)
            raise

    def _copy(self, file: str, name: str, rows: Rows) -> Rows:
        """The rows in memory of their own, which all checkpoints use: new memory is slower than the copy."""
        copy = self._copies.get((file, name))
        if copy is None:
            copy = self._copies[file, name] = torch.empty_like(rows.tensor, device="cpu")
        return replace(rows, tensor=copy.copy_(rows.tensor.detach()))

    def _work(self, part: Path, folder: Path, rows: Files, state: State) -> None:
        try:
            with writing(folder):
                self._write(part, folder, rows, state)
        except Exception as error:  # the next step raises it
            self._failed = error
            if self._processes.first:
                shutil.rmtree(part, ignore_errors=True)
        finally:
            self._own_written.set()

    def _write(self, part: Path, folder: Path, rows: Files, state: State) -> None:
        first = self._processes.first
        for file, group in rows.items():
            own = {name: one for name, one in group.items() if first or one.in_parts}
            write_rows(part / file, group, own)
        if not first:
            (part / _mark(self._processes.rank)).touch()
            return
        self._own_written.set()
        if self._in_parts and not self._others_are_done(part):
            return
        sizes = {file: (part / file).stat().st_size for file in rows}
        (part / STATE).write_text(json.dumps({**asdict(state), "bytes": sizes}, indent=2) + "\n")
        for file in part.iterdir():
            flush(file)
        if folder.exists():
            remove_checkpoint(folder)
        part.rename(folder)
        self._written(folder)

    def _others_are_done(self, part: Path) -> bool:
        """Wait for the rows of the other processes; False if this one has given up."""
        marks = [part / _mark(rank) for rank in range(1, self._processes.count)]
        while not all(mark.exists() for mark in marks):
            if self._given_up.is_set():
                return False
            time.sleep(SECONDS)
        for mark in marks:
            mark.unlink()
        return True


def _mark(rank: int) -> str:
    """The file that process `rank` makes when its rows are written."""
    return f"written-{rank}"
