"""Scoring an engine on a test set: how the files of each task are read, and what is measured."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Literal

from xformc.errors import UserError
from xformc.format.manifest import Manifest
from xformc.format.names import SPEC
from xformc.format.reader import read_manifest
from xformc.format.search_options import Preset
from xformc.format.tasks import RESULTS, SAMPLED, WRITING
from xformc.runtime import load
from xformc.runtime.devices.device import DeviceName
from xformc.runtime.media.reader import suffixes_of
from xformc.runtime.options import BeamArguments
from xformc.runtime.searching.translate import Hypothesis
from xformc.trainer.data.file_columns import read_files
from xformc.trainer.data.label_names import COLUMN
from xformc.trainer.data.npz import Arrays, read_arrays
from xformc.trainer.data.splits import suffix_of
from xformc.trainer.data.text_files import Complete, Texts, is_example, read_rows, read_texts
from xformc.trainer.scores.brackets import bracket_measures
from xformc.trainer.scores.label_scores import score_labels
from xformc.trainer.scores.metrics import Measure, make_bleu, name_width, translation_measures
from xformc.trainer.scores.parallel_text import Parallel, read_parallel
from xformc.trainer.scores.perplexity import Windows, engine_perplexity

logger = logging.getLogger(__name__)

Metric = Literal["text", "brackets"]
Data = Parallel | Texts | Arrays
Results = Iterable[list[Hypothesis]]
Watch = Callable[[Results, int], Results]
"""Returns the same results, and may report progress; the number is how many there will be."""


@dataclass(frozen=True)
class ScoreOptions:
    """How an engine is run and scored; None: the engine's default.

    metric: the score of translations. tokenize: sacreBLEU's tokenizer. truncate: cut texts that are too long.
    output: where the caller writes `Scores.outputs`, if anywhere. context, stride: the windows of long texts of a
    language model (`Windows`). document: the lines of its test set are one text.
    """

    metric: Metric = "text"
    tokenize: str = "13a"
    beam_size: int | None = None
    length_penalty: float | None = None
    preset: Preset | None = None
    truncate: bool = False
    threads: int | None = None
    device: DeviceName | None = None
    output: Path | None = None
    context: int | None = None
    stride: int | None = None
    document: bool = False

    @property
    def search(self) -> BeamArguments:
        """The options of the search."""
        return {"beam_size": self.beam_size, "length_penalty": self.length_penalty, "preset": self.preset}

    def require(self, task: str, used: Sequence[str]) -> None:
        """Raises: UserError for options that were given although the task does not use them."""
        given = [field.name for field in fields(self) if getattr(self, field.name) != field.default]
        idle = [f"--{name.replace('_', '-')}" for name in given if name not in used]
        if idle:
            verb = "does" if len(idle) == 1 else "do"
            raise UserError(f"{' and '.join(idle)} {verb} not apply to a {task} engine")


@dataclass(frozen=True)
class Scores:
    """The measures, the counts of tokens, sentences and so on, the time, and the translations or labels.

    left_out: the lines of the test set that are not scored, because a column is empty.
    """

    measures: Sequence[Measure]
    counts: Mapping[str, int]
    seconds: float
    outputs: Sequence[str] = ()
    left_out: int = 0

    def lines(self) -> list[str]:
        """The scores for a reader."""
        rates = (f"{count / self.seconds:,.1f} {name}/s" for name, count in self.counts.items())
        width = name_width(self.measures)
        return [*(measure.line(width) for measure in self.measures), f"{'speed':<{width}} {', '.join(rates)}"]

    def json(self) -> dict[str, object]:
        """The scores for a program."""
        rates = {f"{name}_per_second": count / self.seconds for name, count in self.counts.items()}
        measures = {measure.key: measure.json() for measure in self.measures}
        return {**measures, **self.counts, "left_out": self.left_out, "seconds": self.seconds, **rates}


@dataclass(frozen=True)
class Scorer:
    """How engines of a task are scored.

    read: read the test set from files; raises UserError for files that do not fit.
    score: score the engine in a folder on a test set, or on the validation data of a run.
    used: the names of the options that have an effect.
    """

    read: Callable[[Sequence[Path], Manifest, ScoreOptions, Path], Data]
    score: Callable[[Path, Data, ScoreOptions, Watch], Scores]
    used: Sequence[str]


def evaluate_engine(engine: Path, files: Sequence[Path], options: ScoreOptions, watch: Watch) -> Scores:
    """Score the engine in this folder on the test set in these files, and log how many of its lines are left out.

    Raises: UserError for what does not fit it.
    """
    make_bleu(options.tokenize)
    manifest = read_manifest(engine)
    scorer = SCORERS[manifest.task]
    options.require(manifest.task, scorer.used)
    data = scorer.read(files, manifest, options, engine)
    left_out = data.empty if isinstance(data, Texts) else 0
    if isinstance(data, Texts) and left_out:
        total = len(data) + left_out
        message = "left out %s of %s lines, which have an empty column; the first is %s"
        logger.warning(message, f"{left_out:,}", f"{total:,}", data.first_empty)
    return replace(scorer.score(engine, data, options, watch), left_out=left_out)


def evaluate_split(engine: Path, task: str, data: Texts | Arrays) -> Sequence[Measure]:
    """Measure the engine in this folder on the data of a run; texts that are too long are cut."""
    return SCORERS[task].score(engine, data, ScoreOptions(truncate=True), lambda results, _: results).measures


def _read_translations(
    files: Sequence[Path], manifest: Manifest, options: ScoreOptions, engine: Path
) -> Parallel | Texts:
    trees = options.metric == "brackets"
    if len(files) == 1 and ".tsv" in files[0].suffixes:
        return read_texts((files[0],), ("source", "target"))
    if len(files) < 2 or (trees and len(files) > 2):
        wanted = "one reference" if trees else "a reference or more"
        message = (
            f"this engine is evaluated on a source and {wanted}, found {len(files)} file{'s' if len(files) > 1 else ''}"
        )
        raise UserError(message, hint="xformc evaluate ENGINE test.en test.de")
    return read_parallel(files)


def _score_translations(engine: Path, data: Data, options: ScoreOptions, watch: Watch) -> Scores:
    if isinstance(data, Texts):
        data = Parallel(data.columns["source"], [data.columns["target"]], str(data.path))
    assert isinstance(data, Parallel)
    loaded = load(engine, threads=options.threads, device=options.device)
    start, count = time.perf_counter(), len(data.sources)
    stream = loaded.translate_stream(data.sources, truncate=options.truncate, **options.search)
    found = [best for best, *_ in watch(stream, count)]
    seconds = time.perf_counter() - start
    outputs = [best.text for best in found]
    if options.metric == "brackets":
        measures = bracket_measures(outputs, data.references[0], data.place)
    else:
        measures = translation_measures(outputs, data.references, make_bleu(options.tokenize))
    return Scores(measures, {"tokens": sum(len(best.tokens) for best in found), "sentences": count}, seconds, outputs)


def _read_labels(files: Sequence[Path], manifest: Manifest, options: ScoreOptions, engine: Path) -> Texts | Arrays:
    path = _only(files, "test.tsv")
    if path.suffix == ".npz":
        return read_arrays(path)
    texts = read_texts((path,), (*manifest.inputs, COLUMN), _complete(manifest))
    named = {name: item for name, item in manifest.inputs.items() if suffixes_of(item)}
    return read_files(texts, named) if named else texts


def _score_labels(engine: Path, data: Data, options: ScoreOptions, watch: Watch) -> Scores:
    assert not isinstance(data, Parallel)
    loaded = load(engine, threads=options.threads, device=options.device)
    start = time.perf_counter()
    measures, labels = score_labels(loaded, data, truncate=options.truncate)
    return Scores(measures, {"examples": len(data)}, time.perf_counter() - start, labels)


def _read_text(files: Sequence[Path], manifest: Manifest, options: ScoreOptions, engine: Path) -> Texts:
    path = _only(files, "test.txt")
    if not options.document:
        return read_texts((path,), (manifest.written,))
    lines = [text for (text,) in read_rows((path,), (manifest.written,))]
    return Texts({manifest.written: ["\n".join(lines)]}, [1], path, 0, "")


def _score_continuations(engine: Path, data: Data, options: ScoreOptions, watch: Watch) -> Scores:
    assert isinstance(data, Texts)
    start = time.perf_counter()
    windows = Windows(options.context, options.stride)
    measures = engine_perplexity(engine, data, options.threads, windows, document=options.document)
    return Scores(measures, {"texts": len(data)}, time.perf_counter() - start)


def _read_results(files: Sequence[Path], manifest: Manifest, options: ScoreOptions, engine: Path) -> Texts | Arrays:
    from xformc.compiler.spec import load_spec  # noqa: PLC0415
    from xformc.trainer.data.dataset import read_split  # noqa: PLC0415
    from xformc.trainer.scores.result_scores import scored_schema  # noqa: PLC0415

    path, schema = _only(files, "test.npz"), scored_schema(load_spec(engine / SPEC))
    if suffix_of(path) not in schema.suffixes:
        wanted = " or ".join(f".{suffix}" for suffix in schema.suffixes)
        raise UserError(f"{manifest.name} is evaluated on a {wanted} file", place=str(path))
    return read_split((path,), schema)


def _score_results(engine: Path, data: Data, options: ScoreOptions, watch: Watch) -> Scores:
    from xformc.trainer.scores.result_scores import score_results  # noqa: PLC0415 (it brings the compiler)

    assert not isinstance(data, Parallel)
    with load(engine, threads=options.threads, device=options.device) as loaded:
        start = time.perf_counter()
        measures, lines = score_results(loaded, engine, data, make_bleu(options.tokenize), options.search)
    return Scores(measures, {"examples": len(lines)}, time.perf_counter() - start, lines)


def _complete(manifest: Manifest) -> Complete:
    """As `DataSchema.complete`, of an engine that gives labels."""
    ends = {name for name, item in manifest.given.items() if item.kind == "tokens" and item.special.ends}
    return partial(is_example, given=list(manifest.given), empty=set[str]() if manifest.labels_words else ends)


def _only(files: Sequence[Path], example: str) -> Path:
    if len(files) != 1:
        message = f"this engine is evaluated on one file, found {len(files)}"
        raise UserError(message, hint=f"xformc evaluate ENGINE {example}")
    return files[0]


_OF_TEXTS = ("context", "stride", "document")
_SEARCH = ("beam_size", "length_penalty", "preset")


def _results(*used: str) -> Scorer:
    """The scorer of declared results, with what it uses beside the options of every engine."""
    return Scorer(_read_results, _score_results, ("threads", "device", "output", *used))


_LABELS = Scorer(_read_labels, _score_labels, ("truncate", "threads", "device", "output"))
SCORERS: Mapping[str, Scorer] = {
    "translation": Scorer(
        _read_translations,
        _score_translations,
        tuple(one.name for one in fields(ScoreOptions) if one.name not in _OF_TEXTS),
    ),
    "language_model": Scorer(_read_text, _score_continuations, ("threads", *_OF_TEXTS)),
    "tagging": _LABELS,
    "classification": _LABELS,
    WRITING: _results("tokenize", *_SEARCH),
    SAMPLED: _results("tokenize"),
    RESULTS: _results(),
}
"""How engines of each task are scored."""
