"""Measures the cost of quantization: the BLEU of an engine against that of the same engine in float32."""

from collections.abc import Callable, Sequence
from pathlib import Path

from xformc.compiler.certify import Stage
from xformc.compiler.spec import Spec
from xformc.errors import UserError
from xformc.format.precision import Caches, Precision
from xformc.runtime import load
from xformc.trainer.scores.metrics import make_bleu, translation_measures
from xformc.trainer.scores.parallel_text import read_parallel

MAX_LOSS = 0.3
"""The maximum BLEU that quantization may cost."""


def check_comparable(spec: Spec, precision: Precision | None, caches: Caches | None = None, *, trained: bool) -> None:
    """Raises: UserError unless the model is a trained translation model with quantized weights or caches."""
    if spec.task != "translation" or not trained:
        found = "randomly initialized weights" if spec.task == "translation" else f"a {spec.task} spec"
        raise UserError(f"--compare needs a trained translation model, not {found}")
    if set(spec.precisions(precision).values()) <= {"float32"} and (caches or spec.caches) == "auto":
        raise UserError("--compare: no weights are quantized", hint="set --precision, for example to int8")


def bleu_judge(paths: Sequence[Path]) -> Callable[[Path, Path], Stage]:
    """Return a function that compares the BLEU of two engine folders, one in float32 and one quantized.

    `paths` are a source and its reference, line by line. The function returns a stage for the certificate, and raises
    UserError if quantization costs too much.

    Raises: UserError if the files differ in length, or if BLEU is undefined for them.
    """
    given = read_parallel(paths)
    texts, references = given.sources, given.references
    metric = make_bleu()

    def score(outputs: Sequence[str]) -> tuple[float, str]:
        bleu = translation_measures(outputs, references, metric)[-1]
        if bleu.value is None:
            raise UserError(f"BLEU is undefined for this reference: {bleu.note}", place=str(paths[1]))
        return bleu.value, bleu.signature or ""

    def judge(exact: Path, rounded: Path) -> Stage:
        plain, ours = (_translated(folder, texts) for folder in (exact, rounded))
        (before, signature), (after, _) = score(plain), score(ours)
        same = sum(first == second for first, second in zip(plain, ours, strict=True))
        what = f"BLEU lost to quantization: {before:.2f} in float32, {after:.2f} here"
        detail = f"({same:,} of {len(texts):,} translations are the same; {signature})"
        stage = Stage("bleu", what, max(0.0, before - after), MAX_LOSS, detail)
        if not stage.passed:
            raise UserError(
                f"quantization costs {stage.value:.2f} BLEU, from {before:.2f} to {after:.2f}, more than {MAX_LOSS}; "
                "the engine was not written",
                hint="store sensitive weights more precisely, for example with `precision: {logits: float16}` in the "
                "spec, or build without --compare",
            )
        return stage

    score(references[0])
    return judge


def _translated(folder: Path, texts: Sequence[str]) -> list[str]:
    engine = load(folder, verify_hashes=False, device="cpu")
    return [best.text for best, *_ in engine.translate(texts, truncate=True)]
