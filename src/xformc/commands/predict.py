"""`xformc predict`: lines of text or arrays in, labels out."""

import json
from functools import partial
from pathlib import Path
from typing import Annotated

from typer import Option

from xformc.commands.json_input import JsonInput, json_alone, require_json_output, require_lines
from xformc.commands.options import (
    Device,
    EngineFolder,
    InputFiles,
    JsonLines,
    TextOutput,
    Threads,
    Truncate,
    Window,
    Workers,
)
from xformc.commands.text_lines import choose_pace, columns_of, file_names, files_pace, input_lines, write_results
from xformc.format.reader import read_manifest
from xformc.runtime.arrays import read_npz
from xformc.runtime.engine import Engine, load
from xformc.runtime.kinds.kind import fields_of, kind_of
from xformc.runtime.kinds.labels import Prediction
from xformc.runtime.predict import MAX_BATCH_POSITIONS

INPUT_HELP = """Read lines from this file, which may be .gz, or arrays from an .npz file; `-` is standard input.
[default: -]"""


def predict(
    engine: EngineFolder,
    files: InputFiles = None,
    *,
    examples: Annotated[Path | None, Option("--input", "-i", help=INPUT_HELP, metavar="FILE")] = None,
    output: TextOutput = None,
    as_json: JsonLines = False,
    json_input: JsonInput = False,
    truncate: Truncate = False,
    window: Window = None,
    workers: Workers = None,
    max_batch_tokens: Annotated[
        int, Option(help="Capacity of a batch in positions, padding included.", metavar="N")
    ] = MAX_BATCH_POSITIONS,
    threads: Threads = None,
    device: Device = None,
) -> None:
    """Compute the results for lines of text, or for arrays: a label for each example or each word, numbers, vectors.

    \b
    xformc predict reviews/engine < in.txt > labels.txt
    echo 'the dog sleeps' | xformc predict tagger/engine --json
    xformc predict digits/engine -i test.npz

    A line is an example in UTF-8; tabs separate the texts of an engine with several inputs. Results keep the order of
    the lines; those of words are separated by spaces, several results by tabs. The rows of an .npz file are examples:
    tokens [rows, longest], vectors [rows, longest, size] and NAME_lengths [rows], values [rows, ...], edges [rows,
    longest, longest]. The text of a sound or an image is the path of its .wav, .png or .jpg file.
    `xformc inspect ENGINE` shows the engine's inputs.

    With --json: {"line": 1, "label": "good", "probabilities": {"bad": 0.1, "good": 0.9}}; for labels of words
    "labels" and a list of "probabilities". An engine whose spec declares its results has an object for each of them.
    """
    require_json_output(json_input, as_json)
    require_lines(json_input, files, examples)
    if files is None and examples is not None and examples.suffix == ".npz":
        with load(engine, threads=threads, workers=1 if workers is None else workers, device=device) as loaded:
            predictions = loaded.predict(read_npz(examples), max_batch_tokens=max_batch_tokens)
            write_results((one for one in predictions), partial(_render, loaded, as_json=as_json), output)
        return
    given = read_manifest(engine).given
    pace = choose_pace(examples, window, workers, threads) if files is None else files_pace(files, window, workers)
    lines_of = input_lines(examples) if files is None else file_names(files, examples, given)
    with load(engine, threads=threads, workers=pace.workers, device=device) as loaded, lines_of as lines:
        texts = json_alone(lines, list(given)) if json_input else columns_of(lines, given)
        found = loaded.predict_stream(texts, window=pace.window, max_batch_tokens=max_batch_tokens, truncate=truncate)
        write_results(found, partial(_render, loaded, as_json=as_json), output)


def _render(engine: Engine, index: int, prediction: Prediction, *, as_json: bool) -> str:
    found = prediction.results or {name: prediction for name in engine.manifest.results}
    results = engine.manifest.results
    if not as_json:
        return "\t".join(kind_of(results[name]).line(value) for name, value in found.items()) + "\n"
    fields = fields_of(results, found)
    content = fields if prediction.results else next(iter(fields.values()))
    return f"{json.dumps({'line': index + 1, **content}, ensure_ascii=False)}\n"
