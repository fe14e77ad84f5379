"""The time to the first token and the speed after it, of a language model in xformc and in other systems.

    python -m benchmarks.generation                        # every row beside CTranslate2; an hour
    python -m benchmarks.generation --models gpt2 --precisions int8 --prompts 32 512 --rounds 3
    python -m benchmarks.generation --precisions float32 --beside transformers genai

The models have random weights, the same for all, who take the most likely token. The time to the first token is that of
a call for one token. The speed after it is that of 32 more tokens after a prompt of 32, for batches of 1, 8 and 32. In
each round all take turns, each in its own process. CTranslate2 runs in its default setting and with
CT2_FORCE_CPU_ISA=AVX512; the faster of these counts. It has no int4, so an engine in int4 is beside its int8. Times are
medians; the ratios are those of the medians, with the lowest and highest of the rounds. `=` counts the prompts after
which xformc and CTranslate2 wrote the same tokens. The floor is the time of the products with weights alone, in turns
with the others, as a part of xformc's.

transformers computes in float32. onnxruntime-genai, which is not in requirements, takes its own int4, and no GPT-2.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.decode.child import Child
from benchmarks.decode.engines import fresh_weights, write_engine
from benchmarks.decode.floor import Floor
from benchmarks.decode.speed import SETTINGS, SETTLE, ratio
from benchmarks.generation.models import MODELS, model_spec, write_hugging_face
from benchmarks.generation.players import Player, ctranslate2_players, genai_player, ours, transformers_player
from xformc.compiler.spec import Spec
from xformc.format.interfaces import SAMPLING
from xformc.format.precision import Precision
from xformc.runtime.whole import whole_session

MORE, SHORT = 32, 32
"""The tokens to write after the first one, and those of the prompt before them."""

Seconds = dict[str, list[float]]
"""The seconds of a call in each round, by who made it."""


@dataclass
class Row:
    """What was measured, `count` tokens a call, and by how many prompts all the tokens were the same."""

    what: str
    seconds: Seconds = field(default_factory=dict[str, list[float]])
    equal: str = ""
    count: int = 1

    def line(self) -> str:
        """A line of the table; the times are those of one token."""
        ours, floor = self.seconds["xformc"], statistics.median(self.seconds["floor"])
        peer = min((self.seconds[name] for name in SETTINGS), key=statistics.median)
        cells = [f"{self.what:32}{self._time(ours)}{self._time(peer)}{ratio(ours, peer)} {self.equal:10}"]
        cells += [f"{floor / statistics.median(ours):6.0%}"]
        others = [name for name in self.seconds if name not in ("xformc", "floor", *SETTINGS)]
        return "".join(
            [*cells, *(f"{self._time(each)}{ratio(ours, each)}" for each in map(self.seconds.get, others) if each)]
        )

    def _time(self, seconds: Sequence[float]) -> str:
        return f"{statistics.median(seconds) / self.count * 1000:10.2f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--precisions", nargs="*", default=["float32", "int8"], choices=["float32", "int8", "int4"])
    parser.add_argument("--beside", nargs="*", default=[], choices=["transformers", "genai"])
    parser.add_argument("--prompts", nargs="*", type=int, default=[32, 512, 2048])
    parser.add_argument("--batches", nargs="*", type=int, default=[1, 8, 32])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    others = "".join(f"{name:>13}  ratio{'':17}" for name in arguments.beside)
    print(f"{'':32}{'xformc':>13}{'CTranslate2':>13}  ratio{'':19}same   floor{others}")
    for model in arguments.models:
        for precision in arguments.precisions:
            with tempfile.TemporaryDirectory() as name:
                measure(model, precision, Path(name), arguments)


def measure(model: str, precision: Precision, folder: Path, arguments: argparse.Namespace) -> None:
    """Measure one model in one precision, and print its rows."""
    spec = model_spec(model, folder)
    children = list[Child]()
    players = _players(spec, precision, folder, arguments, children)
    floor = Floor(folder / "engine", "native", arguments.threads)
    random, name = np.random.default_rng(0), f"{model}, {precision}"

    def prompts(batch: int, length: int) -> list[list[int]]:
        return random.integers(4, int(spec.sizes["vocabulary"]), (batch, length)).tolist()

    for length in arguments.prompts:
        row = play(f"{name}, prompt of {length}", players, floor, prompts(1, length), 1, arguments.rounds)
        print(row.line(), flush=True)
    for batch in arguments.batches:
        given = prompts(batch, SHORT)
        first = play("", players, floor, given, 1, arguments.rounds)
        whole = play(f"{name}, a token of {batch}", players, floor, given, 1 + MORE, arguments.rounds)
        after = {name: _more(first.seconds[name], whole.seconds[name]) for name in whole.seconds}
        print(Row(whole.what, after, whole.equal, MORE * batch).line(), flush=True)
    for child in children:
        child.close()


def _players(
    spec: Spec, precision: Precision, folder: Path, arguments: argparse.Namespace, children: list[Child]
) -> dict[str, Player]:
    """The players by name, each with the model; their processes are added to `children`."""
    weights = fresh_weights(spec, "native")
    write_engine(spec, weights, precision, "native", folder / "engine")
    shared = write_hugging_face(spec, weights, folder)
    session = whole_session(folder / "engine", SAMPLING, target="native", threads=arguments.threads)
    players: dict[str, Player] = {"xformc": partial(ours, session)}
    players |= ctranslate2_players(shared, precision, arguments.threads, children)
    if "transformers" in arguments.beside:
        players["transformers"] = transformers_player(shared, arguments.threads, children)
    if "genai" in arguments.beside:
        players["genai"] = genai_player(shared, precision, arguments.threads, children)
    return players


def play(what: str, players: dict[str, Player], floor: Floor, given: list[list[int]], tokens: int, rounds: int) -> Row:
    """Let all players write so many tokens after these prompts, in turns, after a round that does not count."""
    row, written = Row(what), dict[str, list[list[int]]]()

    def products(given: list[list[int]], tokens: int) -> tuple[float, list[list[int]]]:
        began = time.perf_counter()
        floor.run(len(given), len(given[0]), 1, tokens)
        return time.perf_counter() - began, []

    for turn in range(rounds + 1):
        for name, player in {**players, "floor": products}.items():
            time.sleep(SETTLE)
            seconds, written[name] = player(given, tokens)
            if turn:
                row.seconds.setdefault(name, []).append(seconds)
    pairs = zip(written["xformc"], written["default"], strict=True)
    row.equal = f"={sum(own == other for own, other in pairs)} of {len(given)}"
    return row


def _more(short: Sequence[float], long: Sequence[float]) -> list[float]:
    return [max(whole - first, 1e-9) for first, whole in zip(short, long, strict=True)]


if __name__ == "__main__":
    main()
