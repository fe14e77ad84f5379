"""`xformc data`: texts become token ids once, for training data that does not fit into memory."""

import os
import time
from collections.abc import Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.progress import Progress, TaskID
from typer import Option

from xformc.commands.options import OUT, Settings, SpecName
from xformc.commands.work_bar import dropped_text, text_size, work_bar
from xformc.errors import UserError
from xformc.specs import find_spec

if TYPE_CHECKING:
    from xformc.trainer.data.shards.manifest import Manifest
    from xformc.trainer.data.shards.prepare import Note

DATA_HELP = "A folder with train.* as for `xformc train`; the first one also with valid.*. May be repeated."
WEIGHT_HELP = """How often an epoch has each example of a corpus, one for each --data, in order: 1, 2 or 0.5.
[default: 1]"""
TEMPERATURE_HELP = """Above 1, smaller corpora are repeated: a corpus of n examples has the share of n^(1/T), and the
largest is seen once in an epoch."""
TOKENIZER_HELP = "Use the tokenizers of this run, or this vocabulary, instead of ones trained on the text."
TAG_HELP = """What stands before each source of a corpus, and a space, one for each --data, in order; "" for none. List
tags in train.tokenizer.symbols, so that they are tokens of their own."""
LANGUAGES_HELP = """Drop lines with a text in another language: the codes of ISO 639-1 in the order of the columns,
such as en-de. It needs the extra corpora."""
RATIO_HELP = "Drop pairs of which one side has more than R times the tokens of the other."


def data(
    spec: SpecName,
    *,
    data: Annotated[list[Path], Option(help=DATA_HELP, metavar="DIR")],
    output: Annotated[Path, Option(*OUT, help="The folder to write into.", metavar="PREPARED")],
    languages: Annotated[
        str | None, Option(help="Source and target in the names of the files: en-de.", metavar="PAIR")
    ] = None,
    settings: Settings = None,
    weight: Annotated[list[float] | None, Option(help=WEIGHT_HELP, metavar="W", show_default=False)] = None,
    temperature: Annotated[float, Option(help=TEMPERATURE_HELP, min=1.0, metavar="T")] = 1.0,
    tag: Annotated[list[str] | None, Option(help=TAG_HELP, metavar="TEXT", show_default=False)] = None,
    max_ratio: Annotated[float | None, Option(help=RATIO_HELP, min=1.0, metavar="R")] = None,
    drop_copies: Annotated[bool, Option("--drop-copies", help="Drop pairs whose sides are equal.")] = False,
    drop_duplicates: Annotated[
        bool, Option("--drop-duplicates", help="Drop examples that were there before, in any of the corpora.")
    ] = False,
    keep_languages: Annotated[str | None, Option(help=LANGUAGES_HELP, metavar="CODES")] = None,
    tokenizer: Annotated[Path | None, Option(help=TOKENIZER_HELP, metavar="RUN")] = None,
    workers: Annotated[
        int | None,
        Option("--workers", "-j", help="Processes that encode text.  [default: one for each core]", min=1, metavar="N"),
    ] = None,
    resume: Annotated[bool, Option("--resume", help="Continue a preparation where it stopped.")] = False,
) -> None:
    """Prepare training data that is larger than memory.

    \b
    xformc data transformer_base --data wmt --languages en-de -o prepared
    xformc train transformer_base --data prepared -o runs/base
    xformc data transformer_base --data wmt --data backtranslated --weight 2 --weight 1 --drop-duplicates -o prepared

    Texts are tokenized once, on all cores, into files that training reads in parts. It may be stopped or killed at any
    moment; --resume continues it. It is for translation, language models, and objectives.
    """
    from xformc.compiler.spec import load_spec
    from xformc.trainer.data.data_schema import data_schema
    from xformc.trainer.data.dataset import find_corpus
    from xformc.trainer.data.shards.columns import kind_of
    from xformc.trainer.data.shards.prepare import Corpus, Preparation, prepare
    from xformc.trainer.data.splits import find_training

    loaded = load_spec(find_spec(spec), settings or ())
    schema = data_schema(loaded)
    paired = kind_of(schema) == "translation"
    weights = weight or [1.0] * len(data)
    if len(weights) != len(data) or not all(0 < one < 1e6 for one in weights):
        raise UserError("--weight is a number above 0 for each --data, in order")
    tags = [""] * len(data) if tag is None else tag
    if len(tags) != len(data) or any("\n" in one or "\t" in one or one != one.strip() for one in tags):
        raise UserError('--tag is a text for each --data, in order, or "" for none')
    files = [find_training(folder, schema.suffixes, languages, paired=paired) for folder in data]
    wanted = Preparation(
        [Corpus(*one) for one in zip(map(str, data), files, weights, tags, strict=True)],
        find_corpus(data[0], schema, languages).valid,
        tokenizer,
        temperature,
        max_ratio,
        drop_copies,
        None if keep_languages is None else tuple(keep_languages.split("-")),
        drop_duplicates,
        workers or os.cpu_count() or 1,
    )
    with work_bar() as bar:
        task = bar.add_task("prepare", total=text_size(chain.from_iterable(files)), numbers="")
        manifest = prepare(loaded, wanted, output, resume=resume, report=partial(_show, bar, task, time.monotonic()))
    print("\n".join(_summary(manifest, output)))


def _show(bar: Progress, task: TaskID, began: float, note: "Note") -> None:
    speed = note.tokens / max(time.monotonic() - began, 1e-9)
    bar.update(task, completed=note.size, numbers=f"{note.rows:,} examples  {speed:,.0f} tokens/s")


def _summary(manifest: "Manifest", output: Path) -> Iterator[str]:
    for part in manifest.parts:
        tokens = "".join(f", {count:,} tokens of {name}" for name, count in part.tokens.items())
        repeat = "" if part.repeat == 1 else f"; {part.repeat:.3g} times in an epoch"
        yield f"{part.name}: {part.rows:,} examples{tokens}{repeat}{dropped_text(part.dropped)}"
    yield f"{output}: {manifest.rows:,} examples"
