"""`xformc generate`: lines of text in, the same lines continued out."""

import json
from collections import deque
from collections.abc import Iterator
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
from xformc.commands.translate import ENGINE_HELP
from xformc.format.reader import read_manifest
from xformc.runtime.devices.device import DeviceName
from xformc.runtime.engine import load
from xformc.runtime.generate import Continuation
from xformc.runtime.stream import MAX_BATCH_TOKENS

BATCH_HELP = "Tokens of a batch, with those to be added; more than 16,384 also allow longer prompts."


def generate(
    engine: Annotated[Path, Argument(help=ENGINE_HELP, metavar="ENGINE")],
    *,
    temperature: Annotated[float | None, Option(help="Below 1 likely tokens become likelier; 0 is greedy.")] = None,
    top_k: Annotated[int | None, Option(help="Sample from the k most likely tokens (0: no limit).")] = None,
    top_p: Annotated[float | None, Option(help="Draw from the best that have this probability together.")] = None,
    max_new_tokens: Annotated[int | None, Option(help="At most so many tokens are added.")] = None,
    seed: Annotated[int, Option(help="Of the first line; each line after it has the next one.")] = 0,
    as_json: Annotated[bool, Option("--json", help="Print a JSON object for each line.")] = False,
    truncate: Annotated[bool, Option("--truncate", help="Keep the end of lines that are too long.")] = False,
    window: Annotated[int | None, Option(help=WINDOW_HELP)] = None,
    workers: Annotated[int | None, Option(help=WORKERS_HELP)] = None,
    max_batch_tokens: Annotated[int, Option(help=BATCH_HELP)] = MAX_BATCH_TOKENS,
    threads: Annotated[int | None, Option(help="Cores to use; all if left out.")] = None,
    device: Annotated[DeviceName | None, Option(help=DEVICE_HELP)] = None,
) -> None:
    """Continue the lines of standard input with a language model, on standard output.

    \b
    xformc generate ENGINE < prompts.txt > texts.txt
    echo 'Once upon a time' | xformc generate ENGINE --temperature 0.7 --top-p 0.9 --seed 4

    A line is a prompt, in UTF-8; the texts come in the same order, each with its prompt before it. An empty
    line is a prompt too: a text from its beginning. Options that are left out have the engine's defaults,
    which `xformc inspect ENGINE` shows. The same prompt and seed give the same text, whatever the other lines.

    With --json, it is {"line": 1, "text": "...", "score": -1.5, "tokens": 12}, one object a line: the text
    without its prompt, its log probability, and how many tokens it has.
    """
    read_manifest(engine)
    pace, prompts = pace_of_stdin(window, workers, threads), deque[str]()
    loaded = load(engine, threads=threads, workers=pace.workers, device=device)

    def remembered(lines: Iterator[str]) -> Iterator[str]:
        for line in lines:
            prompts.append(line)
            yield line

    with lines_of_stdin() as lines:
        results = loaded.generate_stream(
            remembered(lines),
            seed=seed,
            window=pace.window,
            max_batch_tokens=max_batch_tokens,
            truncate=truncate,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            max_new_tokens=max_new_tokens,
        )

        def render(line: int, result: Continuation) -> str:
            prompt = prompts.popleft()
            return _as_json(line, result) if as_json else _as_text(prompt, result)

        write_results(results, render)


def _as_json(line: int, result: Continuation) -> str:
    fields = {"line": line, "text": result.text, "score": round(result.score, 6), "tokens": len(result.tokens)}
    return json.dumps(fields, ensure_ascii=False) + "\n"


def _as_text(prompt: str, result: Continuation) -> str:
    before = prompt.rstrip() if result.text.startswith(" ") else prompt
    return f"{before}{one_line(result.text)}\n"
