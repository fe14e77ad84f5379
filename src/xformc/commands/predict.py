"""`xformc predict`: lines of text or arrays in, labels out."""

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
    pace_of_stdin,
    write_results,
)
from xformc.commands.translate import ENGINE_HELP
from xformc.format.reader import read_manifest
from xformc.runtime.arrays import read_npz
from xformc.runtime.devices.device import DeviceName
from xformc.runtime.engine import Engine, load
from xformc.runtime.predict import MAX_BATCH_POSITIONS, Prediction

INPUT_HELP = "An .npz file with an array for each input, in place of lines."


def predict(
    engine: Annotated[Path, Argument(help=ENGINE_HELP, metavar="ENGINE")],
    *,
    arrays: Annotated[Path | None, Option("--input", help=INPUT_HELP, metavar="NPZ")] = None,
    as_json: Annotated[bool, Option("--json", help="Print a JSON object for each example.")] = False,
    truncate: Annotated[bool, Option("--truncate", help="Cut lines that are too long, with a warning.")] = False,
    window: Annotated[int | None, Option(help=WINDOW_HELP)] = None,
    workers: Annotated[int | None, Option(help=WORKERS_HELP)] = None,
    max_batch_tokens: Annotated[int, Option(help="Positions run together.")] = MAX_BATCH_POSITIONS,
    threads: Annotated[int | None, Option(help="Cores to use; all if left out.")] = None,
    device: Annotated[DeviceName | None, Option(help=DEVICE_HELP)] = None,
) -> None:
    """Label the lines of standard input: one label a line, or one for each word.

    \b
    xformc predict reviews/engine < in.txt > labels.txt
    echo 'the dog sleeps' | xformc predict tagger/engine --json
    xformc predict digits/engine --input test.npz

    A line is an example, in UTF-8; where the engine has several inputs of text, tabs separate them. The labels come
    in the same order, those of words with spaces between. With --input the examples are the rows of an .npz file:
    tokens [rows, longest], vectors [rows, longest, size] and NAME_lengths [rows], values [rows, ...],
    edges [rows, longest, longest]; `xformc inspect ENGINE` shows which inputs there are.

    With --json, an example is {"line": 1, "label": "good", "probabilities": {"bad": 0.1, "good": 0.9}}; where words
    are labelled it has "labels", and "probabilities" is a list.
    """
    if arrays is not None:
        loaded = load(engine, threads=threads, workers=1 if workers is None else workers, device=device)
        predictions = loaded.predict(read_npz(arrays), max_batch_tokens=max_batch_tokens)
        write_results((one for one in predictions), partial(_render, loaded, as_json=as_json))
        return
    several = len(read_manifest(engine).inputs) > 1
    pace = pace_of_stdin(window, workers, threads)
    loaded = load(engine, threads=threads, workers=pace.workers, device=device)
    with lines_of_stdin() as lines:
        examples = (line.split("\t") if several else line for line in lines)
        found = loaded.predict_stream(
            examples, window=pace.window, max_batch_tokens=max_batch_tokens, truncate=truncate
        )
        write_results(found, partial(_render, loaded, as_json=as_json))


def _render(engine: Engine, line: int, prediction: Prediction, *, as_json: bool) -> str:
    fields = _as_json(engine, line, prediction) if as_json else None
    return f"{' '.join(prediction.labels) if fields is None else json.dumps(fields, ensure_ascii=False)}\n"


def _as_json(engine: Engine, line: int, prediction: Prediction) -> dict[str, object]:
    names = engine.manifest.labels or ()
    found = [
        {name: round(float(value), 6) for name, value in zip(names, row, strict=True)}
        for row in prediction.probabilities
    ]
    if engine.manifest.positions is None:
        return {"line": line, "label": prediction.label, "probabilities": found[0]}
    return {"line": line, "labels": list(prediction.labels), "probabilities": found}
