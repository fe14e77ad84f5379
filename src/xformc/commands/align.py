"""`xformc align`: the links of words between given texts and their translations."""

import json
from functools import partial
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from xformc.commands.alignments import Attention, alignment_fields, check_attention
from xformc.commands.options import Device, EngineFolder, JsonLines, TextOutput, Threads, Truncate, Workers
from xformc.commands.text_lines import choose_pace, write_results
from xformc.runtime import Alignment
from xformc.runtime.engine import load
from xformc.runtime.stream import MAX_BATCH_TOKENS
from xformc.runtime.text.lines import read_file_lines


def align(
    engine: EngineFolder,
    source: Annotated[Path, Argument(help="The sources, line by line; may be .gz.", metavar="SOURCE")],
    target: Annotated[Path, Argument(help="The translation of each, line by line; may be .gz.", metavar="TARGET")],
    *,
    output: TextOutput = None,
    attention: Attention = False,
    as_json: JsonLines = False,
    truncate: Truncate = False,
    workers: Workers = None,
    max_batch_tokens: Annotated[int, Option(help="Capacity of a batch in tokens.", metavar="N")] = MAX_BATCH_TOKENS,
    threads: Threads = None,
    device: Device = None,
) -> None:
    """Align given translations with their sources, word by word.

    \b
    xformc align demo/engine test.en test.de > links.txt
    xformc align demo/engine test.en test.de --json --attention

    A line of the output has the links of a pair in Pharaoh's format: `0-0 1-2` links the first words, and the second of
    the source with the third of the translation. They come from the attention of the engine's model, which reads the
    translation as if it had written it; `decode: {alignment: ...}` of its spec says which attention.

    With --json: {"line": 1, "alignment": [[0, 0], [1, 2]]}.
    """
    check_attention(attention, as_json)
    pace = choose_pace(source, None, workers, threads)
    with load(engine, threads=threads, workers=pace.workers, device=device) as loaded:
        found = loaded.align_stream(
            read_file_lines(source), read_file_lines(target), max_batch_tokens=max_batch_tokens, truncate=truncate
        )
        write_results(found, partial(_as_json, attention=attention) if as_json else _as_line, output)


def _as_line(index: int, alignment: Alignment) -> str:
    return f"{alignment}\n"


def _as_json(index: int, alignment: Alignment, *, attention: bool) -> str:
    return json.dumps({"line": index + 1, **alignment_fields(alignment, attention=attention)}) + "\n"
