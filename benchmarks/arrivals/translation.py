"""Players that translate: a batch that refills, whole batches, and CTranslate2."""

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.arrivals.rates import Clock, Player, Request, in_batches
from benchmarks.decode.child import Child
from benchmarks.decode.speed import SETTINGS
from xformc.api import build
from xformc.exports.ctranslate2 import export_ctranslate2
from xformc.format.names import TOKENIZER
from xformc.runtime import Engine, TranslationServer, load

LIMIT: dict[str, Any] = {"max_length_factor": 0.0, "max_length_offset": 100}
"""The most tokens of a translation, the same for all."""


def players(folder: Path, arguments: argparse.Namespace) -> dict[str, Player[str]]:
    """Return the players by name, with the model of one run."""
    int8 = arguments.precision == "int8"
    build(arguments.run, folder / "engine", target="native", precision=arguments.precision)
    export_ctranslate2(arguments.run, folder / "peer", "int8" if int8 else None)
    engine = load(folder / "engine", threads=arguments.threads)
    found: dict[str, Player[str]] = {"slots": partial(slots, engine, arguments)}
    sizes = sorted({1, arguments.workers})
    for workers in sizes:
        batch = partial(ours, engine, arguments.beam, workers)
        found[f"batches, {workers} workers"] = partial(in_batches, batch, arguments.slots)
    for name, environment in SETTINGS.items():
        batches = [(f"batches, {workers} workers", arguments.slots, workers) for workers in sizes]
        for way, most, workers in [("each", 0, arguments.workers), *batches]:
            peer, threads = Child("peer", environment), max(1, arguments.threads // workers)
            size: dict[str, Any] = {"compute_type": arguments.precision, "threads": threads, "workers": workers}
            peer.ask(do="load", folder=str(folder / "peer"), **size)
            theirs = partial(peer.ask, do="arrivals", tokenizer=str(arguments.run / TOKENIZER), beam=arguments.beam)
            theirs = partial(theirs, length_penalty=engine.manifest.search.length_penalty, most=most, workers=workers)
            found[f"CT2 {name}, {way}"] = partial(_played, partial(theirs, length=LIMIT["max_length_offset"]))
    return found


def slots(engine: Engine, arguments: argparse.Namespace, requests: Sequence[Request[str]]) -> list[float]:
    """Play with a batch that refills."""
    took = [0.0] * len(requests)
    sizes = {"slots": arguments.slots, "tokens_at_once": arguments.tokens_at_once, "workers": arguments.workers}
    options: dict[str, Any] = {"beam_size": arguments.beam, **sizes, **LIMIT}
    with engine.serve(**options) as server:
        assert isinstance(server, TranslationServer)
        clock, row = Clock(requests), 0
        while waiting := clock.take(len(requests)):
            for request in waiting:
                server.submit(request.what).add_done_callback(partial(_note, took, row, clock, request))
                row += 1
    return took


def ours(engine: Engine, beam: int, workers: int, texts: Sequence[str]) -> list[float]:
    """Translate a batch, which several workers share; all texts are there when the last one has ended."""
    engine.translate(texts, beam_size=beam, workers=workers, **LIMIT)
    return [time.perf_counter()] * len(texts)


def _note(took: list[float], row: int, clock: Clock[str], request: Request[str], reply: Any) -> None:
    reply.result()
    took[row] = clock.took(request, time.perf_counter())


def _played(ask: Callable[..., dict[str, Any]], requests: Sequence[Request[str]]) -> list[float]:
    """Let CTranslate2 play in its own process."""
    return ask(lines=[one.what for one in requests], arrives=[one.arrives for one in requests])["took"]
