"""`xformc predict`: lines of text or arrays in, labels out."""

import json
from functools import partial
from pathlib import Path
from typing import Annotated

from typer import Option

from xformc.commands.options import Device, EngineFolder, JsonLines, TextOutput, Threads, Truncate, Window, Workers
from xformc.commands.text_lines import choose_pace, input_lines, write_results
from xformc.format.reader import read_manifest
from xformc.runtime.arrays import read_npz
from xformc.runtime.engine import Engine, load
from xformc.runtime.predict import MAX_BATCH_POSITIONS, Prediction

INPUT_HELP = """Read lines from this file, which may be .gz, or arrays from an .npz file; `-` is standard input.
[default: -]"""


def predict(
    engine: EngineFolder,
    *,
    examples: Annotated[Path | None, Option("--input", "-i", help=INPUT_HELP, metavar="FILE")] = None,
    output: TextOutput = None,
    as_json: JsonLines = False,
    truncate: Truncate = False,
    window: Window = None,
    workers: Workers = None,
    max_batch_tokens: Annotated[
        int, Option(help="Capacity of a batch in positions, padding included.", metavar="N")
    ] = MAX_BATCH_POSITIONS,
    threads: Threads = None,
    device: Device = None,
) -> None:
    """Label lines of text, or arrays: one label for each example, or one for each word.

    \b
    xformc predict reviews/engine < in.txt > labels.txt
    echo 'the dog sleeps' | xformc predict tagger/engine --json
    xformc predict digits/engine -i test.npz

    A line is an example in UTF-8; tabs separate the texts of an engine with several inputs. Labels keep the order of
    the lines; labels of words are separated by spaces. The rows of an .npz file are examples: tokens [rows, longest],
    vectors [rows, longest, size] and NAME_lengths [rows], values [rows, ...], edges [rows, longest, longest].
    `xformc inspect ENGINE` shows the engine's inputs.

    With --json: {"line": 1, "label": "good", "probabilities": {"bad": 0.1, "good": 0.9}}; for labels of words
    "labels" and a list of "probabilities".
    """
    if examples is not None and examples.suffix == ".npz":
        with load(engine, threads=threads, workers=1 if workers is None else workers, device=device) as loaded:
            predictions = loaded.predict(read_npz(examples), max_batch_tokens=max_batch_tokens)
            write_results((one for one in predictions), partial(_render, loaded, as_json=as_json), output)
        return
    several = len(read_manifest(engine).inputs) > 1
    pace = choose_pace(examples, window, workers, threads)
    with load(engine, threads=threads, workers=pace.workers, device=device) as loaded, input_lines(examples) as lines:
        split = (line.split("\t") if several else line for line in lines)
        found = loaded.predict_stream(split, window=pace.window, max_batch_tokens=max_batch_tokens, truncate=truncate)
        write_results(found, partial(_render, loaded, as_json=as_json), output)


def _render(engine: Engine, index: int, prediction: Prediction, *, as_json: bool) -> str:
    fields = _as_json(engine, index + 1, prediction) if as_json else None
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
