"""`xformc bench`: how fast an engine is on this machine."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.progress import track
from rich.table import Table
from typer import Argument, Option

from xformc.commands.text_lines import DEVICE_HELP
from xformc.commands.translate import ENGINE_HELP
from xformc.errors import UserError
from xformc.runtime.devices.device import DeviceName
from xformc.runtime.engine import Engine
from xformc.runtime.measure import Report, make_plans, measure_latency, measure_throughput, peak_memory, timed_load
from xformc.runtime.session import thread_count
from xformc.runtime.workload import Workload, make_workload


def bench(
    engine: Annotated[Path, Argument(help=ENGINE_HELP, metavar="ENGINE")],
    *,
    text: Annotated[
        Path | None, Option("--input", help="Text to use, a line each; random tokens if left out.", metavar="FILE")
    ] = None,
    beam_size: Annotated[int | None, Option(help="Partial translations kept; 1 is greedy.")] = None,
    workers: Annotated[
        list[int] | None, Option(help="Batches run at once; may be repeated.  [default: 1, and one for each core]")
    ] = None,
    max_batch_tokens: Annotated[
        list[int] | None, Option(help="Tokens that a batch may hold; may be repeated.  [default: four sizes]")
    ] = None,
    threads: Annotated[int | None, Option(help="Cores to use; all if left out.")] = None,
    device: Annotated[DeviceName | None, Option(help=DEVICE_HELP)] = None,
    seconds: Annotated[float, Option(help="About how long each measurement takes.", min=0.01, max=3600)] = 5.0,
    as_json: Annotated[bool, Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Measure how fast an engine is on this machine, and what it needs.

    \b
    xformc bench demo/engine
    xformc bench demo/engine --input test.en --beam-size 1
    xformc bench demo/engine --workers 2 --max-batch-tokens 8192 --seconds 30 --json

    Latency is from a sentence to its result, one sentence at a time on all cores. Throughput is that of many, in
    batches, with each number of workers and each size of batches. What `translate` is to be given for your text and
    your memory can be read off the table. Random sentences have 5 to 45 tokens, and their outputs may be
    longer than those of real ones: give your own text.
    """
    before = peak_memory()
    loaded, loading = timed_load(engine, threads, device)
    task = loaded.manifest.task
    if beam_size is not None and task != "translation":
        raise UserError(f"--beam-size: an engine of {task} has no beam")
    work = make_workload(loaded, text, {"beam_size": beam_size})
    plans = make_plans(loaded.manifest, workers, max_batch_tokens, threads)
    latency = measure_latency(work, seconds)
    size = sum(path.stat().st_size for path in engine.iterdir())
    measured = measure_throughput(work, plans, 1 / latency.p50, seconds)
    console = Console(stderr=True)
    hidden = not console.is_terminal
    found = list(track(measured, "measuring", total=len(plans), console=console, transient=True, disable=hidden))
    report = Report(size, loading, latency, found, (before, peak_memory()))
    if as_json:
        print(json.dumps({"engine": loaded.manifest.name, **asdict(report)}))
    else:
        _print(loaded, work, report, threads)


def _print(engine: Engine, work: Workload, report: Report, threads: int | None) -> None:
    manifest, loading, latency = engine.manifest, report.loading, report.latency
    before, peak = report.memory
    first = loading.check + loading.open + latency.first
    quantiles = ", ".join(f"{name} {1000 * getattr(latency, name):.1f} ms" for name in ("p50", "p90", "p99"))
    print(f"{manifest.name}: {manifest.task}, {manifest.target}, {manifest.precision}")
    print(f"size     {report.size / 1e6:,.1f} MB on disk")
    print(
        f"load     {loading.open:.3f} s, after {loading.check:.3f} s to check the files; first result at {first:.3f} s"
    )
    print(f"memory   {peak / 1e6:,.0f} MB at most, {before / 1e6:,.0f} MB before the engine was loaded")
    print(f"latency  {quantiles}, on {thread_count(threads)} threads")
    print(f"         {latency.count:,} {work.unit}s one at a time, {latency.tokens:.1f} {work.tokens} each")
    table = Table(box=None, pad_edge=False)
    for title in ("workers", "max_batch_tokens", f"{work.unit}s/s", f"{work.tokens}/s", "peak MB", f"{work.unit}s"):
        table.add_column(title, justify="right")
    for one in report.throughput:
        rates = (f"{one.examples_per_second:,.1f}", f"{one.tokens_per_second:,.1f}")
        table.add_row(str(one.workers), f"{one.max_batch_tokens:,}", *rates, f"{one.peak / 1e6:,.0f}", f"{one.count:,}")
    print()
    Console(width=100, markup=False).print(table)
