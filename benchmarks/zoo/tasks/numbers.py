"""Numbers in English words to German words: the demo's corpus, as `xformc corpus numbers` makes it."""

import io
from contextlib import redirect_stdout
from pathlib import Path

from xformc.commands.corpus import CorpusKind, corpus

TRAIN, VALID, TEST = 20_000, 300, 500


def write(folder: Path, seed: int) -> None:
    """Write train.tsv, valid.tsv and test.tsv, and test.en and test.de."""
    with redirect_stdout(io.StringIO()):
        corpus(CorpusKind.numbers, folder, train=TRAIN, valid=VALID, test=TEST, seed=seed)
