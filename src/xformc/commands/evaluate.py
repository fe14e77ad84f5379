"""`xformc evaluate`: what an engine gives for a test set, against what is right."""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from typer import Argument, Option

from xformc.commands.decoding import BeamSize, LengthPenalty, PresetName
from xformc.commands.options import OUT, Device, EngineFolder, Json, Threads, Truncate
from xformc.commands.text_lines import one_line, output_text
from xformc.runtime.text.texts import TooLongError
from xformc.terminal import tracked

Result = TypeVar("Result")
DATA_HELP = """The test set. Translation: the source and one or more references, line by line, or a .tsv. Language
model: a text on each line. Tagging and classification: .tsv or .npz, as for training. Text may be .gz or .zst."""
METRIC_HELP = "text: chrF, exact match and BLEU; brackets: F1 of trees."
CONTEXT_HELP = """Language model: the longest text in tokens that is read at once; longer ones are read in windows.
[default: train.max_length]"""
STRIDE_HELP = """Tokens from one window to the next: fewer give each token more context, and take longer.  [default: the
context]"""
DOCUMENT_HELP = "Language model: the file is one text, not one on each line."
OUTPUT_HELP = "Keep the translations or labels in this file, one line each; compressed if it ends in .gz or .zst."


def evaluate(
    engine: EngineFolder,
    data: Annotated[list[Path], Argument(help=DATA_HELP, metavar="DATA...")],
    *,
    output: Annotated[Path | None, Option(*OUT, help=OUTPUT_HELP, metavar="FILE")] = None,
    metric: Annotated[Literal["text", "brackets"], Option(help=METRIC_HELP, metavar="METRIC")] = "text",
    tokenize: Annotated[
        str, Option(help="sacreBLEU's tokenizer; `none` for text that is tokenized.", metavar="NAME")
    ] = "13a",
    beam_size: BeamSize = None,
    length_penalty: LengthPenalty = None,
    preset: PresetName = None,
    truncate: Truncate = False,
    context: Annotated[int | None, Option(help=CONTEXT_HELP, metavar="N")] = None,
    stride: Annotated[int | None, Option(help=STRIDE_HELP, metavar="N")] = None,
    document: Annotated[bool, Option("--document", help=DOCUMENT_HELP)] = False,
    threads: Threads = None,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Score an engine on a test set.

    \b
    xformc evaluate demo/engine demo/data/test.en demo/data/test.de -o hypotheses.txt
    xformc evaluate ENGINE test.tok.en.gz test.tok.de.gz --tokenize none
    xformc evaluate ENGINE test.words test.trees --metric brackets
    xformc evaluate ENGINE test.tsv
    xformc evaluate LANGUAGE_MODEL book.txt --document --context 1024 --stride 512

    Translations are scored by chrF, exact match and BLEU, or by the labelled bracket F1 of trees; labels by accuracy
    and macro F1; a language model by its perplexity and its bits per byte.
    """
    from xformc.trainer.scores.evaluation import ScoreOptions, evaluate_engine

    options = ScoreOptions(
        metric, tokenize, beam_size, length_penalty, preset, truncate, threads, device, output,
        context=context, stride=stride, document=document,
    )  # fmt: skip
    try:
        with nullcontext() if output is None else output_text(output) as kept:
            scores = evaluate_engine(
                engine, data, options, lambda results, total: tracked(results, "translating", total)
            )
            if kept is not None:
                kept.writelines(f"{one_line(text)}\n" for text in scores.outputs)
    except TooLongError as error:
        raise error.advised("--truncate") from None
    for line in [json.dumps(scores.json())] if as_json else scores.lines():
        print(line)
