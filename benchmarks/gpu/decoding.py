"""Decoding speed in tokens per second, and the fraction of a step's time that its memory traffic needs."""

import statistics
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.decode.cases import MODELS, SOURCE_TOKENS, VOCABULARY
from benchmarks.gpu.players import CTranslate2, Engine, HuggingFace, Player, Setting
from benchmarks.gpu.report import Missing, OutOfTime, Report, time_limit
from benchmarks.gpu.traffic import bytes_of_step
from xformc.compiler.pipeline import run_passes
from xformc.format.tokens import END

LOADING, COMPILING = 60.0, 90.0
TINY = "extends: transformer_base\nsizes: {vocabulary: %d, d_model: 16, d_ff: 24, heads: 2, layers: 2}\n"
Make = Callable[[Setting, Path], Player]

CUDA: Mapping[str, Make] = {"xformc cuda": lambda setting, folder: Engine(setting, "cuda", folder)}
TENSORRT: Mapping[str, Make] = {"xformc tensorrt": lambda setting, folder: Engine(setting, "tensorrt", folder)}
PEERS: Mapping[str, Make] = {
    "Hugging Face": lambda setting, _: HuggingFace(setting, compiled=False),
    "CTranslate2": CTranslate2,
}
COMPILED: Mapping[str, Make] = {"Hugging Face, compiled": lambda setting, _: HuggingFace(setting, compiled=True)}


@dataclass(frozen=True)
class Plan:
    """The cases: each model with each beam and batch size, with outputs of `length` tokens.

    compiled: the (model, beam, batch) of compiled models, which are few because compiling is slow.
    seconds, rounds: limits of each case.
    """

    models: Mapping[str, str]
    batches: tuple[int, ...]
    beams: tuple[int, ...]
    length: int
    compiled: tuple[tuple[str, int, int], ...]
    seconds: float
    rounds: int

    def of(self, models: Sequence[str] | None) -> "Plan":
        """Return the plan of these models alone; None stands for all."""
        if models is None:
            return self
        chosen = {name: text for name, text in self.models.items() if name in models}
        return replace(self, models=chosen, compiled=tuple(case for case in self.compiled if case[0] in models))


FULL = Plan(
    models={name: MODELS[name] % VOCABULARY for name in ("base", "big")},
    batches=(1, 8, 32, 128, 512),
    beams=(1, 4),
    length=64,
    compiled=(("base", 1, 1), ("base", 1, 32), ("base", 4, 32), ("big", 1, 1)),
    seconds=1.0,
    rounds=3,
)
QUICK = Plan(
    models={"tiny": TINY % 60},
    batches=(1, 3),
    beams=(1, 2),
    length=6,
    compiled=(("tiny", 1, 1),),
    seconds=0.1,
    rounds=2,
)


@dataclass(frozen=True)
class Case:
    """One timed case: a model, a system, a beam and a batch size."""

    model: str
    setting: Setting
    player: str
    beam: int
    batch: int

    def as_row(self) -> dict[str, Any]:
        """Return the fields that identify its row."""
        what = {"model": self.model, "numbers": self.setting.numbers, "player": self.player}
        return {**what, "beam": self.beam, "batch": self.batch}


def measure(
    report: Report, plan: Plan, setting: Callable[[str], Setting], players: Mapping[str, Make], bandwidth: float | None
) -> None:
    """Add a row for each system and case, model by model.

    `bandwidth` is the device's copy bandwidth in bytes per second, or None if it could not be measured.
    """
    for model, text in plan.models.items():
        chosen = setting(text)
        for name, make in players.items():
            with player(make, chosen, report.left) as ready:
                for beam in plan.beams:
                    for batch in plan.batches:
                        _row(report, plan, Case(model, chosen, name, beam, batch), ready, bandwidth)


def measure_compiled(report: Report, plan: Plan, setting: Callable[[str], Setting]) -> None:
    """Add the rows of compiled models; compiling takes about a minute each."""
    for model, beam, batch in plan.compiled:
        chosen = setting(plan.models[model])
        for name, make in COMPILED.items():
            with player(make, chosen, report.left) as ready:
                _row(report, plan, Case(model, chosen, name, beam, batch), ready, None, most=COMPILING)
            torch.compiler.reset()


@contextmanager
def player(make: Make, setting: Setting, most: float) -> Generator[tuple[Player | None, str]]:
    """The player, or None and the reason why there is none; its files and memory are given back at the end.

    It has `most` seconds to load, but at most a minute.
    """
    with tempfile.TemporaryDirectory() as folder:
        try:
            with time_limit(min(most, LOADING)):
                one, reason = make(setting, Path(folder) / "model"), ""
        except (Exception, OutOfTime) as error:
            one, reason = None, f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        yield one, reason
        del one
    if setting.device.type == "cuda":
        torch.cuda.empty_cache()


def _row(
    report: Report,
    plan: Plan,
    case: Case,
    ready: tuple[Player | None, str],
    bandwidth: float | None,
    *,
    most: float = 30.0,
) -> None:
    one, reason = ready

    def measure() -> dict[str, Any]:
        if one is None:
            raise Missing(reason)
        seconds = time_of(one, case, plan)
        found: dict[str, Any] = {"seconds": seconds, "tokens_per_second": case.batch * plan.length / seconds}
        if bandwidth is not None and case.player in {*CUDA, *TENSORRT}:
            found |= _step(case, plan, seconds, bandwidth)
        return found

    report.row(case.as_row(), measure, most)


def _step(case: Case, plan: Plan, seconds: float, bandwidth: float) -> dict[str, float]:
    """Return a step's time, the encoder's share included, and the fraction of it that its memory traffic needs."""
    step = seconds / plan.length
    decoder, item = run_passes(case.setting.program("portable")).decoder, case.setting.dtype.itemsize
    moved = bytes_of_step(decoder, item, batch=case.batch, beam=case.beam, source=SOURCE_TOKENS, length=plan.length)
    return {"step_seconds": step, "step_bytes": moved, "of_bandwidth": moved / bandwidth / step}


def time_of(one: Player, case: Case, plan: Plan) -> float:
    """Return the seconds of a batch: the median after one untimed run."""
    source = sentences(case.batch)
    one.decode(source, case.beam, plan.length)
    times: list[float] = []
    end = time.monotonic() + plan.seconds
    while not times or (len(times) < plan.rounds and time.monotonic() < end):
        began = time.perf_counter()
        one.decode(source, case.beam, plan.length)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def sentences(batch: int, vocabulary: int = 60) -> np.ndarray:
    """Return random sources [batch, SOURCE_TOKENS] that end with the end token, of tokens that all models have."""
    source = np.random.default_rng(batch).integers(4, vocabulary, (batch, SOURCE_TOKENS))
    source[:, -1] = END
    return source
