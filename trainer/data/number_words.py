"""A parallel corpus that is made, not collected: number words, English to German, endless, exact and free."""

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
"""Gives the numbers that it is given, of the split of this name."""


def write_numbers(
    out: Path, train: int, valid: int, test: int, seed: int, watch: Watch = lambda numbers, _: numbers
) -> None:
    """Write this many pairs to train.tsv, valid.tsv and test.tsv (source, tab, target), and test.en and test.de.

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
    from num2words import num2words  # noqa: PLC0415  # pyright: ignore[reportUnknownVariableType]

    return cast(Callable[..., str], num2words)


def _write(path: Path, lines: Iterable[str]) -> None:
    with atomic_write(path) as part:
        part.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
