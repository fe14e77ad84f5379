"""`xformc score`: how likely given texts are, by an engine."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from xformc.commands.options import BeamSize, Device, EngineFolder, JsonLines, TextOutput, Threads, Truncate, Workers
from xformc.commands.text_lines import choose_pace, write_results
from xformc.format.reader import read_manifest
from xformc.runtime.engine import load
from xformc.runtime.lines import read_file_lines
from xformc.runtime.search import length_divisor
from xformc.runtime.stream import MAX_BATCH_TOKENS
from xformc.runtime.translate import Hypothesis, rounded

PENALTY_HELP = """Length penalty of the scores, as in `xformc translate`.  [default: the engine's]"""


def score(
    engine: EngineFolder,
    source: Annotated[Path, Argument(help="The sources, line by line; may be .gz.", metavar="SOURCE")],
    target: Annotated[Path, Argument(help="The text of each source, line by line; may be .gz.", metavar="TARGET")],
    *,
    output: TextOutput = None,
    length_penalty: Annotated[float | None, Option(help=PENALTY_HELP, metavar="ALPHA")] = None,
    beam_size: BeamSize = None,
    as_json: JsonLines = False,
    truncate: Truncate = False,
    workers: Workers = None,
    max_batch_tokens: Annotated[int, Option(help="Capacity of a batch in tokens.", metavar="N")] = MAX_BATCH_TOKENS,
    threads: Threads = None,
    device: Device = None,
) -> None:
    """Score given texts with an engine that searches for its text.

    \b
    xformc score demo/engine test.en test.de
    xformc score demo/engine test.en test.de --length-penalty 0 --json

    Each line of the output is the score of a target as the search has it: the log probability with the length penalty.
    With --json: {"line": 1, "score": -0.31, "log_probability": -0.47, "tokens": 4}; the end token counts as one.
    Both numbers are null for a text that is impossible, as every text but the empty one is for an empty source. A line
    of SOURCE has the texts of an engine with several inputs, separated by tabs.
    """
    manifest = read_manifest(engine)
    pace = choose_pace(source, None, workers, threads)
    several = len(manifest.given) > 1
    with load(engine, threads=threads, workers=pace.workers, device=device) as loaded:
        found = loaded.score_stream(
            (line.split("\t") if several else line for line in read_file_lines(source)),
            read_file_lines(target),
            max_batch_tokens=max_batch_tokens,
            truncate=truncate,
            beam_size=beam_size,
            length_penalty=length_penalty,
        )
        alpha = manifest.search.length_penalty if length_penalty is None else length_penalty
        divisor = partial(length_divisor, alpha=alpha, kind=manifest.search.length_penalty_kind)
        write_results(found, lambda index, one: _render(index, one, divisor, as_json=as_json), output)


def _render(index: int, one: Hypothesis, divisor: Callable[[int], float], *, as_json: bool) -> str:
    if not as_json:
        return f"{one.score:.4f}\n"
    numbers = {"score": one.score, "log_probability": one.score * divisor(len(one.tokens))}
    finite = {name: rounded(number) for name, number in numbers.items()}
    return json.dumps({"line": index + 1, **finite, "tokens": len(one.tokens)}) + "\n"
