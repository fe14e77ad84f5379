"""Draws the README's plot of decoding speed from the table in docs/benchmarks.md, which has its machine and date."""

import re
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from xformc.compiler.explain.figure import font, save

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "benchmarks.md"
PICTURE = ROOT / "docs" / "images" / "speed.svg"
ROWS = {"base, beam 4, int8": "int8", "base, beam 4, float32": "float32"}
BATCHES = (1, 8, 32, 128)
TOKENS = 30
"""The tokens that each sentence of the benchmark has in its output."""

CELL = re.compile(r"([\d,]+) ms, \*\*([\d.]+)\*\*")
COLOURS = {"xformc": "#0072b2", "CTranslate2": "#d55e00"}


def read_row(page: str, name: str) -> list[tuple[float, float]]:
    """Tokens per second of xformc and of CTranslate2, for each size of batch."""
    line = next(
        line for line in page.splitlines() if line.startswith(f"| {name} |") and line.count("ms") == len(BATCHES)
    )
    rates: list[tuple[float, float]] = []
    for batch, (milliseconds, ratio) in zip(BATCHES, CELL.findall(line), strict=True):
        rate = batch * TOKENS / (int(milliseconds.replace(",", "")) / 1000)
        rates.append((rate, rate / float(ratio)))
    return rates


def draw(page: str) -> Figure:
    """A group of two bars for each size of batch, with the ratio above; one panel for each number format."""
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    panels: Any = figure.subplots(1, len(ROWS))
    for panel, (row, title) in zip(panels, ROWS.items(), strict=True):
        rates = read_row(page, row)
        for index, (system, colour) in enumerate(COLOURS.items()):
            places = [place + (index - 0.5) * 0.4 for place in range(len(BATCHES))]
            panel.bar(places, [rate[index] for rate in rates], 0.38, color=colour, label=system)
        for place, (ours, theirs) in enumerate(rates):
            panel.text(
                place - 0.2, ours, f"{ours / theirs:.1f}x", ha="center", va="bottom", fontproperties=font(8.5, "bold")
            )
        panel.set_xticks(range(len(BATCHES)), [str(batch) for batch in BATCHES])
        panel.set_title(f"{title}: tokens per second", fontproperties=font(10))
        panel.set_xlabel("sentences in a batch", fontproperties=font(9))
        panel.margins(y=0.3)
        panel.spines[["top", "right"]].set_visible(False)
        panel.legend(frameon=False, loc="upper left", ncols=2, prop=font(9))
    return figure


def main() -> None:
    save(draw(PAGE.read_text(encoding="utf-8")), PICTURE)
    print(PICTURE)


if __name__ == "__main__":
    main()
