"""A report as text: a table of costs by block, the paper's Table 1 for this model, and what both add up to."""

from collections.abc import Sequence

from xformc.compiler.report.cost import BACKWARD, Block, Report, Usage

Row = Sequence[str]


def report_text(report: Report) -> str:
    """All tables and lines of a report."""
    parts = [_costs(report), _mixing(report), _lines(report)]
    head = f"{report.name}: {report.task}, {report.length:,} positions in every input"
    return "\n\n".join([head, *("\n".join(part) for part in parts if part)])


def columns(rows: Sequence[Row], left: frozenset[int] = frozenset({0})) -> list[str]:
    """The rows as lines with aligned columns; those in `left` begin together, all others end together."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if index in left else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def short(number: float, unit: str = "") -> str:
    """A number with three digits and k, M, G, T, P or E."""
    for prefix in ("", "k", "M", "G", "T", "P"):
        if abs(number) < 999.5:
            digits = f"{number:.3g}" if prefix or number != int(number) else f"{number:.0f}"
            return f"{digits} {prefix}{unit}" if unit else f"{digits}{prefix}"
        number /= 1000
    return f"{number:.3g}E{unit}"


def _costs(report: Report) -> list[str]:
    decodes = report.decoding is not None
    head = [["block", "parameters", "FLOPs", "bytes"], ["", "", f"forward, a {report.unit}", ""]]
    if decodes:
        head[0] += ["FLOPs", "bytes", "grows", "fixed"]
        head[1] += [f"step {report.length}", "", "state bytes", ""]
    body = [_cost_row(block, decodes) for block in (*report.blocks, report.total)]
    lines = columns([head[0], *body])
    return [_over(lines[0], head), *lines]


def _over(line: str, head: list[list[str]]) -> str:
    """What stands above several columns, beginning where the first of them does."""
    result, start = "", 0
    for name, over in zip(*head, strict=True):
        start = line.index(name, start) + len(name)
        if over:
            result = result.ljust(start - len(name)) + over
    return result


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
    training, passes = report.training, 1 + BACKWARD
    lines = [_path_line(path.source, path.hops, path.seen, report.length) for path in report.paths]
    lines.append(
        f"training  {training.flops:.2g} FLOPs: {passes} x forward x {training.units:,} units of a step, each a "
        f"{report.unit}, x {training.steps:,} steps"
    )
    if report.decoding is not None:
        once, kept = report.decoding.once, report.decoding.constants
        lines.append(f"decoding  once: {short(once.flops)} FLOPs; the steps use {short(kept)} bytes of its results")
    if report.refusal is not None:
        lines.append(f"decoding  refused: {report.refusal}")
    return lines


def _path_line(source: str, hops: int | None, seen: int, length: int) -> str:
    if hops is None:
        return f"path      {source}: none from end to end; a position sees {seen:,} of {length:,}"
    return f"path      {source}: {hops:,} operation{'s' * (hops != 1)} between any two of {length:,} positions"
