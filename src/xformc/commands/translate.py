"""`xformc translate`: lines of text in, lines of text out."""

import json
from functools import partial
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from xformc.commands.text_lines import (
    DEVICE_HELP,
    WINDOW_HELP,
    WORKERS_HELP,
    lines_of_stdin,
    one_line,
    pace_of_stdin,
    write_results,
)
from xformc.format.reader import read_manifest
from xformc.runtime.devices.device import DeviceName
from xformc.runtime.engine import load
from xformc.runtime.stream import MAX_BATCH_TOKENS
from xformc.runtime.translate import Hypothesis

ENGINE_HELP = "The engine: a folder made by `xformc build`."
BATCH_HELP = """Tokens that a batch may hold: of each source, padded, and of its hypotheses at their limit. More than
16,384 also allow longer sources."""


def translate(
    engine: Annotated[Path, Argument(help=ENGINE_HELP, metavar="ENGINE")],
    *,
    beam_size: Annotated[int | None, Option(help="Partial translations kept; 1 is greedy.")] = None,
    n_best: Annotated[int | None, Option(help="Translations for each line, best first.")] = None,
    length_penalty: Annotated[float | None, Option(help="More prefers longer translations.")] = None,
    max_length_factor: Annotated[float | None, Option(help="At most this times the source's tokens ...")] = None,
    max_length_offset: Annotated[int | None, Option(help="... and this many tokens more.")] = None,
    scores: Annotated[bool, Option("--scores", help="Put the score and a tab before each line.")] = False,
    as_json: Annotated[bool, Option("--json", help="Print a JSON object for each line.")] = False,
    truncate: Annotated[bool, Option("--truncate", help="Cut lines that are too long, with a warning.")] = False,
    window: Annotated[int | None, Option(help=WINDOW_HELP)] = None,
    workers: Annotated[int | None, Option(help=WORKERS_HELP)] = None,
    max_batch_tokens: Annotated[int, Option(help=BATCH_HELP)] = MAX_BATCH_TOKENS,
    threads: Annotated[int | None, Option(help="Cores to use; all if left out.")] = None,
    device: Annotated[DeviceName | None, Option(help=DEVICE_HELP)] = None,
) -> None:
    """Translate standard input to standard output.

    \b
    xformc translate demo/engine < in.txt > out.txt
    echo 'forty-two' | xformc translate demo/engine --beam-size 8 --n-best 3

    A line is a sentence, in UTF-8; the translations come in the same order, and an empty line stays empty.
    Options that are left out have the engine's defaults, which `xformc inspect ENGINE` shows. A character
    that the engine does not know is read as unknown; where it would write an unknown it writes nothing.

    With --n-best above 1, a translation is `LINE ||| TEXT ||| SCORE`, with lines counted from 1.
    With --json, it is {"line": 1, "hypotheses": [{"text": "...", "score": -1.5}]}, one object a line.
    """
    read_manifest(engine)
    pace = pace_of_stdin(window, workers, threads)
    loaded = load(engine, threads=threads, workers=pace.workers, device=device)
    with lines_of_stdin() as lines:
        results = loaded.translate_stream(
            lines,
            window=pace.window,
            max_batch_tokens=max_batch_tokens,
            truncate=truncate,
            beam_size=beam_size,
            n_best=n_best,
            length_penalty=length_penalty,
            max_length_factor=max_length_factor,
            max_length_offset=max_length_offset,
        )
        several = (n_best or loaded.manifest.search.n_best) > 1
        write_results(results, partial(_render, as_json=as_json, scores=scores, several=several))


def _render(line: int, hypotheses: list[Hypothesis], *, as_json: bool, scores: bool, several: bool) -> str:
    if as_json:
        found = [{"text": one.text, "score": round(one.score, 6)} for one in hypotheses]
        return json.dumps({"line": line, "hypotheses": found}, ensure_ascii=False) + "\n"
    if several:
        return "".join(f"{line} ||| {one_line(one.text)} ||| {one.score:.4f}\n" for one in hypotheses)
    text = one_line(hypotheses[0].text)
    return f"{hypotheses[0].score:.4f}\t{text}\n" if scores else f"{text}\n"
