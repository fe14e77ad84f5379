"""Times an engine, CTranslate2 in two settings, and the floor, in turns."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.decode.cases import SOURCE_TOKENS, VOCABULARY, Case
from benchmarks.decode.child import Child
from benchmarks.decode.engines import limited, peer_precision
from benchmarks.decode.floor import FLOOR, Floor
from xformc.format.interfaces import SEARCH
from xformc.format.manifest import SearchOptions
from xformc.format.targets import Target
from xformc.format.tokens import END
from xformc.runtime.searching.search import search
from xformc.runtime.whole import whole_session


def cpuinfo() -> list[str]:
    """The lines that Linux says of the processors; none on other systems."""
    path = Path("/proc/cpuinfo")
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


SETTINGS: dict[str, dict[str, str]] = {"default": {}}
"""The settings of CTranslate2: environment variables that it reads when it is loaded."""

if any("avx512f" in line for line in cpuinfo()):
    SETTINGS["AVX512"] = {"CT2_FORCE_CPU_ISA": "AVX512"}

SUB_BATCH = 32
"""The batch size that CTranslate2 may split a larger batch into, if that is faster."""

WARM_UP, REMINDER = 6, 2
"""The output tokens of untimed runs: before the rounds of a case, and before each turn."""

SETTLE = 0.25
"""Seconds to wait before each turn: idle threads of OpenMP and ONNX Runtime spin for a while before they sleep."""

Hypotheses = list[list[str]]
"""The best hypothesis of each sentence, as names of tokens."""

Play = Callable[[int], tuple[float, Hypotheses]]
"""Decodes outputs of the given number of tokens; returns the seconds and the hypotheses."""


@dataclass(frozen=True)
class Pace:
    """The limits of a case: at most `rounds` rounds, and no new round after `seconds`."""

    rounds: int
    seconds: float


@dataclass(frozen=True)
class Timing:
    """Seconds per batch, medians over the rounds, and the number of sentences with equal best hypotheses.

    `reference` counts those of the engine that equal those of a float32 engine with the same weights.
    """

    model: str
    precision: str
    beam: int
    batch: int
    length: int
    target: float
    xformc: float
    ctranslate2: float
    setting: str
    floor: float
    rounds: int
    equal: int
    reference: int
    peer_reference: int

    @property
    def ratio(self) -> float:
        """The engine's speed relative to CTranslate2's."""
        return self.ctranslate2 / self.xformc

    def as_json(self) -> dict[str, Any]:
        """Return all fields, and the ratios."""
        return {**asdict(self), "ratio": self.ratio, "of_the_floor": self.floor / self.xformc}


class Contest:
    """One model in one precision, loaded by all systems that are compared."""

    def __init__(
        self, engine: Path, peer: Path, options: SearchOptions, precision: str, target: Target, threads: int
    ) -> None:
        self._options = options
        self._session = whole_session(engine, SEARCH, threads=threads, target=target)
        self._floor = Floor(engine, target, threads)
        (engine / FLOOR).unlink()  # it is open, and must not count as a part of the engine's size
        self._peers = {name: Child("peer", variables) for name, variables in SETTINGS.items()}
        for child in self._peers.values():
            child.ask(do="load", folder=str(peer), compute_type=peer_precision(precision), threads=threads)

    def close(self) -> None:
        """End the processes."""
        for child in self._peers.values():
            child.close()

    def best(self, case: Case) -> tuple[Hypotheses, Hypotheses]:
        """Return the best hypotheses of the engine and of CTranslate2 for the case's sentences."""
        peer = next(iter(self._peers))
        return self._play_engine(case, case.length)[1], self._play_peer(case, peer, case.length, 0)[1]

    def measure(self, case: Case, pace: Pace, references: tuple[Hypotheses, Hypotheses] | None) -> Timing:
        """Time the case. `references` are the hypotheses of the float32 models, None if this is float32."""
        cuts = {name: self._choose_cut(case, name) for name in self._peers}
        players: dict[str, Play] = {
            "xformc": lambda length: self._play_engine(case, length),
            "floor": lambda length: self._play_floor(case, length),
            **{name: partial(self._play_peer, case, name, cut=cut) for name, cut in cuts.items()},
        }
        for play in players.values():
            play(WARM_UP)
        times, found = take_turns(players, case.length, pace)
        medians = {name: statistics.median(values) for name, values in times.items()}
        setting = min(cuts, key=medians.__getitem__)
        ours, theirs = found["xformc"], found[setting]
        own_reference, peer_reference = references if references is not None else (ours, theirs)
        return Timing(
            model=case.row.model,
            precision=case.row.precision,
            beam=case.row.beam,
            batch=case.batch,
            length=case.length,
            target=case.target,
            xformc=medians["xformc"],
            ctranslate2=medians[setting],
            setting=setting if not cuts[setting] else f"{setting}, batches of {cuts[setting]}",
            floor=medians["floor"],
            rounds=len(times["xformc"]),
            equal=_equal(ours, theirs),
            reference=_equal(ours, own_reference),
            peer_reference=_equal(theirs, peer_reference),
        )

    def _play_engine(self, case: Case, length: int) -> tuple[float, Hypotheses]:
        source, _ = sentences(case.batch)
        options = limited(self._options, case.row.beam, length)
        began = time.perf_counter()
        found = search(self._session, {"source": source}, options)
        seconds = time.perf_counter() - began
        rows = [tokens[:count] for tokens, count in zip(found.tokens[:, 0], found.lengths[:, 0], strict=True)]
        return seconds, [[f"t{token}" for token in row if token != END] for row in rows]

    def _play_floor(self, case: Case, length: int) -> tuple[float, Hypotheses]:
        began = time.perf_counter()
        self._floor.run(case.batch, SOURCE_TOKENS, case.row.beam, length)
        return time.perf_counter() - began, []

    def _play_peer(self, case: Case, name: str, length: int, cut: int) -> tuple[float, Hypotheses]:
        _, source = sentences(case.batch)
        penalty = self._options.length_penalty
        answer = self._peers[name].ask(
            do="translate", source=source, beam=case.row.beam, length=length, length_penalty=penalty, sub_batch=cut
        )
        return answer["seconds"], answer["tokens"]

    def _choose_cut(self, case: Case, name: str) -> int:
        """Return CTranslate2's faster choice on short outputs: the whole batch (0), or parts of SUB_BATCH."""
        if case.batch <= SUB_BATCH:
            return 0
        self._play_peer(case, name, WARM_UP, 0)
        return min((0, SUB_BATCH), key=lambda cut: self._play_peer(case, name, WARM_UP, cut)[0])


