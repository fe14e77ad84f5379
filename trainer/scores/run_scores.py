"""Scores a trained model with its compiled engine."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from xformc.compiler.build import build_program
from xformc.compiler.program import Program
from xformc.compiler.weight_files import read_weights
from xformc.trainer.data.data_schema import DataSchema
from xformc.trainer.data.dataset import Corpus, reads_text
from xformc.trainer.run_files import find_run_files
from xformc.trainer.scores.evaluation import evaluate_split
from xformc.trainer.scores.metrics import Measure


def score_run(
    program: Program, schema: DataSchema, run: Path, corpus: Corpus, progress: Callable[[str], None] = lambda _: None
) -> Sequence[Measure]:
    """Build the engine of a run's averaged weights, with its certificate, and score it on the validation data.

    `program` is the result of `compile_engine` for a target that runs on a CPU. Texts that are too long are cut.

    Raises: UserError as `build_program`, `read_weights` and the engine.
    """
    tokenizers = find_run_files(run, program.spec).tokenizers if reads_text(corpus.valid, schema) else None
    with tempfile.TemporaryDirectory(prefix="xformc-") as folder:
        engine = Path(folder) / "engine"
        weights = read_weights(run).arrays
        build_program(program, weights, tokenizers, engine, progress, labels=corpus.labels)
        progress("score")
        return evaluate_split(engine, schema.task, corpus.valid)
