"""The time to the first token and the speed after it, of a language model in xformc and in CTranslate2's Generator.

    python -m benchmarks.generation                        # every row; half an hour
    python -m benchmarks.generation --precisions int8 --prompts 32 512 --rounds 3

The model has the sizes and the architecture of GPT-2 small, with random weights, the same for both; both take the most
likely token. The time to the first token is that of a call for one token. The speed after it is that of 32 more tokens
after a prompt of 32, for batches of 1, 8 and 32. In each round the two take turns, CTranslate2 in its default setting
and with CT2_FORCE_CPU_ISA=AVX512, each in its own process; the faster of these counts. CTranslate2 has no int4, so an
engine in int4 is beside its int8. Times are medians; the ratios are those of the medians, with the lowest and highest
of the rounds. `=` counts the prompts after which both wrote the same tokens.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.decode.child import Child
from benchmarks.decode.engines import fresh_weights, write_engine
from benchmarks.decode.speed import SETTINGS, SETTLE
from xformc.compiler.spec import load_spec
from xformc.format.interfaces import SAMPLING
from xformc.format.manifest import SampleOptions
from xformc.format.precision import Precision
from xformc.runtime.generate import Prompt, sample
from xformc.runtime.session import Session
from xformc.runtime.whole import whole_session

GPT = "extends: gpt\nsizes: {max_positions: 4096, dropout: 0.0}\ntrain: {max_length: 4096}\n"
MORE, SHORT = 32, 32
"""The tokens to write after the first one, and those of the prompt before them."""


Player = Callable[[list[list[int]], int], tuple[float, list[list[int]]]]
"""Continues prompts by so many tokens; returns the seconds and the tokens."""


@dataclass
class Row:
    """The seconds of a call in each round, by who made it."""

    what: str
    seconds: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    equal: str = ""

    def line(self, count: int = 1) -> str:
        """A line of the table; the times are those of one of `count` tokens."""
        ours = self.seconds["xformc"]
        theirs = min((self.seconds[name] for name in SETTINGS), key=statistics.median)
        ratios = [other / own for own, other in zip(ours, theirs, strict=True)]
        times = [statistics.median(each) for each in (ours, theirs)]
        shown = "".join(f"{each / count * 1000:10.2f} ms" for each in times)
        return f"{self.what:30}{shown}{times[1] / times[0]:7.2f} ({min(ratios):.2f} to {max(ratios):.2f}) {self.equal}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--precisions", nargs="*", default=["float32", "int8"], choices=["float32", "int8", "int4"])
    parser.add_argument("--prompts", nargs="*", type=int, default=[32, 512, 2048])
    parser.add_argument("--batches", nargs="*", type=int, default=[1, 8, 32])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    print(f"{'':30}{'xformc':>13}{'CTranslate2':>13}  ratio")
    for precision in arguments.precisions:
        with tempfile.TemporaryDirectory() as name:
            measure(precision, Path(name), arguments)


def measure(precision: Precision, folder: Path, arguments: argparse.Namespace) -> None:
    """Measure one precision, and print its rows."""
    (folder / "generator.yaml").write_text(GPT, encoding="utf-8")
    spec = load_spec(folder / "generator.yaml")
    weights = fresh_weights(spec, "native")
    write_engine(spec, weights, precision, "native", folder / "engine")
    from benchmarks.decode.ctranslate2_model import export_gpt

    export_gpt(spec, weights, folder / "peer", quantization=None if precision == "float32" else "int8")
    session = whole_session(folder / "engine", SAMPLING, target="native", threads=arguments.threads)
    players: dict[str, Player] = {"xformc": partial(ours, session)}
    peers = {name: Child("peer", environment) for name, environment in SETTINGS.items()}
    for name, peer in peers.items():
        kind = "float32" if precision == "float32" else "int8"
        peer.ask(do="load_generator", folder=str(folder / "peer"), compute_type=kind, threads=arguments.threads)
        players[name] = partial(theirs, peer)
    random = np.random.default_rng(0)

    def prompts(batch: int, length: int) -> list[list[int]]:
        return random.integers(4, int(spec.sizes["vocabulary"]), (batch, length)).tolist()

    for length in arguments.prompts:
        row = play(f"{precision}, prompt of {length}", players, prompts(1, length), 1, arguments.rounds)
        print(row.line(), flush=True)
    for batch in arguments.batches:
        given = prompts(batch, SHORT)
        first = play("", players, given, 1, arguments.rounds)
        whole = play(f"{precision}, a token of {batch}", players, given, 1 + MORE, arguments.rounds)
        after = {
            name: [
                max(long - short, 1e-9) for long, short in zip(whole.seconds[name], first.seconds[name], strict=True)
            ]
            for name in players
        }
        print(Row(whole.what, after, whole.equal).line(MORE * batch), flush=True)
    for peer in peers.values():
        peer.close()


def play(what: str, players: dict[str, Player], given: list[list[int]], tokens: int, rounds: int) -> Row:
    """Let all players write so many tokens after these prompts, in turns, after a round that does not count."""
    row, written = Row(what, {name: [] for name in players}), dict[str, list[list[int]]]()
    for turn in range(rounds + 1):
        for name, player in players.items():
            time.sleep(SETTLE)
            seconds, written[name] = player(given, tokens)
            if turn:
                row.seconds[name].append(seconds)
    pairs = zip(written["xformc"], written["default"], strict=True)
    row.equal = f"={sum(own == other for own, other in pairs)} of {len(given)}"
    return row


def ours(session: Session, given: Sequence[list[int]], tokens: int) -> tuple[float, list[list[int]]]:
    """Let the engine continue the prompts."""
    options = SampleOptions(temperature=0.0, top_k=0, top_p=1.0, max_new_tokens=tokens)
    began = time.perf_counter()
    found = sample(session, [Prompt(ids, 0) for ids in given], options)
    seconds = time.perf_counter() - began
    assert (found.lengths == tokens).all(), "a text ended before its limit"
    return seconds, found.tokens.tolist()


def theirs(peer: Child, given: Sequence[list[int]], tokens: int) -> tuple[float, list[list[int]]]:
    """Let CTranslate2 continue the prompts."""
    answer = peer.ask(do="generate", prompts=given, tokens=tokens)
    return answer["seconds"], answer["tokens"]


if __name__ == "__main__":
    main()
