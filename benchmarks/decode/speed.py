"""The times of an engine, of CTranslate2 in two settings and of the floor, taken in turns."""

import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.decode.cases import SOURCE_TOKENS, VOCABULARY, Case
from benchmarks.decode.child import Child
from benchmarks.decode.engines import limited
from benchmarks.decode.floor import Floor
from xformc.runtime.manifest import SearchOptions, Target
from xformc.runtime.search import SEARCH, search
from xformc.runtime.session import Session
from xformc.tokens import END

SETTINGS = {"default": {}, "AVX512": {"CT2_FORCE_CPU_ISA": "AVX512"}}
"""CTranslate2's settings: environment variables that it reads when it is loaded."""

SUB_BATCH = 32
"""What CTranslate2 may cut a larger batch into, if that is faster for it."""

WARM_UP = 6


@dataclass(frozen=True)
class Pace:
    """When the rounds of a case end: after `rounds` of them, or at the first that ends after `seconds`."""

    rounds: int
    seconds: float


@dataclass(frozen=True)
class Timing:
    """Seconds of a batch, medians over the rounds, and how many sentences have equal best hypotheses.

    `reference` counts those of the engine that are equal to those of a float32 engine of the same weights.
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
        """How many times faster the engine is."""
        return self.ctranslate2 / self.xformc

    def as_json(self) -> dict[str, Any]:
        """All fields, and the ratios."""
        return {**asdict(self), "ratio": self.ratio, "of_the_floor": self.floor / self.xformc}


class Contest:
    """One model in one precision, loaded by all that are compared."""

    def __init__(
        self, engine: Path, peer: Path, options: SearchOptions, precision: str, target: Target, threads: int
    ) -> None:
        self.options = options
        self.session = Session(engine, threads, SEARCH, target=target)
        self.floor = Floor(engine, target, threads)
        self.peers = {name: Child("peer", variables) for name, variables in SETTINGS.items()}
        for child in self.peers.values():
            child.ask(do="load", folder=str(peer), compute_type=precision, threads=threads)

    def close(self) -> None:
        """End the processes."""
        for child in self.peers.values():
            child.close()

    def best(self, case: Case) -> tuple[list[list[str]], list[list[str]]]:
        """The best hypotheses of the engine and of CTranslate2, in names of tokens, for the case's sentences."""
        source, names = sentences(case.batch)
        found = search(self.session, source, limited(self.options, case.row.beam, case.length))
        ours = [tokens[:length] for tokens, length in zip(found.tokens[:, 0], found.lengths[:, 0], strict=True)]
        peer = self.peers["default"].ask(**self._request(case, names, case.length, 0))
        return [[f"t{token}" for token in row if token != END] for row in ours], peer["tokens"]

    def measure(self, case: Case, pace: Pace, references: Sequence[Sequence[Sequence[str]]] | None) -> Timing:
        """Times of the case. `references` are the hypotheses of the float32 models, if this is no float32 itself."""
        source, names = sentences(case.batch)
        options = limited(self.options, case.row.beam, case.length)
        sub_batches = {name: self._choose_sub_batch(case, name, names) for name in self.peers}
        search(self.session, source, limited(self.options, case.row.beam, WARM_UP))
        self.floor.run(case.batch, SOURCE_TOKENS, case.row.beam, 1)
        times: dict[str, list[float]] = {"xformc": [], "floor": [], **{name: [] for name in self.peers}}
        began, answers, rounds = time.perf_counter(), dict[str, Any](), 0
        while rounds < pace.rounds and (not rounds or time.perf_counter() - began < pace.seconds):
            start = time.perf_counter()
            found = search(self.session, source, options)
            middle = time.perf_counter()
            self.floor.run(case.batch, SOURCE_TOKENS, case.row.beam, case.length)
            times["floor"].append(time.perf_counter() - middle)
            times["xformc"].append(middle - start)
            for name, child in self.peers.items():
                answers[name] = child.ask(**self._request(case, names, case.length, sub_batches[name]))
                times[name].append(answers[name]["seconds"])
            rounds += 1
        medians = {name: statistics.median(values) for name, values in times.items()}
        setting = min(self.peers, key=medians.__getitem__)
        ours = [
            [f"t{token}" for token in tokens[:length] if token != END]
            for tokens, length in zip(found.tokens[:, 0], found.lengths[:, 0], strict=True)
        ]
        peer = answers[setting]["tokens"]
        own_reference, peer_reference = references if references is not None else (ours, peer)
        return Timing(
            model=case.row.model,
            precision=case.row.precision,
            beam=case.row.beam,
            batch=case.batch,
            length=case.length,
            target=case.target,
            xformc=medians["xformc"],
            ctranslate2=medians[setting],
            setting=setting if not sub_batches[setting] else f"{setting}, batches of {sub_batches[setting]}",
            floor=medians["floor"],
            rounds=rounds,
            equal=_equal(ours, peer),
            reference=_equal(ours, own_reference),
            peer_reference=_equal(peer, peer_reference),
        )

    def _choose_sub_batch(self, case: Case, name: str, names: list[list[str]]) -> int:
        """How CTranslate2 cuts the batch: not at all (0), or into SUB_BATCH; by short outputs, which warm it up."""
        choices = [0, SUB_BATCH] if case.batch > SUB_BATCH else [0]
        seconds = {
            choice: self.peers[name].ask(**self._request(case, names, WARM_UP, choice))["seconds"]
            for choice in [0, *choices]
        }
        return min(choices, key=seconds.__getitem__)

    def _request(self, case: Case, names: list[list[str]], length: int, sub_batch: int) -> dict[str, Any]:
        return {
            "do": "translate",
            "source": names,
            "beam": case.row.beam,
            "length": length,
            "length_penalty": self.options.length_penalty,
            "sub_batch": sub_batch,
        }


def sentences(batch: int) -> tuple[np.ndarray, list[list[str]]]:
    """Random sources [batch, SOURCE_TOKENS] that end with the end token, and the names of their tokens."""
    source = np.random.default_rng(batch).integers(4, VOCABULARY, (batch, SOURCE_TOKENS))
    source[:, -1] = END
    return source, [["</s>" if token == END else f"t{token}" for token in row] for row in source.tolist()]


def _equal(ones: Sequence[Sequence[str]], others: Sequence[Sequence[str]]) -> int:
    return sum(list(one) == list(other) for one, other in zip(ones, others, strict=True))
