"""The cases to measure, by model, precision, beam, batch and length, and the speed ratios to reach."""

from collections.abc import Sequence
from dataclasses import dataclass

from xformc.format.precision import Precision

SOURCE_TOKENS = 25
VOCABULARY = 32_000
BATCHES = (1, 8, 32, 128)
LENGTHS = (30, 100)

MODELS = {
    "base": "extends: transformer_base\nsizes: {vocabulary: %d}\n",
    "big": "extends: transformer_big\nsizes: {vocabulary: %d}\n",
    "small256": "extends: transformer_base\nsizes: {vocabulary: %d, d_model: 256, d_ff: 1024, heads: 4}\n",
    "small128": "extends: transformer_base\nsizes: {vocabulary: %d, d_model: 128, d_ff: 512, heads: 4, layers: 3}\n",
}
"""Specs by name, with a placeholder for the vocabulary size."""


@dataclass(frozen=True)
class Row:
    """A row of the table: one model in one precision, and its target speed ratio at each of BATCHES."""

    model: str
    precision: Precision
    beam: int
    targets: tuple[float, ...]

    @property
    def name(self) -> str:
        """The row's name for `--rows`, for example base-beam4-int8."""
        return f"{self.model}-{'greedy' if self.beam == 1 else f'beam{self.beam}'}-{self.precision}"


@dataclass(frozen=True)
class Case:
    """One cell of the table, for one output length."""

    row: Row
    batch: int
    length: int

    @property
    def target(self) -> float:
        """The target speed ratio to CTranslate2."""
        return self.row.targets[BATCHES.index(self.batch)]


SMALL = (3.0, 3.0, 2.5, 2.0)
ROWS = (
    Row("base", "int8", 4, (6.0, 4.0, 3.0, 2.5)),
    Row("base", "float32", 4, (2.5, 2.0, 1.6, 1.4)),
    Row("base", "bfloat16", 4, (2.5, 2.0, 1.6, 1.4)),
    Row("base", "int8", 1, (5.0, 4.0, 3.0, 2.5)),
    Row("big", "int8", 4, (5.0, 3.0, 2.5, 2.0)),
    Row("small256", "float32", 4, SMALL),
    Row("small256", "int8", 4, SMALL),
    Row("small128", "float32", 4, SMALL),
    Row("small128", "int8", 4, SMALL),
)


def chosen_rows(prefixes: Sequence[str]) -> list[Row]:
    """Return the rows whose names begin with one of the prefixes; all rows without prefixes."""
    found = [row for row in ROWS if not prefixes or any(row.name.startswith(prefix) for prefix in prefixes)]
    if not found:
        raise SystemExit(f"error: no such row; the rows are {', '.join(row.name for row in ROWS)}")
    return found
