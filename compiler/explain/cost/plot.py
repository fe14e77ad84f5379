"""Plots measured seconds and bytes against the length of the inputs, on logarithmic axes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from matplotlib.figure import Figure

from xformc.compiler.explain.cost.measured import Point
from xformc.compiler.explain.figure import font, save

_PANELS = (
    ("seconds", {"forward pass": "forward_seconds", "decoding step": "step_seconds"}),
    ("bytes", {"kept for the backward pass": "forward_bytes", "states and constants": "step_bytes"}),
)
_COLOURS = ("#0072b2", "#d55e00")


def draw_points(name: str, points: Sequence[Point], path: Path) -> None:
    """Write a plot of the points of the spec `name`. Raises: UserError for an unknown file format."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    for index, (unit, lines) in enumerate(_PANELS, 1):
        axes = cast(Any, figure).add_subplot(1, len(_PANELS), index)
        for (label, field), colour in zip(lines.items(), _COLOURS, strict=True):
            _line(axes, label, [(point.length, getattr(point, field)) for point in points], colour)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks([point.length for point in points], [f"{point.length:,}" for point in points])
        axes.set_xlabel("positions", fontproperties=font(9))
        axes.set_title(f"{name}: {unit}", fontproperties=font(10))
        axes.grid(visible=True, color="#dddddd", linewidth=0.6)
        axes.legend(prop=font(8), frameon=False)
    save(figure, path)


def _line(axes: Any, label: str, found: list[tuple[int, float | None]], colour: str) -> None:
    known = [(length, value) for length, value in found if value]
    if known:
        axes.plot(*zip(*known, strict=True), marker="o", markersize=4, color=colour, label=label)
