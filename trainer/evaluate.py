"""The score of a trained model: what ships is what is scored, so it comes from the compiled engine."""

import tempfile
from collections.abc import Callable
from pathlib import Path

from xformc.compiler.build import build_engine
from xformc.compiler.spec import Spec
from xformc.compiler.weights import read_weights
from xformc.runtime import Engine, load
from xformc.trainer.corpus import Texts
from xformc.trainer.data import Split
from xformc.trainer.form import Form
from xformc.trainer.metrics import Measure, make_bleu, translation_measures
from xformc.trainer.tokenizer import tokenizer_files


def score_run(
    spec: Spec, form: Form, run: Path, valid: Split, progress: Callable[[str], None] = lambda _: None
) -> list[Measure]:
    """Build the engine of a run's averaged weights, certificate included, and score it.

    Raises: UserError as `build_engine`, `read_weights` and the engine; what is too long is cut.
    """
    files = tokenizer_files(form.texts, shared=spec.train.tokenizer.shared)
    tokenizers = {name: run / file for name, file in files.items()} if isinstance(valid, Texts) else None
    with tempfile.TemporaryDirectory(prefix="xformc-") as folder:
        engine = Path(folder) / "engine"
        build_engine(spec, read_weights(run).arrays, tokenizers, "cpu", engine, progress)
        progress("score")
        return _SCORERS[form.task](load(engine), valid)


def _score_translations(engine: Engine, valid: Split) -> list[Measure]:
    assert isinstance(valid, Texts)
    results = engine.translate(valid.columns["source"], truncate=True)
    outputs = [hypotheses[0].text for hypotheses in results]
    return translation_measures(outputs, [valid.columns["target"]], make_bleu())


_SCORERS = {"translation": _score_translations}