def take_turns(
    players: Mapping[str, Play], length: int, pace: Pace
) -> tuple[dict[str, list[float]], dict[str, Hypotheses]]:
    """Return the seconds of each system in each round, and its hypotheses."""
    times: dict[str, list[float]] = {name: [] for name in players}
    found, began = dict[str, Hypotheses](), time.perf_counter()
    for done in range(pace.rounds):
        if done and time.perf_counter() - began > pace.seconds:
            break
        for name, play in players.items():
            time.sleep(SETTLE)
            play(REMINDER)  # the previous system has evicted the weights from the caches
            seconds, found[name] = play(length)
            times[name].append(seconds)
    return times, found


def sentences(batch: int) -> tuple[np.ndarray, list[list[str]]]:
    """Return random sources [batch, SOURCE_TOKENS] that end with the end token, and the names of their tokens."""
    source = np.random.default_rng(batch).integers(4, VOCABULARY, (batch, SOURCE_TOKENS))
    source[:, -1] = END
    return source, [["</s>" if token == END else f"t{token}" for token in row] for row in source.tolist()]


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """The ratio of the medians, with the lowest and the highest of the rounds."""
    ratios = [other / own for own, other in zip(ours, theirs, strict=True)]
    middle = statistics.median(theirs) / statistics.median(ours)
    return f"{middle:7.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def _equal(ones: Hypotheses, others: Hypotheses) -> int:
    return sum(one == other for one, other in zip(ones, others, strict=True))
