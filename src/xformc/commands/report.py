"""`xformc report`: what a spec costs, counted from its graph, and measured."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from xformc.commands.options import OUT, Json, Settings, SpecName
from xformc.errors import UserError
from xformc.specs import find_spec

if TYPE_CHECKING:
    from xformc.compiler.spec import Spec

MOST = 100_000


def report(
    spec: SpecName,
    *,
    settings: Settings = None,
    length: Annotated[
        int | None, Option(help="Length of every input in positions.  [default: 64]", min=1, max=MOST, metavar="N")
    ] = None,
    depth: Annotated[int, Option(help="Nesting depth of the blocks to list.", min=1, metavar="N")] = 2,
    measure: Annotated[
        int | None, Option(help="Measure instead, at lengths 64, 128, ... up to N.", min=1, max=MOST, metavar="N")
    ] = None,
    output: Annotated[
        Path | None, Option(*OUT, help="A plot of the measurements: .svg, .pdf or .png.", metavar="FILE")
    ] = None,
    as_json: Json = False,
) -> None:
    """Report the cost of a spec: parameters, operations, memory, complexity and path lengths.

    \b
    xformc report transformer_base
    xformc report specs/transformer_big.yaml --length 256 --depth 3
    xformc report specs/numbers.yaml --measure 4096 -o growth.svg

    The figures are counted from the training graph and the decoder derived from it; docs/report.md defines every
    column. --measure runs the forward pass and one decoding step on this machine, with random weights.
    """
    if measure is None and output is not None:
        raise UserError("--output is a plot of measurements", hint="add --measure 4096")
    if measure is not None and length is not None:
        raise UserError("--length and --measure exclude each other", hint="leave out --length")
    path = find_spec(spec)
    from xformc.compiler.spec import load_spec

    if measure is not None:
        _measure(load_spec(path, settings or ()), measure, output, as_json)
        return
    from dataclasses import asdict

    from xformc.compiler.explain.cost.spec_cost import report as count
    from xformc.compiler.explain.cost.table import report_text

    found = count(load_spec(path, settings or ()), length, depth)
    print(json.dumps(asdict(found)) if as_json else report_text(found))


def _measure(spec: "Spec", longest: int, output: Path | None, as_json: bool) -> None:
    from dataclasses import asdict

    if output is not None:
        from xformc.compiler.explain.figure import check_format

        check_format(output)
    from xformc.compiler.explain.cost.measured import measure
    from xformc.compiler.explain.cost.table import points_text

    points = measure(spec, longest, lambda done: print(done, file=sys.stderr))
    if as_json:
        print(json.dumps({"name": spec.name, "points": [asdict(point) for point in points]}))
    else:
        print(points_text(points))
    if output is not None:
        from xformc.compiler.explain.cost.plot import draw_points

        draw_points(spec.name, points, output)
        print(output, file=sys.stderr)
