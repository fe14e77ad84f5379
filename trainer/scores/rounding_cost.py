"""Measures the cost of quantization: the scores of an engine against those of the same engine in float32."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path

from xformc.compiler.certify import Stage
from xformc.compiler.spec import Spec
from xformc.errors import UserError
from xformc.format.precision import Caches, Precision
from xformc.format.reader import read_manifest
from xformc.trainer.scores.evaluation import SCORERS, ScoreOptions
from xformc.trainer.scores.metrics import Measure


@dataclass(frozen=True)
class Bound:
    """How much of a measure quantization may cost; `relative`: to its value in float32. `errors`: less is better."""

    most: float
    relative: bool = False
    errors: bool = False

    def lost(self, before: float, after: float) -> float:
        """What is lost from one value to the other, at least 0."""
        lost = after - before if self.errors else before - after
        return max(0.0, lost / max(abs(before), 1e-9) if self.relative else lost)


BOUNDS = {
    "bleu": Bound(0.3),
    "chrf": Bound(0.3),
    "perplexity": Bound(0.01, relative=True, errors=True),
    "accuracy": Bound(0.003),
    "micro_f1": Bound(0.003),
    "mrr": Bound(0.003),
    "wer": Bound(0.003, errors=True),
    "ter": Bound(0.003, errors=True),
    "pearson": Bound(0.003),
}
"""The measures that are compared, by their keys, which follow the name of a declared result. chrF is for where BLEU is
undefined."""


def check_comparable(spec: Spec, precision: Precision | None, caches: Caches | None = None, *, trained: bool) -> None:
    """Raises: UserError unless the model is trained, and has quantized weights or caches."""
    if not trained:
        raise UserError("--compare needs a trained model, not randomly initialized weights")
    if set(spec.precisions(precision).values()) <= {"float32"} and (caches or spec.caches) == "auto":
        raise UserError("--compare: no weights are quantized", hint="set --precision, for example to int8")


def loss_judge(files: Sequence[Path]) -> Callable[[Path, Path], Sequence[Stage]]:
    """Return a function that compares the scores of two engine folders, one in float32 and one quantized.

    `files` are a test set as `xformc evaluate` reads it. The function returns a stage for the certificate for each
    measure with a bound, and raises UserError for files that do not fit the engine, if there is no such measure, and if
    quantization costs too much.

    Raises: UserError if a file does not exist.
    """
    for path in files:
        if not path.is_file():
            raise UserError("no such file", place=str(path))

    def judge(exact: Path, rounded: Path) -> Sequence[Stage]:
        manifest, options = read_manifest(rounded), ScoreOptions(truncate=True, device="cpu")
        scorer = SCORERS[manifest.task]
        data = scorer.read(files, manifest, options, rounded)
        before, after = (scorer.score(one, data, options, lambda found, _: found) for one in (exact, rounded))
        same = sum(one == other for one, other in zip(before.outputs, after.outputs, strict=True))
        detail = f"{same:,} of {len(after.outputs):,} outputs are the same" if after.outputs else ""
        defined = {one.key for one in before.measures if one.value is not None}
        idle = {"chrf"} if "bleu" in defined else set[str]()
        compared = [one for one in before.measures if one.key in defined - idle]
        ours = {one.key: one for one in after.measures}
        bounds = [(one, bound) for one in compared if (bound := _bound(one)) is not None]
        if not bounds:
            raise UserError("the engine has none of the scores that --compare bounds", place=str(files[-1]))
        return [_stage(one, ours.get(one.key, replace(one, value=None)), bound, detail) for one, bound in bounds]

    return judge


def _bound(measure: Measure) -> Bound | None:
    return next((bound for key, bound in BOUNDS.items() if f"_{measure.key}".endswith(f"_{key}")), None)


def _stage(before: Measure, after: Measure, bound: Bound, detail: str) -> Stage:
    """The comparison of a measure. Raises: UserError if too much is lost."""
    assert before.value is not None
    signed = "; ".join(part for part in (detail, before.signature) if part)
    what = f"{before.name} lost to quantization: {before.shown()} in float32, {after.shown()} here"
    lost = inf if after.value is None else bound.lost(before.value, after.value)
    stage = Stage(before.key, what, lost, bound.most, f"({signed})" if signed else "")
    if not stage.passed:
        costs, most = (
            f"{100 * value:.2f}%" if before.share or bound.relative else f"{value:.2f}"
            for value in (stage.value, bound.most)
        )
        raise UserError(
            f"quantization costs {costs} {before.name}, from {before.shown()} to {after.shown()}, more than {most}; "
            "the engine was not written",
            hint="store sensitive weights more precisely, for example with `precision: {logits: float16}` in the "
            "spec, or build without --compare",
        )
    return stage
