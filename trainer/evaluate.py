"""The score of a trained model: what ships is what is scored, so the text comes from the compiled engine."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from xformc.compiler.build import build_engine
from xformc.compiler.spec import Spec
from xformc.compiler.weights import read_weights
from xformc.runtime import load
from xformc.trainer.tokenizer import tokenizer_files


@dataclass(frozen=True)
class Score:
    """BLEU and chrF of a corpus (0 to 100), each with its signature, and the share of exact matches.

    BLEU counts words, so that it is 0 where sentences are shorter than four words; chrF counts characters.
    """

    bleu: float
    bleu_signature: str
    chrf: float
    chrf_signature: str
    exact: float


def score_run(
    spec: Spec,
    run: Path,
    sources: Sequence[str],
    references: Sequence[str],
    progress: Callable[[str], None] = lambda _: None,
) -> Score:
    """Build the engine of a run's averaged weights, certificate included, and score it.

    Raises: UserError as `build_engine`, `read_weights` and `score_engine`.
    """
    files = tokenizer_files(shared=spec.train.tokenizer.shared)
    tokenizers = {side: run / name for side, name in files.items()}
    with tempfile.TemporaryDirectory(prefix="xformc-") as folder:
        engine = Path(folder) / "engine"
        build_engine(spec, read_weights(run).arrays, tokenizers, "cpu", engine, progress)
        progress("translate")
        return score_engine(engine, sources, references)


def score_engine(engine: Path, sources: Sequence[str], references: Sequence[str]) -> Score:
    """Translate `sources` with the engine's defaults and compare the best hypotheses with `references`.

    Raises: UserError as `xformc.runtime.load` and `Engine.translate`; a source that is too long is cut.
    """
    results = load(engine).translate(sources, truncate=True)
    return score_text([hypotheses[0].text for hypotheses in results], references)


def score_text(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """sacreBLEU and chrF with their defaults, one reference a sentence."""
    bleu, chrf = BLEU(), CHRF()
    bleu_score, chrf_score = (
        metric.corpus_score(list(hypotheses), [list(references)]).score for metric in (bleu, chrf)
    )
    exact = sum(map(str.__eq__, hypotheses, references)) / len(references)
    return Score(bleu_score, str(bleu.get_signature()), chrf_score, str(chrf.get_signature()), exact)
