"""Players that continue prompts by a given number of tokens: a batch that refills, whole batches, and CTranslate2."""

import argparse
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.arrivals.rates import Clock, Player, Request, in_batches
from benchmarks.decode.child import Child
from benchmarks.decode.engines import fresh_weights
from benchmarks.decode.speed import SETTINGS
from benchmarks.generation.models import write_run
from xformc.compiler.build import Rounding, build_engine
from xformc.compiler.spec import load_spec
from xformc.exports.ctranslate2 import export_ctranslate2
from xformc.format.manifest import SampleOptions
from xformc.runtime.engine import Engine, load
from xformc.runtime.generation.generate import Prompt, sample
from xformc.runtime.generation.sampling import SampleArguments
from xformc.runtime.serving.batch_server import Seats
from xformc.runtime.serving.continuations import Server

GPT = "extends: gpt\nsizes: {dropout: 0.0}\n"

Ask = tuple[list[int], int]
"""A prompt, and the number of tokens to write."""


def prompts(lines: Sequence[tuple[str, str]], vocabulary: int = 50000) -> list[Ask]:
    """Return prompts of random tokens with the number of words of the first lines, which ask for that of the second."""
    random = np.random.default_rng(0)
    lengths = ((len(one.split()), len(other.split())) for one, other in lines)
    return [(random.integers(4, vocabulary, one).tolist(), other) for one, other in lengths if one and other]


def players(folder: Path, arguments: argparse.Namespace) -> dict[str, Player[Ask]]:
    """Return the players by name, with one model of the sizes of GPT-2 small and random weights."""
    (folder / "generator.yaml").write_text(GPT, encoding="utf-8")
    spec = load_spec(folder / "generator.yaml")
    weights, int8 = fresh_weights(spec, "native"), arguments.precision == "int8"
    build_engine(spec, weights, None, "native", folder / "engine", rounding=Rounding(arguments.precision))
    export_ctranslate2(write_run(spec, weights, folder / "run"), folder / "peer", "int8" if int8 else None)
    engine = load(folder / "engine", threads=arguments.threads)
    found: dict[str, Player[Ask]] = {
        "slots": partial(slots, engine, arguments),
        "batches": partial(in_batches, partial(ours, engine), arguments.slots),
    }
    for name, environment in SETTINGS.items():
        peer = Child("peer", environment)
        given: dict[str, Any] = {"compute_type": arguments.precision, "threads": arguments.threads}
        peer.ask(do="load_generator", folder=str(folder / "peer"), **given)
        found[f"CT2 {name}, batches"] = partial(in_batches, partial(theirs, peer), arguments.slots)
    return found


def slots(engine: Engine, arguments: argparse.Namespace, requests: Sequence[Request[Ask]]) -> list[float]:
    """Play with a batch that refills."""
    took = [0.0] * len(requests)
    options = SampleOptions(0.0, 0, 1.0, max(tokens for _, tokens in (one.what for one in requests)))
    seats = Seats(arguments.slots, arguments.tokens_at_once, arguments.workers)
    with Server(engine.session, engine.manifest, options, _no_text, lambda ids: "", seats) as server:
        clock, row = Clock(requests), 0
        while waiting := clock.take(len(requests)):
            for request in waiting:
                ids, tokens = request.what
                reply = server.submit_prompt(Prompt(ids, 0), tokens)
                reply.add_done_callback(partial(_note, took, row, clock, request))
                row += 1
    return took


def ours(engine: Engine, asked: Sequence[Ask]) -> list[float]:
    """Continue a batch; all texts are there when the last one has ended."""
    options = SampleOptions(0.0, 0, 1.0, max(tokens for _, tokens in asked))
    given = [Prompt(ids, 0, {"max_new_tokens": np.array(tokens)}) for ids, tokens in asked]
    found = sample(engine.session, given, options)
    assert found.lengths.tolist() == [tokens for _, tokens in asked], "a text ended before its limit"
    return [time.perf_counter()] * len(asked)


def theirs(peer: Child, asked: Sequence[Ask]) -> list[float]:
    """Continue a batch by CTranslate2; each text is there when it has its tokens."""
    began = time.perf_counter()
    given = {"prompts": [ids for ids, _ in asked], "tokens": [tokens for _, tokens in asked]}
    return [began + seconds for seconds in peer.ask(do="generate_each", **given)["ended"]]


def _no_text(text: str, seed: int, own: SampleArguments) -> Prompt:
    raise AssertionError("prompts are ids")


def _note(took: list[float], row: int, clock: Clock[Ask], request: Request[Ask], reply: Any) -> None:
    assert len(reply.result().tokens) == request.what[1], "a text ended before its limit"
    took[row] = clock.took(request, time.perf_counter())
