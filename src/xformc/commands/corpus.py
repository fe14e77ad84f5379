"""`xformc corpus`: parallel text that is made, not collected: endless, exact and free."""

from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option

from xformc.commands.options import OUT
from xformc.errors import UserError
from xformc.terminal import tracked


def corpus(
    kind: Annotated[Literal["numbers"], Argument(help="numbers: number words, English to German.", metavar="KIND")],
    *,
    output: Annotated[Path, Option(*OUT, help="The folder to write into.", metavar="DIR")],
    train: Annotated[int, Option(help="Training pairs.", min=1, metavar="N")] = 40_000,
    valid: Annotated[int, Option(help="Validation pairs.", min=1, metavar="N")] = 500,
    test: Annotated[int, Option(help="Test pairs.", min=1, metavar="N")] = 1_000,
    seed: Annotated[int, Option(help="Random seed.", metavar="N")] = 1,
) -> None:
    """Generate a small parallel corpus to try things with.

    \b
    xformc corpus numbers -o demo/data
    xformc train numbers --data demo/data -o demo/run

    It writes train.tsv, valid.tsv and test.tsv (source, tab, target), and the test set also as test.en and test.de.
    The numbers range from 0 to 999,999; no number is in two of the sets.
    """
    from xformc.trainer.data.number_words import write_numbers

    if (output / "train.tsv").exists():
        raise UserError("exists already", place=str(output / "train.tsv"), hint="give --output a new folder")
    write_numbers(output, train, valid, test, seed, tracked)
    print(f"{output}: {train:,} training pairs, {valid:,} validation pairs, {test:,} test pairs")
