"""Writes figures reproducibly: SVG and PDF with text as text, or PNG."""

from pathlib import Path
from typing import Any, cast

import matplotlib
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties

from xformc.errors import UserError
from xformc.files import atomic_write

METADATA: dict[str, dict[str, None]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {"Software": None}}
"""The formats of pictures, and the metadata to leave out of each, since it differs between runs."""


def check_format(path: Path, others: tuple[str, ...] = ()) -> str:
    """The format of a file by its name, such as `svg`. Raises: UserError for an unknown format."""
    kind, known = path.suffix[1:].lower(), (*others, *METADATA)
    if kind not in known:
        raise UserError("a picture's name says its format", place=str(path), hint=f"it ends in .{', .'.join(known)}")
    return kind


def save(figure: Figure, path: Path) -> None:
    """Write the figure in the format of the file's name, atomically. Raises: UserError for an unknown format."""
    kind = check_format(path)
    settings = {"svg.fonttype": "none", "svg.hashsalt": "xformc", "pdf.fonttype": 42}
    plots, drawn = cast(Any, matplotlib), cast(Any, figure)
    with plots.rc_context(settings), atomic_write(path) as temporary:
        drawn.savefig(temporary, format=kind, dpi=300, metadata=METADATA[kind], facecolor="white")


def font(size: float, weight: str = "normal") -> FontProperties:
    """The font of pictures, which comes with matplotlib."""
    return FontProperties(family=["DejaVu Sans", "sans-serif"], weight=weight, size=size)
