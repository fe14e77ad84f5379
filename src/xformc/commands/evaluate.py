"""`xformc evaluate`: what an engine gives for a test set, against what is right."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import Console
from rich.progress import track
from typer import Argument, Option

from xformc.commands.text_lines import DEVICE_HELP
from xformc.commands.translate import ENGINE_HELP
from xformc.errors import UserError
from xformc.runtime import load, read_manifest
from xformc.runtime.devices.device import DeviceName
from xformc.runtime.lines import read_text_file

if TYPE_CHECKING:
    from xformc.trainer.scores.metrics import Measure

DATA_HELP = """The test set. Translation: the source, and one reference or more, line by line. Language model: text, a
text a line. Tagging and classification: .tsv or .npz, as for training. Text may be .gz."""


class Metric(StrEnum):
    """How translations are compared with references."""

    text = "text"
    brackets = "brackets"


@dataclass(frozen=True)
class Options:
    """What the command line says beside the engine and the files."""

    metric: Metric = Metric.text
    tokenize: str = "13a"
    beam_width: int | None = None
    length_penalty: float | None = None
    truncate: bool = False
    threads: int | None = None
    device: DeviceName | None = None

    def require(self, task: str, used: Sequence[str]) -> None:
        """Raises: UserError for options that were given although the task does not use them."""
        given = [field.name for field in fields(self) if getattr(self, field.name) != field.default]
        idle = [f"--{name.replace('_', '-')}" for name in given if name not in used]
        if idle:
            raise UserError(f"{', '.join(idle)}: nothing of the kind is done for an engine of {task}")


@dataclass(frozen=True)
class Scores:
    """The measures, how many things of each name were done, and in how many seconds."""

    measures: "Sequence[Measure]"
    counts: Mapping[str, int]
    seconds: float


def evaluate(
    engine: Annotated[Path, Argument(help=ENGINE_HELP, metavar="ENGINE")],
    data: Annotated[list[Path], Argument(help=DATA_HELP, metavar="DATA...")],
    *,
    metric: Annotated[Metric, Option(help="text: chrF, exact matches and BLEU; brackets: F1 of trees.")] = Metric.text,
    tokenize: Annotated[str, Option(help="sacreBLEU's tokenizer; `none` for tokenised text.")] = "13a",
    beam_width: Annotated[int | None, Option(help="Partial translations kept; 1 is greedy.")] = None,
    length_penalty: Annotated[float | None, Option(help="More prefers longer translations.")] = None,
    truncate: Annotated[bool, Option("--truncate", help="Cut texts that are too long.")] = False,
    threads: Annotated[int | None, Option(help="Cores to use; all if left out.")] = None,
    device: Annotated[DeviceName | None, Option(help=DEVICE_HELP)] = None,
    as_json: Annotated[bool, Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Score an engine on a test set.

    \b
    xformc evaluate demo/engine demo/data/test.en demo/data/test.de
    xformc evaluate ENGINE test.tok.en.gz test.tok.de.gz --tokenize none
    xformc evaluate ENGINE test.words test.trees --metric brackets
    xformc evaluate ENGINE test.tsv

    Translations get chrF, exact matches and BLEU, or the labelled bracket F1 of trees. Labels get accuracy and
    macro F1, and a language model its perplexity, by its training form in PyTorch.
    """
    from xformc.trainer.scores.metrics import make_bleu

    make_bleu(tokenize)
    task = read_manifest(engine).task
    score, used = _SCORES[task]
    options = Options(metric, tokenize, beam_width, length_penalty, truncate, threads, device)
    options.require(task, used)
    scores = score(engine, data, options)
    if as_json:
        print(json.dumps(_as_json(scores)))
        return
    for measure in scores.measures:
        print(measure.line())
    rates = (f"{count / scores.seconds:,.1f} {name}/s" for name, count in scores.counts.items())
    print(f"{'speed':<12} {', '.join(rates)}")


