"""A report as text: costs by block, the paper's Table 1 for this model, and the totals."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from xformc.compiler.explain.cost.paths import Path
from xformc.compiler.explain.cost.spec_cost import Block, Report, Usage

if TYPE_CHECKING:
    from xformc.compiler.explain.cost.measured import Point

Row = Sequence[str]


def report_text(report: Report) -> str:
    """All tables and lines of a report."""
    parts = [_costs(report), _mixing(report), _lines(report)]
    at = "" if report.length is None else f", {report.length:,} positions in every input"
    head = f"{report.name}: {report.task}{at}"
    return "\n\n".join([head, *("\n".join(part) for part in parts if part)])


def points_text(points: "Sequence[Point]") -> str:
    """The measured points, one line per length."""
    head = ["positions", "forward", "kept for backward", "step", "states and constants"]
    rows = [[f"{point.length:,}", *_cells(point)] for point in points]
    return "\n".join(columns([head, *rows], left=frozenset()))


def _cells(point: "Point") -> list[str]:
    return [
        "" if value is None else short(value, unit)
        for value, unit in (
            (point.forward_seconds, "s"),
            (point.forward_bytes, "B"),
            (point.step_seconds, "s"),
            (point.step_bytes, "B"),
        )
    ]


def columns(rows: Sequence[Row], left: frozenset[int] = frozenset({0})) -> list[str]:
    """The rows as lines with aligned columns; columns in `left` are left-aligned, the others right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if index in left else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def short(number: float, unit: str = "") -> str:
    """A number with three digits and a prefix: m, µ or k, M, G, T, P."""
    space = " " if unit else ""
    if unit and 0 < number < 1:
        prefix, factor = ("m", 1e3) if number >= 1e-3 else ("µ", 1e6)
        return f"{number * factor:.3g} {prefix}{unit}"
    for prefix in ("", "k", "M", "G", "T"):
        if number < 999.5:
            return f"{number:.3g}{space}{prefix}{unit}"
        number /= 1000
    return f"{number:.3g}{space}P{unit}"


def _costs(report: Report) -> list[str]:
    decodes = report.decoding is not None
    head = ["block", "parameters", "FLOPs", "bytes"]
    if decodes:
        head += ["step FLOPs", "step bytes", "state a token", "fixed state"]
    lines = columns([head, *(_cost_row(block, decodes) for block in (*report.blocks, report.total))])
    step = f"; a decoding step: at position {report.length:,}" if decodes else ""
    return [f"FLOPs and bytes: forward, {_article(report.unit)} of a batch{step}", *lines]


def _cost_row(block: Block, decodes: bool) -> list[str]:
    cells = [block.name, short(block.parameters), *_usage(block.forward)]
    if not decodes:
        return cells
    return [*cells, *_usage(block.step), *(short(count) if count else "" for count in _state(block))]


def _state(block: Block) -> tuple[int, int]:
    return block.state_growth, block.state_fixed


def _usage(usage: Usage | None) -> list[str]:
    return ["", ""] if usage is None else [short(usage.flops), short(usage.bytes)]


def _mixing(report: Report) -> list[str]:
    head = ["block", "all of it", "mixing positions", "sequential", "longest path"]
    rows: list[Row] = []
    for block in report.blocks:
        if block.forward.flops:
            mixing = block.mixing
            cells = ["", "", ""] if mixing is None else [mixing.complexity, mixing.sequential, mixing.path]
            rows.append([block.name, block.complexity, *cells])
    whole = report.total
    sequential = whole.mixing.sequential if whole.mixing else ""
    rows.append([whole.name, whole.complexity, whole.mixing.complexity if whole.mixing else "", sequential, ""])
    return columns([head, *rows], left=frozenset(range(5)))


def _lines(report: Report) -> list[str]:
    training = report.training
    lines = [_path_line(path) for path in report.paths]
    units = f"{training.units:,} {_plural(report.unit)} a step"
    lines.append(
        f"training  {training.flops:.2g} FLOPs: {training.passes} x forward x {units} x {training.steps:,} steps"
    )
    if report.decoding is not None and report.decoding.constants:
        once, kept = report.decoding.once, report.decoding.constants
        lines.append(f"decoding  once: {short(once.flops)} FLOPs; the steps use {short(kept)} bytes of its results")
    if report.refusal is not None:
        lines.append(f"decoding  refused: {report.refusal}")
    return lines


def _plural(noun: str) -> str:
    first, space, rest = noun.partition(" ")
    return f"{first}s{space}{rest}"


def _article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def _path_line(path: Path) -> str:
    if path.hops is None:
        return f"path      {path.source}: none from end to end; a position depends on {path.seen:,} positions"
    count = f"{path.hops:,} operation{'s' * (path.hops != 1)}"
    return f"path      {path.source}: at most {count} between two of {path.positions:,} positions"
