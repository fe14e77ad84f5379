"""`xformc bench`: how fast an engine is on this machine."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.table import Table
from typer import Option

from xformc.commands.decoding import BeamSize
from xformc.commands.options import Device, EngineFolder, Json, Threads
from xformc.errors import UserError
from xformc.runtime.checks.measure import (
    ROUNDS,
    Report,
    make_plans,
    measure_latency,
    measure_turns,
    peak_memory,
    throughputs,
    timed_load,
)
from xformc.runtime.checks.workload import Workload, make_workload
from xformc.runtime.engine import Engine
from xformc.runtime.session import thread_count
from xformc.terminal import tracked


def bench(
    engine: EngineFolder,
    *,
    text: Annotated[
        Path | None,
        Option("--input", "-i", help="Lines of text, which may be .gz.  [default: random tokens]", metavar="FILE"),
    ] = None,
    beam_size: BeamSize = None,
    workers: Annotated[
        list[int] | None,
        Option(
            "--workers",
            "-j",
            help="Batches run at the same time. May be repeated.  [default: 1, and one per core]",
            metavar="N",
        ),
    ] = None,
    max_batch_tokens: Annotated[
        list[int] | None,
        Option(help="Capacity of a batch in tokens. May be repeated.  [default: four sizes]", metavar="N"),
    ] = None,
    threads: Threads = None,
    device: Device = None,
    seconds: Annotated[
        float, Option(help="Duration of each measurement, about.", min=0.01, max=3600, metavar="S")
    ] = 5.0,
    as_json: Json = False,
) -> None:
    """Measure the latency, throughput and memory of an engine on this machine.

    \b
    xformc bench demo/engine
    xformc bench demo/engine -i test.en -b 1
    xformc bench demo/engine -j 2 --max-batch-tokens 8192 --seconds 30 --json

    Latency is the time from a sentence to its result, one sentence at a time, on all cores. Throughput is measured in
    batches, for each number of workers and each batch capacity, which take turns in three rounds; the table has the
    round in the middle, the slowest and the fastest one. It shows which settings suit your text and your memory.
    Measure with your own text: random sentences have 5 to 45 tokens, and their outputs may be longer than those of
    real ones.
    """
    before = peak_memory()
    loaded, loading = timed_load(engine, threads, device)
    if beam_size is not None and loaded.manifest.decoding != "search":
        message = f"--beam-size: of a {loaded.manifest.task} engine no beam is measured"
        raise UserError(message, hint="leave it out")
    work = make_workload(loaded, text, {"beam_size": beam_size})
    plans = make_plans(loaded.manifest, workers, max_batch_tokens, threads)
    latency = measure_latency(work, seconds)
    size = sum(path.stat().st_size for path in engine.iterdir())
    turns = measure_turns(work, plans, 1 / latency.p50, seconds)
    found = throughputs(list(tracked(turns, "measuring", ROUNDS * len(plans))))
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
    for title in (
        "workers",
        "max_batch_tokens",
        f"{work.unit}s/s",
        "lowest",
        "highest",
        f"{work.tokens}/s",
        "peak MB so far",
        f"{work.unit}s",
    ):
        table.add_column(title, justify="right")
    for one in report.throughput:
        speeds = (one.examples_per_second, one.lowest, one.highest, one.tokens_per_second)
        rates = [f"{speed:,.1f}" for speed in speeds]
        table.add_row(str(one.workers), f"{one.max_batch_tokens:,}", *rates, f"{one.peak / 1e6:,.0f}", f"{one.count:,}")
    print()
    Console(width=100, markup=False).print(table)
