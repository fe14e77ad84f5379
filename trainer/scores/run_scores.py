"""The score of a trained model: what ships is what is scored, so it comes from the compiled engine."""

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from xformc.compiler.build import build_program
from xformc.compiler.program import Program
from xformc.compiler.weight_files import read_weights
from xformc.runtime import load
from xformc.trainer.data.data_schema import DataSchema
from xformc.trainer.data.dataset import Corpus, Split
from xformc.trainer.data.text_files import Texts
from xformc.trainer.data.vocabulary import tokenizer_files
from xformc.trainer.scores.label_scores import score_labels
from xformc.trainer.scores.metrics import Measure, make_bleu, translation_measures
from xformc.trainer.scores.perplexity import engine_perplexity


def score_run(
    program: Program, schema: DataSchema, run: Path, corpus: Corpus, progress: Callable[[str], None] = lambda _: None
) -> list[Measure]:
    """Build the engine of a run's averaged weights, certificate included, and score it on the validation data.

    `program` is what `compile_engine` gives for a target that runs on a processor.

    Raises: UserError as `build_program`, `read_weights` and the engine; texts that it cannot take whole are cut.
    """
    files = tokenizer_files(schema.texts, shared=program.spec.train.tokenizer.shared)
    tokenizers = {name: run / file for name, file in files.items()} if isinstance(corpus.valid, Texts) else None
    with tempfile.TemporaryDirectory(prefix="xformc-") as folder:
        engine = Path(folder) / "engine"
        weights = read_weights(run).arrays
        build_program(program, weights, tokenizers, engine, progress, labels=corpus.labels)
        progress("score")
        return _SCORES[schema.task](engine, corpus.valid)


def _score_translations(engine: Path, valid: Split) -> list[Measure]:
    assert isinstance(valid, Texts)
    results = load(engine).translate(valid.columns["source"], truncate=True)
    outputs = [hypotheses[0].text for hypotheses in results]
    return translation_measures(outputs, [valid.columns["target"]], make_bleu())


def _score_continuations(engine: Path, valid: Split) -> list[Measure]:
    assert isinstance(valid, Texts)
    return engine_perplexity(engine, valid)


def _score_labels(engine: Path, valid: Split) -> list[Measure]:
    return score_labels(load(engine), valid, truncate=True)


_SCORES: Mapping[str, Callable[[Path, Split], list[Measure]]] = {
    "translation": _score_translations,
    "language_model": _score_continuations,
    "tagging": _score_labels,
    "classification": _score_labels,
}
