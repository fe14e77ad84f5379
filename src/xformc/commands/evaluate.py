"""`xformc evaluate`: what an engine gives for a test set, against what is right."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from rich.console import Console
from rich.progress import track
from typer import Argument, Option

from xformc.commands.text_lines import DEVICE_HELP
from xformc.commands.translate import ENGINE_HELP
from xformc.runtime.devices.device import DeviceName
from xformc.runtime.texts import TooLongError

Result = TypeVar("Result")
DATA_HELP = """The test set. Translation: the source, and one reference or more, line by line. Language model: text, a
text a line. Tagging and classification: .tsv or .npz, as for training. Text may be .gz."""
METRIC_HELP = "text: chrF, exact matches and BLEU; brackets: F1 of trees."


def evaluate(
    engine: Annotated[Path, Argument(help=ENGINE_HELP, metavar="ENGINE")],
    data: Annotated[list[Path], Argument(help=DATA_HELP, metavar="DATA...")],
    *,
    metric: Annotated[Literal["text", "brackets"], Option(help=METRIC_HELP)] = "text",
    tokenize: Annotated[str, Option(help="sacreBLEU's tokenizer; `none` for tokenised text.")] = "13a",
    beam_size: Annotated[int | None, Option(help="Partial translations kept; 1 is greedy.")] = None,
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
    from xformc.trainer.scores.evaluation import ScoreOptions, evaluate_engine

    options = ScoreOptions(metric, tokenize, beam_size, length_penalty, truncate, threads, device)
    try:
        scores = evaluate_engine(engine, data, options, _watched)
    except TooLongError as error:
        raise error.advised("--truncate") from None
    for line in [json.dumps(scores.json())] if as_json else scores.lines():
        print(line)


def _watched(results: Iterable[Result], total: int) -> Iterable[Result]:
    """The results, with a progress bar on a terminal."""
    console = Console(stderr=True)
    return track(results, "translating", total=total, console=console, transient=True, disable=not console.is_terminal)
