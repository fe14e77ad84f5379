"""`xformc corpus`: parallel text that is made, not collected: endless, exact and free."""

import random
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, cast

from rich.console import Console
from rich.progress import track
from typer import Argument, Option

from xformc.errors import UserError
from xformc.files import atomic_write

LARGEST = 999_999
SMALL = 1000
LARGE_DIGITS = (4, 5, 6)


class CorpusKind(StrEnum):
    """The corpora that xformc can make."""

    numbers = "numbers"


def corpus(
    kind: Annotated[CorpusKind, Argument(help="numbers: number words, English to German.", metavar="KIND")],
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
    too. The numbers are from 0 to 999,999, and none is in two of the sets.
    """
    assert kind is CorpusKind.numbers
    in_words = _number_words()
    for split, numbers in choose_numbers(train, valid, test, seed).items():
        pairs = [(in_words(number, lang="en"), in_words(number, lang="de")) for number in _tracked(numbers, split)]
        _write(out / f"{split}.tsv", (f"{english}\t{german}" for english, german in pairs))
        if split == "test":
            _write(out / "test.en", (english for english, _ in pairs))
            _write(out / "test.de", (german for _, german in pairs))
    print(f"{out}: {train:,} pairs to train on, {valid:,} to validate, {test:,} to test")


def choose_numbers(train: int, valid: int, test: int, seed: int) -> dict[str, Sequence[int]]:
    """Disjoint numbers for each set, the same for the same `seed`.

    Valid and test are drawn evenly. Train has every other number below 1,000; then half of it is drawn evenly among
    numbers of four, five and six digits, and half among all of them, of which nine tenths have six.

    Raises: UserError if there are not so many numbers.
    """
    if train + valid + test > LARGEST + 1:
        raise UserError(f"there are {LARGEST + 1:,} numbers, and {train + valid + test:,} were asked for")
    generator = random.Random(seed)
    drawn = generator.sample(range(LARGEST + 1), valid + test + train)
    held_out = set(drawn[: valid + test])
    lengths = generator.choices(LARGE_DIGITS, k=max(0, train - SMALL) // 2)
    by_length = [generator.randrange(10 ** (length - 1), 10**length) for length in lengths]
    wanted = dict.fromkeys([*range(SMALL), *by_length, *drawn[valid + test :]])
    chosen = [number for number in wanted if number not in held_out][:train]
    generator.shuffle(chosen)
    return {"train": chosen, "valid": drawn[:valid], "test": drawn[valid : valid + test]}


def _number_words() -> Callable[..., str]:
    from num2words import num2words  # pyright: ignore[reportUnknownVariableType]

    return cast(Callable[..., str], num2words)


def _tracked(numbers: Sequence[int], label: str) -> Iterable[int]:
    console = Console(stderr=True)
    return track(numbers, label, console=console, transient=True, disable=not console.is_terminal)


def _write(path: Path, lines: Iterable[str]) -> None:
    with atomic_write(path) as part:
        part.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
