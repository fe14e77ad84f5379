"""Scores of what a model gives, each a number with what it needs to be read."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import sacrebleu
from numpy.typing import NDArray

from xformc.errors import UserError

WORDS = 4
"""BLEU counts runs of up to so many words; it is 0 where no sentence has so many."""
MOST_CLASSES = 100


@dataclass(frozen=True)
class Measure:
    """One score. `key` names it for programs; `value` is None where it has no meaning, and `note` says why.

    `share`: the value is a share of 1 and is shown in per cent. `signature`: how sacreBLEU computed it.
    """

    key: str
    name: str
    value: float | None
    note: str
    share: bool = False
    signature: str | None = None

    def line(self) -> str:
        """The score for a reader."""
        shown = (
            "   left out" if self.value is None else f"{100 * self.value:5.1f}%" if self.share else f"{self.value:6.2f}"
        )
        return f"{self.name:<12} {shown}   {self.signature or self.note}"

    def json(self) -> object:
        """The score for a program."""
        return self.value if self.signature is None else {"score": self.value, "signature": self.signature}


def make_bleu(tokenize: str = "13a") -> Any:
    """sacreBLEU's metric. Raises: UserError for a tokenizer that it lacks, or that needs what is not there."""
    names = sorted(cast(Any, sacrebleu.BLEU).TOKENIZERS)
    if tokenize not in names:
        raise UserError(
            f"--tokenize {tokenize}: sacreBLEU has no such tokenizer", hint=f"there are: {', '.join(names)}"
        )
    try:
        return sacrebleu.BLEU(tokenize=tokenize)
    except (RuntimeError, ImportError, OSError) as error:
        raise UserError(f"--tokenize {tokenize}: {' '.join(str(error).split())}") from error


def translation_measures(outputs: Sequence[str], references: Sequence[Sequence[str]], bleu: Any) -> list[Measure]:
    """chrF, exact matches and BLEU; `references` are one or several for every output, each a list of its own."""
    chrf = cast(Any, sacrebleu.CHRF())
    texts = [list(reference) for reference in references]
    exact = sum(output in expected for output, *expected in zip(outputs, *references, strict=True))
    score = float(chrf.corpus_score(list(outputs), texts).score)
    return [
        Measure("chrf", "chrF2", score, "", signature=str(chrf.get_signature())),
        Measure("exact_match", "exact match", exact / len(outputs), f"{exact:,} of {len(outputs):,} sentences", True),
        _bleu(outputs, texts, bleu),
    ]


def label_measures(found: NDArray[np.int64], wanted: NDArray[np.int64], classes: int, what: str) -> list[Measure]:
    """Accuracy, and with fewer than 100 labels the mean of their F1 scores; found and wanted are ids [n].

    The mean is over the labels that were found or wanted, each counting the same (macro F1). `what` names the things
    that have labels. An id of `classes` in `found` is no label, and always wrong.
    """
    right = int((found == wanted).sum())
    accuracy = Measure("accuracy", "accuracy", right / len(wanted), f"{right:,} of {len(wanted):,} {what}", True)
    if classes >= MOST_CLASSES:
        return [accuracy]
    hits, *totals = (np.bincount(ids, minlength=classes)[:classes] for ids in (wanted[found == wanted], found, wanted))
    total = totals[0] + totals[1]
    met = total > 0
    mean = float((2 * hits[met] / total[met]).mean())
    return [accuracy, Measure("macro_f1", "macro F1", mean, f"the mean over {met.sum()} labels", True)]


def perplexity_measure(loss: float, count: int) -> Measure:
    """e to the mean negative log likelihood of a piece."""
    note = f"a piece, of {count:,} with the end tokens; by the training form in PyTorch"
    return Measure("perplexity", "perplexity", float(np.exp(loss)), note)


def _bleu(outputs: Sequence[str], references: list[list[str]], bleu: Any) -> Measure:
    if not any(bleu.corpus_score(reference, references).totals[WORDS - 1] for reference in references):
        return Measure("bleu", "BLEU", None, f"it needs sentences of {WORDS} words, and no reference has so many")
    score = float(bleu.corpus_score(list(outputs), references).score)
    return Measure("bleu", "BLEU", score, "", signature=str(bleu.get_signature()))
