"""Scores a trained model with its compiled engine."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from xformc.compiler.build import build_program
from xformc.compiler.program import Program
from xformc.compiler.weight_files import read_weights
from xformc.trainer.data.data_schema import DataSchema
from xformc.trainer.data.dataset import Split, reads_text
from xformc.trainer.run_files import find_run_files
from xformc.trainer.scores.evaluation import evaluate_split
from xformc.trainer.scores.metrics import Measure


def score_weights(
    program: Program,
    schema: DataSchema,
    weights: Path,
    split: Split,
    labels: Mapping[str, Sequence[str]] = MappingProxyType({}),
    progress: Callable[[str], None] = lambda _: None,
) -> Sequence[Measure]:
    """Build the engine of the weights of a run or a checkpoint, with its certificate, and score it on validation data.

    `program` is the result of `compile_engine` for a target that runs on a CPU. Texts that are too long are cut.

    Raises: UserError as `build_program`, `read_weights` and the engine.
    """
    tokenizers = find_run_files(weights, program.spec).tokenizers if reads_text(split, schema) else None
    with tempfile.TemporaryDirectory(prefix="xformc-") as folder:
        engine = Path(folder) / "engine"
        arrays = read_weights(weights).arrays
        build_program(program, arrays, tokenizers, engine, progress, labels=labels)
        progress("score")
        return evaluate_split(engine, schema.task, split)
