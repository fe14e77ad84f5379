"""Orders in words, with the aisles that they need and their price: several labels of one text, and a number.

`two apple , no soap , a large pen` needs the aisles food and paper; its price is that of two apples and, large things
being twice as dear, of two pens. What is not wanted (`no soap`) counts for neither. A model that overlooks `no` has a
micro F1 of 0.89, one that finds every aisle everywhere 0.5. The median price is wrong by 11 on average, the sum of
prices that overlooks `large` by 4.5.
"""

import random
from functools import partial
from pathlib import Path

from benchmarks.zoo.tasks.splits import draw_splits, write_columns

AISLES = {
    "food": {"apple": 1, "pear": 1, "bread": 2, "cheese": 4},
    "house": {"soap": 2, "towel": 5, "candle": 3, "lamp": 7},
    "paper": {"pen": 1, "card": 2, "book": 6, "map": 3},
    "garden": {"seed": 1, "rake": 6, "pot": 3, "hose": 5},
    "sport": {"ball": 4, "rope": 3, "net": 6, "bat": 5},
}
COUNTS = {"no": 0, "a": 1, "two": 2, "three": 3}
ITEMS = (1, 4)
TRAIN = 12_000


def write_aisles(folder: Path, seed: int) -> None:
    """Write train.tsv, valid.tsv and test.tsv with each order and its aisles, `-` if there is none."""
    _write(folder, seed, 1)


def write_prices(folder: Path, seed: int) -> None:
    """Write train.tsv, valid.tsv and test.tsv with each order and its price."""
    _write(folder, seed, 2)


def _write(folder: Path, seed: int, column: int) -> None:
    splits = draw_splits(partial(draw, random.Random(seed)), TRAIN, key=lambda example: example[0])
    write_columns(folder, {name: [(row[0], row[column]) for row in rows] for name, rows in splits.items()})


def draw(source: random.Random) -> tuple[str, str, str]:
    """Draw an order, its aisles and its price."""
    items, aisles, price = list[str](), set[str](), 0
    for _ in range(source.randint(*ITEMS)):
        aisle, count, large = source.choice(list(AISLES)), source.choice(list(COUNTS)), source.random() < 0.3
        thing = source.choice(list(AISLES[aisle]))
        items.append(f"{count} {'large ' if large else ''}{thing}")
        price += COUNTS[count] * AISLES[aisle][thing] * (2 if large else 1)
        if count != "no":
            aisles.add(aisle)
    return " , ".join(items), " ".join(sorted(aisles)) or "-", str(price)
