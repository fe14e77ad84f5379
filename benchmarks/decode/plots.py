"""Plots of the results: tokens per second, milliseconds per step, cost by model size, and memory and load time."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from matplotlib.figure import Figure

Results = Sequence[Mapping[str, Any]]
Panel = tuple[str, dict[str, dict[float, float]]]
"""A title, and the points of each line."""

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")
NAMES = {"xformc": "xformc", "ctranslate2": "CTranslate2", "floor": "products alone"}
MEGABYTE = 1e6


def draw(results: Mapping[str, Results], folder: Path) -> None:
    """Draw all plots that these results have data for into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    timings, footprints = results["timings"], results["footprints"]
    rows = list(dict.fromkeys((one["model"], one["beam"], one["precision"]) for one in timings))
    _grid(folder / "decode_tokens.png", [_by_batch(timings, row) for row in rows], "batch", log=True)
    _grid(folder / "decode_steps.png", [_by_length(timings, row) for row in rows], "output tokens")
    _bars(folder / "decode_size.png", _cost(timings), "milliseconds per step, batch 1")
    for name, title in (("peak", "peak memory, MB"), ("load", "load time, s"), ("disk", "size on disk, MB")):
        _bars(folder / f"decode_{name}.png", {_label(one): _pair(one, name) for one in footprints}, title)


def _by_batch(timings: Results, row: tuple[Any, ...]) -> Panel:
    """Return tokens per second by batch, for the shortest outputs."""
    chosen = _of(timings, row)
    length = min(one["length"] for one in chosen)
    chosen = [one for one in chosen if one["length"] == length]
    lines = {name: {one["batch"]: one["batch"] * length / one[key] for one in chosen} for key, name in NAMES.items()}
    return f"{_title(row)}: tokens/s", lines


def _by_length(timings: Results, row: tuple[Any, ...]) -> Panel:
    """Return milliseconds per step by output length, for the smallest batch."""
    chosen = _of(timings, row)
    batch = min(one["batch"] for one in chosen)
    chosen = [one for one in chosen if one["batch"] == batch]
    lines = {name: {one["length"]: 1000 * one[key] / one["length"] for one in chosen} for key, name in NAMES.items()}
    return f"{_title(row)}: ms per step, batch {batch}", lines


def _cost(timings: Results) -> dict[str, tuple[float, float]]:
    chosen = [one for one in timings if one["batch"] == 1]
    length = min((one["length"] for one in chosen), default=0)
    return {
        _label(one): (1000 * one["xformc"] / length, 1000 * one["ctranslate2"] / length)
        for one in chosen
        if one["length"] == length
    }


def _grid(
    path: Path, panels: list[tuple[str, dict[str, dict[float, float]]]], label: str, *, log: bool = False
) -> None:
    """Draw a panel of lines for each row of the table."""
    if not panels:
        return
    columns = min(4, len(panels))
    lines = -(-len(panels) // columns)
    figure = Figure(figsize=(3.2 * columns, 2.6 * lines), layout="constrained")
    for index, (title, curves) in enumerate(panels):
        axes = cast(Any, figure).add_subplot(lines, columns, index + 1)
        for (name, points), colour in zip(curves.items(), COLOURS, strict=False):
            axes.plot([*points], [*points.values()], marker="o", markersize=4, color=colour, label=name)
        if log:
            axes.set_xscale("log", base=2)
        axes.set_title(title, fontsize=9)
        axes.set_xlabel(label, fontsize=8)
        axes.set_ylim(bottom=0)
        axes.grid(visible=True, color="#dddddd", linewidth=0.6)
        axes.tick_params(labelsize=8)
        if index == 0:
            axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=150)


def _bars(path: Path, values: Mapping[str, tuple[float, float]], title: str) -> None:
    """Draw two bars side by side for each label: xformc and CTranslate2."""
    if not values:
        return
    figure = Figure(figsize=(1.2 + 1.3 * len(values), 3.2), layout="constrained")
    axes = cast(Any, figure).add_subplot()
    for index, (name, colour) in enumerate(zip(("xformc", "CTranslate2"), COLOURS, strict=False)):
        places = [place + 0.36 * index for place in range(len(values))]
        axes.bar(places, [pair[index] for pair in values.values()], width=0.34, color=colour, label=name)
    axes.set_xticks([place + 0.18 for place in range(len(values))], [*values], fontsize=8)
    axes.set_title(title, fontsize=10)
    axes.grid(visible=True, axis="y", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=150)


def _pair(one: Mapping[str, Any], name: str) -> tuple[float, float]:
    unit = 1.0 if name == "load" else MEGABYTE
    return one["xformc"][name] / unit, one["ctranslate2"][name] / unit


def _of(timings: Results, row: tuple[Any, ...]) -> Results:
    return [one for one in timings if (one["model"], one["beam"], one["precision"]) == row]


def _title(row: tuple[Any, ...]) -> str:
    model, beam, precision = row
    return f"{model}, {'greedy' if beam == 1 else f'beam {beam}'}, {precision}"


def _label(one: Mapping[str, Any]) -> str:
    return _title((one["model"], one["beam"], one["precision"])).replace(", ", "\n")
