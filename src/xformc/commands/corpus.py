"""`xformc corpus`: parallel text that is made, not collected: endless, exact and free."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from typer import Argument, Option


class CorpusKind(StrEnum):
    """The corpora that xformc can make."""

    numbers = "numbers"


def corpus(
    kind: Annotated[
        CorpusKind, Argument(help="numbers: English to German number words, 0 to 999,999.", metavar="KIND")
    ],
    out: Annotated[Path, Argument(help="The folder to write into.", metavar="DIR")],
    *,
    train: Annotated[int, Option(help="Pairs to train on.", min=1)] = 40_000,
    valid: Annotated[int, Option(help="Pairs to watch the training by.", min=1)] = 500,
    test: Annotated[int, Option(help="Pairs to evaluate on.", min=1)] = 1_000,
    seed: Annotated[int, Option(help="Another seed, another choice of numbers.")] = 1,
) -> None:
    """Make a small parallel corpus to try with.

    \b
    xformc corpus numbers demo/data
    xformc train numbers --data demo/data --out demo/run

    It writes train.tsv, valid.tsv and test.tsv (source, tab, target), and the test set as test.en and test.de
    too. No number is in two of them.
    """
    assert kind is CorpusKind.numbers
    from xformc.trainer.numbers import write_numbers

    sizes = write_numbers(out, train=train, valid=valid, test=test, seed=seed)
    print(f"{out}: " + ", ".join(f"{split} {count:,}" for split, count in sizes.items()) + " pairs")
