"""Translation of number words from English to German: the corpus of `xformc corpus numbers`."""

from pathlib import Path

from xformc.trainer.data.number_words import write_numbers

TRAIN, VALID, TEST = 20_000, 300, 500


def write(folder: Path, seed: int) -> None:
    """Write train.tsv, valid.tsv and test.tsv, and test.en and test.de."""
    write_numbers(folder, TRAIN, VALID, TEST, seed)
