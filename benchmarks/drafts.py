"""The time of a token of a language model with a draft, beside that without one.

    python -m benchmarks.drafts                                          # int8, 4 drafted tokens; 5 minutes
    python -m benchmarks.drafts --precision float32 --tokens 8
    python -m benchmarks.drafts --pair ENGINE DRAFT texts.txt            # two trained engines

The engine has the size of GPT-2 small, the draft 2 layers of 256; both are native, with random weights. No draft knows
what random weights write. So the draft samples each token, which is then replaced by the one that follows, with the
probability `right`, or else by a wrong one. With --pair nothing is replaced, and the prompts are the first tokens of
the lines of a text; the look-up takes part as well.

Both ways write the same tokens, one prompt at a time, and take turns. The time is that of all calls after the
first one, divided by their tokens: the median of the rounds, with the lowest and highest ratio of a round.
"""

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.decode.engines import fresh_weights, write_engine
from xformc.compiler.pipeline import compile_engine
from xformc.compiler.spec import load_spec
from xformc.format.inputs import Input
from xformc.format.manifest import SampleOptions
from xformc.runtime.engine import load
from xformc.runtime.generation.draft import EngineDrafter, LookupDrafter
from xformc.runtime.generation.generate import Prompt
from xformc.runtime.generation.token_calls import Drafter, TokenCalls
from xformc.runtime.session import Session
from xformc.runtime.sessions import open_session
from xformc.runtime.text.lines import read_text_file

SPECS = {
    "large": "extends: gpt\nsizes: {dropout: 0.0}\n",
    "small": "extends: gpt\nsizes: {layers: 2, d_model: 256, heads: 4, dropout: 0.0}\n",
}
PROMPT, NEW, PROMPTS = 32, 64, 4
OPTIONS = SampleOptions(0.0, 0, 1.0, NEW)

Player = Callable[[Prompt, Sequence[int]], TokenCalls]
"""Returns the calls that continue a prompt, given the tokens that follow."""