def _score_translations(engine: Path, data: list[Path], options: Options) -> Scores:
    from xformc.trainer.scores.brackets import bracket_measures
    from xformc.trainer.scores.metrics import make_bleu, translation_measures

    trees = options.metric is Metric.brackets
    if len(data) < 2 or (trees and len(data) > 2):
        wanted = "one reference" if trees else "a reference or more"
        raise UserError(f"this engine is evaluated on a source and {wanted}, not on {len(data)} files", hint=_PARALLEL)
    texts, references = read_parallel(data)
    loaded = load(engine, threads=options.threads, device=options.device)
    start = time.perf_counter()
    stream = loaded.translate_stream(
        texts, truncate=options.truncate, beam_width=options.beam_width, length_penalty=options.length_penalty
    )
    console = Console(stderr=True)
    hidden = not console.is_terminal
    tracked = track(stream, "translating", total=len(texts), console=console, transient=True, disable=hidden)
    found = [best for best, *_ in tracked]
    seconds = time.perf_counter() - start
    outputs = [best.text for best in found]
    if trees:
        measures = bracket_measures(outputs, references[0], str(data[1]))
    else:
        measures = translation_measures(outputs, references, make_bleu(options.tokenize))
    return Scores(measures, {"tokens": sum(len(best.tokens) for best in found), "sentences": len(texts)}, seconds)


def read_parallel(paths: list[Path]) -> tuple[list[str], list[list[str]]]:
    """The source and the references. Raises: UserError unless all have as many lines, and one at least."""
    texts, *references = map(read_text_file, paths)
    for path, lines in zip(paths[1:], references, strict=True):
        if len(lines) != len(texts):
            raise UserError(
                f"has {len(lines):,} lines and {paths[0]} has {len(texts):,}",
                place=str(path),
                hint="line n of a reference must translate line n of the source",
            )
    if not texts:
        raise UserError("holds no text", place=str(paths[0]))
    return texts, references


def _score_labels(engine: Path, data: list[Path], options: Options) -> Scores:
    from xformc.trainer.data.label_names import COLUMN
    from xformc.trainer.data.npz import read_arrays
    from xformc.trainer.data.text_files import read_texts
    from xformc.trainer.scores.label_scores import score_labels

    loaded, path = load(engine, threads=options.threads, device=options.device), _only(data, "test.tsv")
    given = read_arrays(path) if path.suffix == ".npz" else read_texts((path,), (*loaded.manifest.inputs, COLUMN))
    start = time.perf_counter()
    measures = score_labels(loaded, given, truncate=options.truncate)
    return Scores(measures, {"examples": len(given)}, time.perf_counter() - start)


def _score_continuations(engine: Path, data: list[Path], options: Options) -> Scores:
    from xformc.trainer.data.text_files import read_texts
    from xformc.trainer.scores.perplexity import engine_perplexity

    texts = read_texts((_only(data, "test.txt"),), ("text",))
    start = time.perf_counter()
    return Scores(engine_perplexity(engine, texts), {"texts": len(texts)}, time.perf_counter() - start)


def _only(data: list[Path], example: str) -> Path:
    if len(data) != 1:
        raise UserError(
            f"this engine is evaluated on one file, not on {len(data)}", hint=f"xformc evaluate ENGINE {example}"
        )
    return data[0]


_PARALLEL = "xformc evaluate ENGINE test.en test.de"
_SCORES: Mapping[str, tuple[Callable[[Path, list[Path], Options], Scores], Sequence[str]]] = {
    "translation": (_score_translations, tuple(field.name for field in fields(Options))),
    "language_model": (_score_continuations, ()),
    "tagging": (_score_labels, ("truncate", "threads", "device")),
    "classification": (_score_labels, ("truncate", "threads", "device")),
}
"""How an engine of each task is scored, and the options that this uses."""


def _as_json(scores: Scores) -> dict[str, object]:
    rates = {f"{name}_per_second": count / scores.seconds for name, count in scores.counts.items()}
    return {
        **{measure.key: measure.json() for measure in scores.measures},
        **scores.counts,
        "seconds": scores.seconds,
        **rates,
    }
