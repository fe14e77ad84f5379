"""`xformc report`: what a spec costs, counted from its graph, and measured."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from xformc.commands.options import OUT, Json, Settings, SpecName
from xformc.errors import UserError, refuse_together
from xformc.specs import find_spec

if TYPE_CHECKING:
    from xformc.compiler.spec import Spec

MOST = 100_000
MOST_PRICE = 1_000_000


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
    train: Annotated[bool, Option("--train", help="Plan the training on GPUs instead.")] = False,
    gpus: Annotated[int | None, Option(help="Number of GPUs.  [default: 1]", min=1, max=100_000, metavar="N")] = None,
    gpu: Annotated[str | None, Option(help="The card: a100, h100, h200, ...  [default: h100]", metavar="CARD")] = None,
    batch_tokens: Annotated[
        int | None, Option(help="Positions of a batch, in place of the recipe's.", min=1, max=10**8, metavar="N")
    ] = None,
    shard: Annotated[bool, Option("--shard", help="With --train: each GPU keeps a part of each parameter.")] = False,
    mfu: Annotated[
        float | None, Option(help="The share of the card's peak that is reached.  [default: 0.4]", metavar="SHARE")
    ] = None,
    price: Annotated[float | None, Option(help="Price of a GPU for an hour.", min=0.0, metavar="P")] = None,
    as_json: Json = False,
) -> None:
    """Report the cost of a spec: parameters, operations, memory, complexity and path lengths.

    \b
    xformc report transformer_base
    xformc report specs/transformer_big.yaml --length 256 --depth 3
    xformc report specs/numbers.yaml --measure 4096 -o growth.svg
    xformc report transformer_big --train --gpus 8 --gpu h100 --price 2.5

    The figures are counted from the training graph and the decoder derived from it; docs/report.md defines every
    column. --measure runs the forward pass and one decoding step on this machine, with random weights. --train plans
    the recipe on GPUs: memory, communication, time and cost, for batches whose inputs have --length positions.
    """
    if measure is None and output is not None:
        raise UserError("--output is a plot of measurements", hint="add --measure 4096")
    refuse_together({"--length": length, "--measure": measure}, hint="leave out --length")
    path = find_spec(spec)
    given = {"--gpus": gpus, "--gpu": gpu, "--batch-tokens": batch_tokens, "--mfu": mfu, "--price": price}
    idle = [name for name, value in {**given, "--shard": shard or None}.items() if value is not None]
    if idle and not train:
        raise UserError(f"{', '.join(idle)}: no effect without --train", hint="add --train")
    refuse_together({"--train": train, "--measure": measure})
    from xformc.compiler.spec import load_spec

    if train:
        sizes = [] if batch_tokens is None else [f"train.batch_tokens={batch_tokens}"]
        loaded = load_spec(path, [*(settings or ()), *sizes])
        _plan(
            loaded, length, gpus or 1, gpu or "h100", 0.4 if mfu is None else mfu, price, shard=shard, as_json=as_json
        )
        return

    if measure is not None:
        _measure(load_spec(path, settings or ()), measure, output, as_json)
        return
    from dataclasses import asdict

    from xformc.compiler.explain.cost.spec_cost import report as count
    from xformc.compiler.explain.cost.table import report_text

    found = count(load_spec(path, settings or ()), length, depth)
    print(json.dumps(asdict(found)) if as_json else report_text(found))


def _plan(
    spec: "Spec",
    length: int | None,
    gpus: int,
    gpu: str,
    mfu: float,
    price: float | None,
    *,
    shard: bool,
    as_json: bool,
) -> None:
    from dataclasses import asdict

    from xformc.compiler.explain.cost.spec_cost import report as count
    from xformc.trainer.plan.cards import card_of
    from xformc.trainer.plan.plan import Machine, Work, plan
    from xformc.trainer.plan.text import plan_text

    if not 0 < mfu <= 1:
        raise UserError(f"--mfu must be above 0 and at most 1, not {mfu:g}")
    if price is not None and not price <= MOST_PRICE:
        raise UserError(f"--price must be at most {MOST_PRICE:,}, not {price:g}")
    card, found = card_of(gpu), count(spec, length, 1)
    training = found.training
    work = Work(found.total.forward.products, training.units, training.examples, found.length or 1)
    planned = plan(spec, Machine(gpus, gpu, card, mfu, shard, price), work)
    print(json.dumps({**asdict(planned), "fits": planned.fits}) if as_json else plan_text(planned))


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