@dataclass
class Guess:
    """Drafts as another drafter, but replaces its tokens by right and wrong ones."""

    draft: Drafter
    following: Sequence[int]
    right: float
    random: random.Random

    def propose(self, text: Sequence[int], most: int) -> Sequence[int]:
        """Return as many tokens as the other has drafted."""
        count, done = len(self.draft.propose(text, most)), len(text) - PROMPT
        following = self.following[done : done + count]
        return [token if self.random.random() < self.right else token ^ 1 for token in following]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--precision", default="int8", choices=["float32", "int8", "int4"])
    parser.add_argument("--tokens", type=int, default=4)
    parser.add_argument("--right", nargs="*", type=float, default=[0.0, 0.5, 0.7, 0.9, 1.0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pair", nargs=3, type=Path, metavar=("ENGINE", "DRAFT", "TEXT"))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if arguments.pair is None:
            prompts, players = random_pair(Path(folder), arguments)
        else:
            prompts, players = trained_pair(arguments)
        plain = players.pop("plain")
        wanted = [play(plain(prompt, ())).tokens for prompt in prompts]
        print(f"{arguments.precision}, {arguments.tokens} drafted tokens, {arguments.threads} threads, ms of a token")
        print(f"{'draft':>12}{'plain':>10}{'drafted':>10}{'ratio':>24}{'right tokens':>14}")
        for name, player in players.items():
            print(measure(name, plain, player, list(zip(prompts, wanted, strict=True)), arguments.rounds), flush=True)


def measure(name: str, plain: Player, player: Player, given: list[tuple[Prompt, list[int]]], rounds: int) -> str:
    """Let the two take turns; return a line of the table."""
    times, shares = dict[str, list[float]](plain=[], drafted=[]), list[float]()
    for _ in range(rounds):
        for who, other in (("plain", plain), ("drafted", player)):
            played = [play(other(prompt, tokens)) for prompt, tokens in given]
            assert [one.tokens for one in played] == [tokens for _, tokens in given], f"{name} wrote other tokens"
            times[who].append(statistics.mean(one.seconds for one in played) * 1000)
            shares += [one.right for one in played] if who == "drafted" else []
    own, drafted = (statistics.median(each) for each in times.values())
    ratios = [before / after for before, after in zip(times["plain"], times["drafted"], strict=True)]
    ratio = f"{own / drafted:.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    return f"{name:>12}{own:10.2f}{drafted:10.2f}{ratio:>24}{statistics.mean(shares):14.0%}"


@dataclass(frozen=True)
class Played:
    """A continuation: its tokens, the seconds of one, and the share of drafted tokens that were right."""

    tokens: list[int]
    seconds: float
    right: float


def play(calls: TokenCalls) -> Played:
    """Continue a prompt."""
    first, *others = ((one, time.perf_counter()) for one in calls)
    (_, start), (_, end) = first, others[-1]
    tokens = [token for one, _ in (first, *others) for token in one.tokens]
    drafted, accepted = (sum(getattr(one, what) for one, _ in (first, *others)) for what in ("drafted", "accepted"))
    return Played(tokens, (end - start) / (len(tokens) - len(first[0].tokens)), accepted / max(1, drafted))


def random_pair(folder: Path, arguments: argparse.Namespace) -> tuple[list[Prompt], dict[str, Player]]:
    """Return prompts of random tokens, and the players by name."""
    (large, text), (small, _) = (random_engine(folder, name, arguments) for name in SPECS)
    numbers = np.random.default_rng(0).integers(4, 50000, (PROMPTS, PROMPT))
    prompts = [Prompt([int(one) for one in row], seed) for seed, row in enumerate(numbers)]

    def guessed(right: float, prompt: Prompt, following: Sequence[int]) -> TokenCalls:
        guess = Guess(EngineDrafter(small, text, prompt, OPTIONS), following, right, random.Random(prompt.seed))
        return replace(calls(large, prompt), at_once=1, drafter=guess, draft_tokens=arguments.tokens)

    def plain(prompt: Prompt, _: Sequence[int]) -> TokenCalls:
        return calls(large, prompt)

    return prompts, {"plain": plain, **{f"right {right:.0%}": partial(guessed, right) for right in arguments.right}}


def calls(session: Session, prompt: Prompt, vocabulary: int = 50257) -> TokenCalls:
    """Return the calls of a plain continuation, of many tokens each."""
    return TokenCalls(session, prompt, OPTIONS, vocabulary, lambda _: "", at_once=8)


def random_engine(folder: Path, name: str, arguments: argparse.Namespace) -> tuple[Session, Input]:
    """Write an engine without a certificate; return its session, and its input for what it writes."""
    (folder / f"{name}.yaml").write_text(SPECS[name])
    spec, precision = load_spec(folder / f"{name}.yaml"), arguments.precision
    write_engine(spec, fresh_weights(spec, "native"), precision, "native", folder / name)
    program = compile_engine(spec, "native")
    files = [path.name for path in (folder / name).iterdir()]
    session = open_session(
        folder / name, program.inputs, program.results, target="native", decoding="sample", threads=arguments.threads,
        files=files,
    )  # fmt: skip
    return session, program.inputs["text"]


def trained_pair(arguments: argparse.Namespace) -> tuple[list[Prompt], dict[str, Player]]:
    """Return the first tokens of the lines of a text as prompts, and the players by name."""
    engine, draft = (load(path, threads=arguments.threads) for path in arguments.pair[:2])
    name = engine.manifest.written
    text, other = engine.manifest.inputs[name], draft.manifest.inputs[draft.manifest.written]
    encode, lines = engine.tokenizer_of(name).encode_open, read_text_file(arguments.pair[2])
    prompts = [Prompt(encode(name, line)[:PROMPT], seed) for seed, line in enumerate(lines[: 4 * PROMPTS])]

    def drafted(make: Callable[[Prompt], Drafter], prompt: Prompt, _: Sequence[int]) -> TokenCalls:
        plain = calls(engine.session, prompt, text.pieces)
        return replace(plain, at_once=1, drafter=make(prompt), draft_tokens=arguments.tokens)

    def by_engine(prompt: Prompt) -> Drafter:
        return EngineDrafter(draft.session, other, prompt, OPTIONS)

    return prompts, {
        "plain": lambda prompt, _: calls(engine.session, prompt, text.pieces),
        "engine": partial(drafted, by_engine),
        "lookup": partial(drafted, lambda _: LookupDrafter()),
    }


if __name__ == "__main__":
    main()
