"""Draws the picture of an architecture from its spec with matplotlib."""

from functools import cache
from pathlib import Path
from typing import Any, cast

from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyBboxPatch, PathPatch, Polygon
from matplotlib.path import Path as Outline
from matplotlib.textpath import TextPath

from xformc.compiler.explain.figure import font, save
from xformc.compiler.explain.picture.marks import Line, Part, Rectangle, Style, Text
from xformc.compiler.explain.picture.outline import outline
from xformc.compiler.explain.picture.page import lay_page
from xformc.compiler.spec import Spec

FILLS = {
    "attention": "#FFE3BF",
    "feed_forward": "#C4E6F5",
    "norm": "#F3F4C3",
    "embedding": "#FBDEE2",
    "positions": "#FDF0F2",
    "linear": "#DCDFF1",
    "softmax": "#CFE8D3",
    "function": "#FFFFFF",
    "recurrent": "#CDEBDD",
    "convolution": "#E6D9F2",
}
"""The fill colour of each kind of box; the first seven are from the paper's figure 1."""
SHAPES = {
    "stage": ("#FFFFFF", "#B9BDC4", 0.6, 7.0),
    "repeat": ("#F2F3F5", "#6F757E", 0.8, 8.0),
    "group": ("#F8F9FA", "#A3A9B2", 0.6, 5.0),
    "box": ("#FFFFFF", "#3C4047", 0.8, 3.5),
}
"""Fill colour, line colour, line width and corner radius of each shape."""
STYLES: dict[Style, tuple[float, str, str]] = {
    "label": (7.4, "#111418", "normal"),
    "note": (5.8, "#5B616B", "normal"),
    "type": (5.4, "#5B616B", "normal"),
    "title": (6.4, "#6F757E", "bold"),
    "times": (9.5, "#2B2F36", "normal"),
    "name": (7.8, "#111418", "bold"),
}
"""Size in points, colour and weight of each text style."""
TIES = ("#D4483B", "#2F6FB2", "#2E8B57", "#8E5BB5", "#C98A1B")
INK, HEAD = "#3C4047", 3.4


def draw_spec(spec: Spec, path: Path, depth: int) -> None:
    """Write the picture of a spec to `path`, in the format of its name (svg, pdf or png), `depth` levels deep."""
    sketch = outline(spec, depth)
    save(render(lay_page(sketch, measure), tuple(sketch.tied)), path)


@cache
def measure(text: str, style: Style) -> float:
    """The width of a text in points."""
    size, _, weight = STYLES[style]
    path: Any = TextPath((0, 0), text, prop=font(size, weight))
    return float(path.get_extents().xmax)


def render(page: Part, tied: tuple[str, ...]) -> Figure:
    """The figure of a page; one unit is a point."""
    figure = Figure(figsize=(page.right / 72, page.height / 72))
    axes: Any = cast(Any, figure).add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, page.right), ylim=(0, page.height))
    axes.axis("off")
    order = {"stage": 0, "repeat": 1, "group": 2}
    for shape in page.rectangles:
        if shape.shape in order:
            _draw_rectangle(axes, shape, order[shape.shape], tied)
    for line in page.lines:
        _draw_line(axes, line)
    for shape in page.rectangles:
        if shape.shape not in order:
            _draw_rectangle(axes, shape, 6, tied)
    for text in page.texts:
        _write(axes, text)
    return figure


def _draw_rectangle(axes: Any, shape: Rectangle, order: float, tied: tuple[str, ...]) -> None:
    center = (shape.x + shape.width / 2, shape.y + shape.height / 2)
    if shape.shape == "plus":
        _draw_plus(axes, center, shape.width / 2, order)
        return
    if shape.shape == "tie":
        axes.add_patch(Circle(center, 2.6, facecolor=TIES[tied.index(shape.tied[0]) % len(TIES)], lw=0, zorder=8))
        return
    fill, edge, width, radius = SHAPES[shape.shape]
    radius = min(radius, shape.height / 2)
    style = f"round,pad=0,rounding_size={radius}"
    fill = FILLS.get(shape.kind, fill)
    axes.add_patch(
        FancyBboxPatch(
            (shape.x, shape.y), shape.width, shape.height, style, facecolor=fill, edgecolor=edge, lw=width, zorder=order
        )
    )
    for index, name in enumerate(shape.tied):
        x = shape.x + shape.width - 5.5 - 6 * index
        colour = TIES[tied.index(name) % len(TIES)]
        axes.add_patch(Circle((x, shape.y + shape.height - 5.5), 2.4, facecolor=colour, lw=0, zorder=8))


def _draw_plus(axes: Any, center: tuple[float, float], radius: float, order: float) -> None:
    x, y = center
    axes.add_patch(Circle(center, radius - 0.4, facecolor="white", edgecolor=INK, lw=0.8, zorder=order))
    for points in (((x - 2.8, y), (x + 2.8, y)), ((x, y - 2.8), (x, y + 2.8))):
        axes.add_patch(PathPatch(Outline(points), edgecolor=INK, lw=0.8, zorder=order + 1))


def _draw_line(axes: Any, line: Line) -> None:
    points = _without_repeats(line.points)
    if len(points) < 2:
        return
    (x, y), (a, b) = points[-2:]
    length = ((a - x) ** 2 + (b - y) ** 2) ** 0.5
    dx, dy = (a - x) / length, (b - y) / length
    if line.head:
        points[-1] = (a - dx * HEAD * 0.8, b - dy * HEAD * 0.8)
        corners = [(a, b)] + [
            (a - dx * HEAD - side * dy * HEAD * 0.45, b - dy * HEAD + side * dx * HEAD * 0.45) for side in (1, -1)
        ]
        axes.add_patch(Polygon(corners, closed=True, facecolor=INK, lw=0, zorder=5))
    axes.add_patch(PathPatch(_rounded(points), facecolor="none", edgecolor=INK, lw=0.8, capstyle="butt", zorder=4))


def _without_repeats(points: tuple[tuple[float, float], ...]) -> list[tuple[float, float]]:
    found = [points[0]]
    for point in points[1:]:
        if abs(point[0] - found[-1][0]) + abs(point[1] - found[-1][1]) > 0.05:
            found.append(point)
    return found


def _rounded(points: list[tuple[float, float]], radius: float = 3.5) -> Outline:
    """The path through the points with its corners rounded."""
    vertices, codes = [points[0]], [Outline.MOVETO]
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        for neighbour, code in ((before, Outline.LINETO), (after, Outline.CURVE3)):
            length = ((neighbour[0] - corner[0]) ** 2 + (neighbour[1] - corner[1]) ** 2) ** 0.5
            share = min(radius, length / 2) / length
            point = tuple(c + (n - c) * share for c, n in zip(corner, neighbour, strict=True))
            if code == Outline.CURVE3:
                vertices.append(corner)
                codes.append(Outline.CURVE3)
            vertices.append((point[0], point[1]))
            codes.append(code)
    vertices.append(points[-1])
    codes.append(Outline.LINETO)
    return Outline(vertices, codes)


def _write(axes: Any, text: Text) -> None:
    size, colour, weight = STYLES[text.style]
    axes.text(
        text.x, text.y, text.text, ha=text.align, va="center_baseline", color=colour, zorder=9,
        fontproperties=font(size, weight), parse_math=False,
    )  # fmt: skip
