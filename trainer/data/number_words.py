"""Generates a parallel corpus of number words, English to German."""

import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import cast

from xformc.errors import UserError
from xformc.files import atomic_write

LARGEST = 999_999
SMALL = 1000
LARGE_DIGITS = (4, 5, 6)

Watch = Callable[[Sequence[int], str], Iterable[int]]
"""Yields the numbers of a split unchanged, given the numbers and the split's name; shows progress."""


def write_numbers(
    out: Path, train: int, valid: int, test: int, seed: int, watch: Watch = lambda numbers, _: numbers
) -> None:
    """Write pairs to train.tsv, valid.tsv and test.tsv (source, tab, target), and those of test to test.en and test.de.

    Raises: UserError as `choose_numbers`.
    """
    in_words = _number_words()
    for split, numbers in choose_numbers(train, valid, test, seed).items():
        pairs = [(in_words(number, lang="en"), in_words(number, lang="de")) for number in watch(numbers, split)]
        _write(out / f"{split}.tsv", (f"{english}\t{german}" for english, german in pairs))
        if split == "test":
            _write(out / "test.en", (english for english, _ in pairs))
            _write(out / "test.de", (german for _, german in pairs))


def choose_numbers(train: int, valid: int, test: int, seed: int) -> dict[str, Sequence[int]]:
    """Return disjoint numbers for each set, the same for the same `seed`.

    Valid and test are drawn uniformly. Train has every remaining number below 1,000. Half of the rest is drawn with
    four, five or six digits at equal odds, and half from all numbers, nine tenths of which have six digits.

    Raises: UserError if there are not enough numbers.
    """
    if train + valid + test > LARGEST + 1:
        raise UserError(f"{train + valid + test:,} numbers were requested, but there are only {LARGEST + 1:,}")
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
    from num2words import num2words  # noqa: PLC0415  # pyright: ignore[reportUnknownVariableType]

    return cast(Callable[..., str], num2words)


def _write(path: Path, lines: Iterable[str]) -> None:
    with atomic_write(path) as part:
        part.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
