"""Table 3 of Vaswani et al. (2017): the parameter counts of our graphs and of the paper.

python -m benchmarks.table3
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from xformc.compiler import compile_spec
from xformc.compiler.spec import load_spec

SPECS = Path(__file__).parent.parent / "specs"

PAPER: dict[str, int | None] = {
    "transformer_base": 65,
    "table3/a_1_head": None,
    "table3/a_4_heads": None,
    "table3/a_16_heads": None,
    "table3/a_32_heads": None,
    "table3/b_d_k_16": 58,
    "table3/b_d_k_32": 60,
    "table3/c_2_layers": 36,
    "table3/c_4_layers": 50,
    "table3/c_8_layers": 80,
    "table3/c_d_model_256": 28,
    "table3/c_d_model_1024": 168,
    "table3/c_d_ff_1024": 53,
    "table3/c_d_ff_4096": 90,
    "table3/d_no_dropout": None,
    "table3/d_dropout_0_2": None,
    "table3/d_no_smoothing": None,
    "table3/d_smoothing_0_2": None,
    "table3/e_learned_positions": None,
    "transformer_big": 213,
}
"""The paper's count in millions, or None, for each spec in the order of the table."""


@dataclass(frozen=True)
class Row:
    """One row: `difference` has the spec's settings besides `extends`; `paper` is in millions."""

    name: str
    difference: str
    d_model: int
    parameters: int
    paper: int | None

    @property
    def percent(self) -> float | None:
        """Our difference from the paper's count in percent; negative if ours is lower."""
        return None if self.paper is None else 100 * (self.parameters / (self.paper * 1e6) - 1)


def rows() -> list[Row]:
    """Return the whole table."""
    return [make_row(name, paper) for name, paper in PAPER.items()]


def make_row(name: str, paper: int | None) -> Row:
    """Compile one spec and count its parameters."""
    path = SPECS / f"{name}.yaml"
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    said = {key: value for key, value in content.items() if key != "extends"} if "extends" in content else {}
    spec = load_spec(path)
    return Row(
        path.stem, ", ".join(_settings(said)), int(spec.sizes["d_model"]), compile_spec(spec).parameter_count(), paper
    )


def missing_pieces(table: Sequence[Row]) -> tuple[int, int]:
    """Return the range of additional tokens in the vocabulary that would reproduce all rounded counts of the paper."""
    pairs = [((row.paper or 0) * 1e6 - row.parameters, row.d_model) for row in table if row.paper is not None]
    least, most = (max, -0.5e6), (min, 0.5e6)
    low, high = (pick((gap + half) / width for gap, width in pairs) for pick, half in (least, most))
    return round(low), round(high)


def _settings(content: dict[str, object]) -> Iterator[str]:
    for key, value in content.items():
        if isinstance(value, dict):
            yield from _settings(value)
        else:
            yield f"{key} {value}"


def main() -> None:
    table = rows()
    print(f"{'row':20} {'differs in':72} {'parameters':>12} {'paper':>6} {'%':>6}")
    for row in table:
        paper, percent = ("", "") if row.percent is None else (f"{row.paper}M", f"{row.percent:+.1f}")
        print(f"{row.name:20} {row.difference:72} {row.parameters:12,} {paper:>6} {percent:>6}")
    low, high = missing_pieces([row for row in table if row.name != "transformer_big"])
    print(
        f"Our counts are lower: the paper's sizes with 37,000 tokens make {table[0].parameters / 1e6:.2f}M, but it "
        f"prints 65M. With {low:,} to {high:,} more tokens, every count except that of transformer_big would match."
    )


if __name__ == "__main__":
    main()
