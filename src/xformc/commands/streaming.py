"""The option `--stream`: texts of a language model as they are sampled."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Annotated, Any

from typer import Option

from xformc.commands.text_lines import one_line, output_text
from xformc.errors import UserError
from xformc.format.abilities import STREAMS
from xformc.format.manifest import Manifest
from xformc.runtime import Engine
from xformc.runtime.text.texts import TooLongError

STREAM_HELP = "Print each text as it is sampled, one line after the other.  [default: if the output is a terminal]"
Stream = Annotated[bool | None, Option("--stream/--no-stream", help=STREAM_HELP, show_default=False)]


def streams(stream: bool | None, manifest: Manifest, output: Path | None, *, as_json: bool) -> bool:
    """Return whether texts are printed as they are sampled. Raises: UserError if they cannot be."""
    if stream and as_json:
        raise UserError("--stream prints text, and --json prints objects", hint="leave one of them out")
    if stream is None:
        return output is None and not as_json and manifest.can(STREAMS) and sys.stdout.isatty()
    return stream


def write_streams(
    engine: Engine, prompts: Iterator[str], path: Path | None, *, seed: int, truncate: bool, options: dict[str, Any]
) -> None:
    """Write the prompts with their texts, each piece as it comes. The seed of each prompt is one more."""
    with output_text(path) as output:
        for index, prompt in enumerate(prompts):
            try:
                _write(engine, prompt, output, seed + index, {**options, "truncate": truncate})
            except TooLongError as error:
                error.place = f"line {index + 1}"
                raise error.advised("--truncate", "--max-batch-tokens ") from None


def _write(engine: Engine, prompt: str, output: IO[str], seed: int, options: dict[str, Any]) -> None:
    begun = False
    with engine.stream_tokens(prompt, seed=seed, **options) as stream:
        for piece in stream:
            if not begun:
                output.write(prompt.rstrip() if piece.startswith(" ") else prompt)
            begun = True
            output.write(one_line(piece))
            output.flush()
    output.write("\n" if begun else f"{prompt}\n")
    output.flush()
