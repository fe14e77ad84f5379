"""Which checkpoints are the best: by the validation loss, or by the scores of their engines."""

import math
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from xformc.compiler.spec.sections import SCORED, Train
from xformc.trainer.checkpoint import State
from xformc.trainer.progress import Report
from xformc.trainer.scores.checkpoint_scores import CheckpointScorer


@contextmanager
def scoring(
    recipe: Train, valid: Sequence[Path], checkpoints: Sequence[Path], *, first: bool
) -> Generator[CheckpointScorer | None]:
    """The scorer of a run in its first process, if it scores checkpoints; it begins with the newest of these."""
    if not first or not recipe.scored:
        yield None
        return
    with CheckpointScorer(valid) as scorer:
        if checkpoints:
            scorer.begin(checkpoints[-1])
        yield scorer


def measured(state: State, loss: float, select: str) -> State:
    """The state with a validation loss, by which `worse` counts unless `select` is a score."""
    better = state.best_loss is None or loss < state.best_loss
    if select not in SCORED:
        state = replace(state, worse=0 if better else state.worse + 1)
    if better:
        state = replace(state, best_loss=loss, best_step=state.step)
    return replace(state, valid_loss=loss)


def take_score(scorer: CheckpointScorer | None, select: str, report: Report, state: State) -> float:
    """Wait for the score of the checkpoint before this one, and report it.

    NaN if there is no such checkpoint, and -infinity if it could not be scored.
    """
    scored = None if scorer is None else scorer.finish()
    if scored is None:
        return math.nan
    report.score(state, scored)
    if scored.scores and select in SCORED and select not in scored.scores:
        report.note(f"step {scored.step:,}: no {select} can be computed, so checkpoints cannot be chosen by it")
    return scored.scores.get(select, -math.inf)


def judged(state: State, score: float) -> State:
    """The state after the score of the checkpoint before, from `take_score`."""
    if math.isnan(score):
        return state
    if score > (-math.inf if state.best_score is None else state.best_score):
        return replace(state, best_score=score, worse=0)
    return replace(state, worse=state.worse + 1)
