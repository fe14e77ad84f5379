"""Scores checkpoints by their engines, in a process beside training: `python -m ...checkpoint_scores CHECKPOINT FILES`.

The score of a checkpoint is taken at the next one, so that a run does not depend on how long it took.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from xformc.compiler.pipeline import compile_engine
from xformc.compiler.spec import load_spec
from xformc.errors import UserError
from xformc.files import atomic_write
from xformc.format.names import SPEC
from xformc.trainer.checkpoint import SCORES, read_scores
from xformc.trainer.data.data_schema import data_schema
from xformc.trainer.data.dataset import read_split

NICENESS = 10
LAUNCHED = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""What torch's launcher sets: the score is that of one process."""


USER_ERROR = 2


@dataclass(frozen=True)
class Scored:
    """The scores of a checkpoint by their keys, and why there are none."""

    step: int
    scores: Mapping[str, float]
    problem: str | None = None


class CheckpointScorer:
    """Scores one checkpoint at a time; `valid` are the files of the validation data."""

    def __init__(self, valid: Sequence[Path]) -> None:
        self._valid = [path.resolve() for path in valid]
        self._begun: Path | None = None
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> "CheckpointScorer":
        """Nothing is scored yet."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End a process that still runs, as after an error."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def begin(self, checkpoint: Path) -> None:
        """Begin to score a checkpoint, unless it has its scores."""
        self._begun = checkpoint
        if (checkpoint / SCORES).is_file():
            return
        command = [sys.executable, "-m", __name__, str(checkpoint.resolve()), *map(str, self._valid)]
        environment = {name: value for name, value in os.environ.items() if name not in LAUNCHED}
        environment["CUDA_VISIBLE_DEVICES"] = ""  # the GPU belongs to the training
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            command, stdout=pipe, stderr=pipe, text=True, env=environment, start_new_session=True
        )  # an interrupt of the terminal is for the training

    def finish(self) -> Scored | None:
        """Wait for the scores of the checkpoint that was begun, and write them beside it; None if there was none."""
        checkpoint, self._begun = self._begun, None
        process, self._process = self._process, None
        if checkpoint is None:
            return None
        problem = None
        if process is not None:
            out, messages = process.communicate()
            failed = process.returncode != 0
            with atomic_write(checkpoint / SCORES) as part:
                part.write_text("{}\n" if failed else out, encoding="utf-8")
            problem = _problem(messages, process.returncode) if failed else None
        return Scored(int(checkpoint.name), read_scores(checkpoint), problem)


def _problem(messages: str, code: int) -> str:
    """The message of an error, or the last line of a traceback."""
    lines = messages.strip().splitlines() or [f"its process has ended with exit code {code}"]
    return lines[0] if code == USER_ERROR else lines[-1]


def main(checkpoint: Path, valid: Sequence[Path]) -> int:
    """Print the scores of a checkpoint on this validation data as JSON."""
    from xformc.trainer.scores.run_scores import score_weights  # noqa: PLC0415 (a training begins without it)

    os.nice(NICENESS)
    try:
        spec = load_spec(checkpoint.parent.parent / SPEC)
        schema = data_schema(spec)
        measures = score_weights(compile_engine(spec, "cpu"), schema, checkpoint, read_split(tuple(valid), schema))
    except UserError as error:
        print(error, file=sys.stderr)
        return USER_ERROR
    print(json.dumps({measure.key: measure.value for measure in measures if measure.value is not None}))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]]))
