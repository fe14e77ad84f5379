"""`xformc corpus`: parallel text that is made, not collected: endless, exact and free."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Literal

from rich.console import Console
from rich.progress import track
from typer import Argument, Option


def corpus(
    kind: Annotated[Literal["numbers"], Argument(help="numbers: number words, English to German.", metavar="KIND")],
    out: Annotated[Path, Argument(help="The folder to write into.", metavar="DIR")],
    *,
    train: Annotated[int, Option(help="Pairs to train on.", min=1)] = 40_000,
    valid: Annotated[int, Option(help="Pairs to watch the training by.", min=1)] = 500,
    test: Annotated[int, Option(help="Pairs to evaluate on.", min=1)] = 1_000,
    seed: Annotated[int, Option(help="Random seed.")] = 1,
) -> None:
    """Make a small parallel corpus to try with.

    \b
    xformc corpus numbers demo/data
    xformc train numbers --data demo/data --out demo/run

    It writes train.tsv, valid.tsv and test.tsv (source, tab, target), and the test set as test.en and test.de
    too. The numbers are from 0 to 999,999, and none is in two of the sets.
    """
    from xformc.trainer.data.number_words import write_numbers

    write_numbers(out, train, valid, test, seed, _tracked)
    print(f"{out}: {train:,} pairs to train on, {valid:,} to validate, {test:,} to test")


def _tracked(numbers: Sequence[int], label: str) -> Iterable[int]:
    console = Console(stderr=True)
    return track(numbers, label, console=console, transient=True, disable=not console.is_terminal)
