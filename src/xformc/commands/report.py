"""`xformc report`: what a spec costs, counted from its graph, and measured."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from xformc.commands.spec_path import SpecName, find_spec
from xformc.errors import UserError

if TYPE_CHECKING:
    from xformc.compiler.spec import Spec

MOST = 100_000


def report(
    spec: SpecName,
    *,
    length: Annotated[int | None, Option(help="Positions in every input; 64 if left out.", min=1, max=MOST)] = None,
    depth: Annotated[int, Option(help="Levels of blocks that are told apart.", min=1)] = 2,
    measure: Annotated[
        int | None, Option(help="Measure instead, at 64, 128, ... so many positions.", min=1, max=MOST, metavar="N")
    ] = None,
    out: Annotated[Path | None, Option(help="A plot of what is measured: .svg, .pdf or .png.")] = None,
    as_json: Annotated[bool, Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Count what a spec costs: parameters, operations, bytes, decoder states, complexity and path lengths.

    \b
    xformc report transformer_base
    xformc report specs/transformer_big.yaml --length 256 --depth 3
    xformc report specs/numbers.yaml --measure 4096 --out growth.svg

    All is read off the graph that is trained and the decoder that is derived from it; docs/report.md defines
    every column. With --measure the forward pass and one decoding step run on this machine, with fresh weights.
    """
    if measure is None and out is not None:
        raise UserError("--out is a plot of what --measure finds", hint="add --measure 4096")
    if measure is not None and length is not None:
        raise UserError("--measure says the lengths itself", hint="leave out --length")
    path = find_spec(spec)
    from xformc.compiler.spec import load_spec

    if measure is not None:
        _measure(load_spec(path), measure, out, as_json)
        return
    from dataclasses import asdict

    from xformc.compiler.explain.cost.spec_cost import report as count
    from xformc.compiler.explain.cost.table import report_text

    found = count(load_spec(path), length, depth)
    print(json.dumps(asdict(found)) if as_json else report_text(found))


def _measure(spec: "Spec", longest: int, out: Path | None, as_json: bool) -> None:
    from dataclasses import asdict

    if out is not None:
        from xformc.compiler.explain.figure import check_format

        check_format(out)
    from xformc.compiler.explain.cost.measured import measure
    from xformc.compiler.explain.cost.table import points_text

    points = measure(spec, longest, lambda done: print(done, file=sys.stderr))
    if as_json:
        print(json.dumps({"name": spec.name, "points": [asdict(point) for point in points]}))
    else:
        print(points_text(points))
    if out is not None:
        from xformc.compiler.explain.cost.plot import draw_points

        draw_points(spec.name, points, out)
        print(out, file=sys.stderr)
