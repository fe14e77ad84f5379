"""Attention maps as a self-contained HTML page, or as a figure with a grid of layers and heads."""

import base64
import html
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from xformc.compiler.explain.attention.attention_engine import Looked
from xformc.compiler.explain.attention.attention_maps import AttentionMap
from xformc.compiler.explain.figure import font, save
from xformc.compiler.explain.picture.captions import pretty
from xformc.files import atomic_write

NARROW, WIDE, PIECE, LONGEST = 1.1, 2.4, 0.075, 60
"""Minimum and maximum side of a map in a grid, and size per token, in inches; maximum number of tokens with labels."""


@dataclass(frozen=True)
class MapGroup:
    """The maps of one attention in all layers, and the tokens along their sides.

    In attention from the target to another input, the rows are the tokens being written. In self-attention of the
    target, they are the tokens already read, and `writes` has the next token of each row.
    """

    title: str
    maps: tuple[AttentionMap, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    writes: tuple[str, ...] | None


def group_maps(looked: Looked) -> list[MapGroup]:
    """Group the maps by attention, in the order in which the model computes them."""
    groups: dict[tuple[str, str | None, str], list[AttentionMap]] = {}
    for one in looked.maps:
        groups.setdefault((one.group, one.rows, one.columns), []).append(one)
    return [_group(looked, name, maps) for (name, _, _), maps in groups.items()]


def _group(looked: Looked, name: str, maps: Sequence[AttentionMap]) -> MapGroup:
    first = maps[0]
    rows, columns = first.weights.shape[1:]
    words = [pretty(part) for part in name.split("/")]
    writing, aside = first.rows is not None and first.rows == looked.writer, first.columns != looked.writer
    return MapGroup(
        ": ".join([words[0], " ".join(words[1:]).lower()]) if words[1:] else words[0],
        tuple(maps),
        looked.written if writing and aside else _labels(looked, first.rows, rows),
        _labels(looked, first.columns, columns),
        looked.written if writing and not aside else None,
    )


def _labels(looked: Looked, axis: str | None, count: int) -> tuple[str, ...]:
    """The tokens along an axis of positions, or numbers if the input is not text."""
    if axis is None:
        return ("",)
    return looked.tokens.get(axis) or tuple(str(index + 1) for index in range(count))


def write_page(looked: Looked, path: Path) -> None:
    """Write the page with its style, script and data; it loads nothing else."""
    data = json.dumps(
        {
            "name": looked.name,
            "texts": looked.texts,
            "translated": looked.writer == "target",
            "groups": [_as_json(group) for group in group_maps(looked)],
        },
        ensure_ascii=False,
    )
    template = (
        resources.files("xformc.compiler.explain.attention").joinpath("attention_page.html").read_text(encoding="utf-8")
    )
    page = template.replace("{{title}}", html.escape(f"Attention of {looked.name}"))
    with atomic_write(path) as temporary:
        temporary.write_text(page.replace("{{data}}", data.replace("<", "\\u003c")), encoding="utf-8")


def _as_json(group: MapGroup) -> dict[str, Any]:
    first = group.maps[0]
    return {
        "title": group.title,
        "rows": group.rows,
        "columns": group.columns,
        "writes": group.writes,
        "row_title": first.rows or "",
        "column_title": first.columns,
        "layers": [{"name": one.layer, "heads": [_packed(head) for head in one.weights]} for one in group.maps],
    }


def _packed(head: Any) -> str:
    """Encode weights from 0 to 1 as 16-bit integers in base64."""
    return base64.b64encode(np.rint(np.clip(head, 0, 1) * 65535).astype("<u2").tobytes()).decode()


def draw_maps(looked: Looked, path: Path) -> None:
    """Write a figure (svg, pdf or png): a grid per attention, with one row per layer and one column per head."""
    groups = group_maps(looked)
    heads = max(len(one.weights) for one in looked.maps)
    side = min(WIDE, max(NARROW, *(PIECE * max(len(group.rows), len(group.columns)) for group in groups)))
    heights = [len(group.maps) * side + 0.7 for group in groups]
    figure: Any = Figure(figsize=(heads * side + 0.9, sum(heights)), layout="constrained")
    parts: Any = figure.subfigures(len(groups), 1, squeeze=False, height_ratios=heights)
    for (part,), group in zip(parts, groups, strict=True):
        part.suptitle(group.title, fontproperties=font(9, "bold"))
        plots = part.subplots(len(group.maps), heads, squeeze=False)
        for row, (line, one) in enumerate(zip(plots, group.maps, strict=True)):
            for head, plot in enumerate(line):
                _draw_map(plot, group, one, head, row)
                _label_map(plot, group, one, head, side)
    save(figure, path)


def _draw_map(plot: Any, group: MapGroup, one: AttentionMap, head: int, row: int) -> None:
    if head >= len(one.weights):
        plot.axis("off")
        return
    plot.imshow(one.weights[head], cmap="Blues", vmin=0, interpolation="nearest", aspect="auto")
    if row == 0:
        plot.set_title(f"head {head + 1}", fontproperties=font(6.5))
    if head == 0 and one.layer:
        plot.set_ylabel(f"layer {one.layer}", fontproperties=font(6.5))
    plot.tick_params(length=0, pad=1.5)
    for spine in plot.spines.values():
        spine.set(linewidth=0.4, color="#9aa0a8")


def _label_map(plot: Any, group: MapGroup, one: AttentionMap, head: int, side: float) -> None:
    """Label the maps of the first column and of the last row with their tokens."""
    sides = ((head == 0, group.rows, plot.yaxis, 0), (one is group.maps[-1], group.columns, plot.xaxis, 90))
    for shown, pieces, axis, rotation in sides:
        labels = pieces if shown and len(pieces) <= LONGEST else ()
        size = min(5.5, 60 * side / max(len(pieces), 1))
        axis.set_ticks(range(len(labels)), labels=labels, rotation=rotation, fontproperties=font(size))
