"""The scores of a model's output, each with a note that explains its value."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import sacrebleu
from numpy.typing import NDArray

from xformc.errors import UserError

WORDS = 4
"""The longest n-gram that BLEU counts; BLEU is 0 if every sentence is shorter."""
MOST_CLASSES = 100
NAME_WIDTH = 12
"""The least width of the column of names."""


@dataclass(frozen=True)
class Measure:
    """One score.

    key: its name in JSON. value: None if the score is undefined; then `note` says why.
    share: the value is between 0 and 1, and shown in percent. signature: how sacreBLEU computed it.
    """

    key: str
    name: str
    value: float | None
    note: str
    share: bool = False
    signature: str | None = None

    def line(self, width: int = NAME_WIDTH) -> str:
        """Return the score as a line of text, which begins with its name in a column of this width."""
        if self.value is None:
            return f"{self.name:<{width}}  skipped: {self.note}"
        shown = f"{100 * self.value:5.1f}%" if self.share else f"{self.value:6.2f}"
        return f"{self.name:<{width}} {shown}   {self.signature or self.note}"

    def shown(self) -> str:
        """Return the value with two digits, in percent if it is a share."""
        return "undefined" if self.value is None else f"{100 * self.value:.2f}%" if self.share else f"{self.value:.2f}"

    def json(self) -> object:
        """Return the score as JSON."""
        return self.value if self.signature is None else {"score": self.value, "signature": self.signature}


def name_width(measures: Iterable[Measure]) -> int:
    """Return the width of the column of the names of these scores."""
    return max([NAME_WIDTH, *(len(measure.name) for measure in measures)])


def make_bleu(tokenize: str = "13a") -> Any:
    """Return sacreBLEU's BLEU. Raises: UserError for an unknown tokenizer, or one whose package is missing."""
    names = sorted(cast(Any, sacrebleu.BLEU).TOKENIZERS)
    if tokenize not in names:
        raise UserError(
            f"--tokenize {tokenize}: sacreBLEU has no such tokenizer", hint=f"choose one of {', '.join(names)}"
        )
    try:
        return sacrebleu.BLEU(tokenize=tokenize)
    except (RuntimeError, ImportError, OSError) as error:
        raise UserError(f"--tokenize {tokenize}: {' '.join(str(error).split())}") from error


def translation_measures(outputs: Sequence[str], references: Sequence[Sequence[str]], bleu: Any) -> list[Measure]:
    """Return chrF, exact matches and BLEU; each list of `references` has one reference for every output."""
    chrf = cast(Any, sacrebleu.CHRF())
    texts = [list(reference) for reference in references]
    exact = sum(output in expected for output, *expected in zip(outputs, *references, strict=True))
    score = float(chrf.corpus_score(list(outputs), texts).score)
    return [
        Measure("chrf", "chrF2", score, "", signature=str(chrf.get_signature())),
        Measure("exact_match", "exact match", exact / len(outputs), f"{exact:,} of {len(outputs):,} sentences", True),
        _bleu(outputs, texts, bleu),
    ]


def text_measures(outputs: Sequence[str], references: Sequence[str]) -> list[Measure]:
    """Return the error rates of words and characters, and exact matches; each output has one reference."""
    exact = sum(one == other for one, other in zip(outputs, references, strict=True))
    pairs = list(zip(outputs, references, strict=True))
    return [
        _error_rate("wer", "WER", "words", [(one.split(), other.split()) for one, other in pairs]),
        _error_rate("cer", "CER", "characters", pairs),
        Measure("exact_match", "exact match", exact / len(pairs), f"{exact:,} of {len(pairs):,} texts", True),
    ]


def token_measures(outputs: Sequence[Sequence[int]], references: Sequence[Sequence[int]]) -> list[Measure]:
    """Return the error rate of tokens, where there are no texts."""
    pairs = list(zip(outputs, references, strict=True))
    return [_error_rate("ter", "token errors", "tokens", pairs)]


def _error_rate(key: str, name: str, unit: str, pairs: Sequence[tuple[Sequence[Any], Sequence[Any]]]) -> Measure:
    """Return the edit distance of all pairs, divided by the length of their references."""
    errors, length = sum(edit_distance(*pair) for pair in pairs), sum(len(reference) for _, reference in pairs)
    return Measure(key, name, errors / max(length, 1), f"{errors:,} errors in {length:,} {unit}", True)


def edit_distance(first: Sequence[Any], second: Sequence[Any]) -> int:
    """Return the least number of insertions, deletions and substitutions (Levenshtein, 1966)."""
    row = list(range(len(second) + 1))
    for i, one in enumerate(first, start=1):
        before, row[0] = row[0], i
        for j, other in enumerate(second, start=1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (one != other))
    return row[-1]


def label_measures(found: NDArray[np.int64], wanted: NDArray[np.int64], classes: int, what: str) -> list[Measure]:
    """Return accuracy and, with fewer than 100 labels, macro F1; `found` and `wanted` are ids [n].

    Macro F1 is the unweighted mean over the labels that occur in `found` or `wanted`. `what` names the labelled things.
    The id `classes` in `found` stands for a missing label and is always wrong.
    """
    right = int((found == wanted).sum())
    accuracy = Measure("accuracy", "accuracy", right / len(wanted), f"{right:,} of {len(wanted):,} {what}", True)
    if classes >= MOST_CLASSES:
        return [accuracy]
    hits, *totals = (np.bincount(ids, minlength=classes)[:classes] for ids in (wanted[found == wanted], found, wanted))
    total = totals[0] + totals[1]
    met = total > 0
    mean = float((2 * hits[met] / total[met]).mean())
    return [accuracy, Measure("macro_f1", "macro F1", mean, f"mean over {met.sum()} labels", True)]


def likelihood_measures(
    loss: float, count: int, size: int, by: str, text: str = "text without line ends"
) -> list[Measure]:
    """Return the perplexity, e to the mean negative log likelihood of a token, and the bits per byte.

    loss: the negative log likelihood of all tokens. count: the number of tokens. size: the bytes of the texts in UTF-8.
    by: what computed the loss. text: what the bytes are of.
    """
    note = f"per token, over {count:,} tokens with end tokens; computed {by}"
    bits = loss / np.log(2) / size if size else None
    what = f"over {size:,} bytes of {text}" if size else "the texts are empty"
    return [
        Measure("perplexity", "perplexity", float(np.exp(loss / max(count, 1))), note),
        Measure("bits_per_byte", "bits per byte", None if bits is None else float(bits), what),
    ]


def _bleu(outputs: Sequence[str], references: list[list[str]], bleu: Any) -> Measure:
    if not any(bleu.corpus_score(reference, references).totals[WORDS - 1] for reference in references):
        return Measure("bleu", "BLEU", None, f"every reference is shorter than {WORDS} words")
    score = float(bleu.corpus_score(list(outputs), references).score)
    return Measure("bleu", "BLEU", score, "", signature=str(bleu.get_signature()))
