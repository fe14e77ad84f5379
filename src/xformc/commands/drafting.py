"""The options `--draft` and `--draft-tokens`: what guesses the next tokens of a text."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from typer import Option

from xformc.runtime.engine import Engine, load
from xformc.runtime.generation.draft import DRAFT_TOKENS, LOOKUP

DRAFT_HELP = (
    f"""Guess the next tokens by this engine, or `{LOOKUP}` them in the text so far; the texts stay the same."""
)
DraftName = Annotated[str | None, Option("--draft", help=DRAFT_HELP, metavar="ENGINE2")]
TOKENS_HELP = f"The most tokens to guess at a time.  [default: {DRAFT_TOKENS}]"
DraftTokens = Annotated[int | None, Option("--draft-tokens", help=TOKENS_HELP, metavar="N")]


@contextmanager
def opened_draft(name: str | None, *, threads: int | None, workers: int) -> Generator[Engine | str | None]:
    """The draft of this name: an engine, which is closed at the end, or a word. A folder may be called `./lookup`."""
    if name is None or name == LOOKUP:
        yield name
        return
    with load(Path(name), threads=threads, workers=workers) as engine:
        yield engine
