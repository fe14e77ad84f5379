"""Batch invariance: how many texts of a file change with what shares their batch, in tokens and in bits of the scores.

    python -m benchmarks.invariance ENGINE test.en [--lines 1000] [--n-best 4]
    python -m benchmarks.invariance ENGINE test.en --controls

Every line is translated, or continued, alone, then with all others: in batches of several sizes, with one and two
workers, in the order of the file and in random order; in batches that refill, where the engine has them; and by a
language model with drafts. The table counts the lines whose texts differ from those of the line alone.

With --controls each line has options of its own, drawn at random; and translations are repeated with each control that
is no such option: prefixes, phrases, regular expressions, groups of the beam, alternatives at a position.
"""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from xformc.format.abilities import REFILLS
from xformc.runtime import Continuation, Engine, Hypothesis, load
from xformc.runtime.text.lines import read_text_file

ALONE = 1
BATCH_TOKENS = (2048, 16_384, 131_072)
SLOTS = (3, 16)

Options = Any
"""The keyword arguments of one line."""

Text = Hypothesis | Continuation
Call = Callable[[Sequence[str], Sequence[Options]], Sequence[Sequence[Text]]]
"""The texts of each line with its own options."""


@dataclass(frozen=True)
class Control:
    """A control of translations that is no option of each line: an argument with a value for each line, and others."""

    name: str
    argument: str = ""
    of_lines: Sequence[Any] = ()
    shared: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def given(self, order: Sequence[int]) -> dict[str, Any]:
        """The arguments of a call with the lines in this order."""
        own = {self.argument: [self.of_lines[index] for index in order]} if self.argument else {}
        return {**own, **self.shared}


NONE = Control("")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", type=Path)
    parser.add_argument("source", type=Path)
    parser.add_argument("--lines", type=int, help="number of lines to use, from the start of the file")
    parser.add_argument("--n-best", type=int, default=1, help="of translations")
    parser.add_argument("--controls", action="store_true", help="give each line options of its own")
    arguments = parser.parse_args()
    engine, lines = load(arguments.engine), read_text_file(arguments.source)[: arguments.lines]
    manifest = engine.manifest
    print(f"{manifest.name}, {manifest.target}, {manifest.precision}, {len(lines):,} lines")
    print(f"{'with others':>36} {'order':>7} {'tokens differ':>13} {'score bits differ':>17}")
    for one in changes(engine, lines, arguments.n_best, controls=arguments.controls):
        print(f"{one.way:>36} {one.order:>7} {one.tokens:13,} {one.scores:17,}", flush=True)


@dataclass(frozen=True)
class Change:
    """The numbers of lines whose tokens and whose scores differ between this way to run them and the line alone."""

    way: str
    order: str
    tokens: int
    scores: int


def changes(engine: Engine, lines: Sequence[str], n_best: int = 1, *, controls: bool = False) -> Iterator[Change]:
    """Yield the changes of each way."""
    random = np.random.default_rng(0)
    language_model = engine.manifest.task == "language_model"
    writes = _continuing(engine) if language_model else _translating(engine, n_best)
    draw = _drawn_sampling if language_model else _drawn_search
    own = [draw(random, number) if controls else _plain(engine, number) for number in range(len(lines))]
    in_file, shuffled = list(range(len(lines))), random.permutation(len(lines)).tolist()
    for control in [NONE, *(_drawn_controls(random, len(lines)) if controls and not language_model else [])]:
        options = own if control is NONE else [{} for _ in lines]
        alone = writes({"max_batch_tokens": ALONE, **control.given(in_file)})(lines, options)
        for way, settings, orders in _ways(engine, control):
            for name, order in (("file", in_file), ("random", shuffled)):
                if name not in orders:
                    continue
                call = writes({**settings, **control.given(order)})
                together = call([lines[index] for index in order], [options[index] for index in order])
                pairs = [(alone[index], other) for index, other in zip(order, together, strict=True)]
                tokens = sum(_tokens(one) != _tokens(other) for one, other in pairs)
                yield Change(way, name, tokens, sum(_bits(one) != _bits(other) for one, other in pairs))


def _drawn_controls(random: np.random.Generator, count: int) -> Iterator[Control]:
    """Yield the controls that are no options of each line; those with a value for each line, for about half of them."""
    half = random.random((3, count)) < 0.5

    def some(most: int) -> list[int]:
        return random.integers(4, 60, int(random.integers(1, most + 1))).tolist()

    yield Control("prefixes", "prefixes", [some(3) if there else [] for there in half[0]])
    yield Control("phrases", "phrases", [[some(2)] if there else [] for there in half[1]])
    yield Control("a regular expression", "regex", ["[a-z ]{0,60}[.]" if there else None for there in half[2]])
    yield Control("groups", shared={"beam_size": 4, "beam_groups": 2, "diversity_penalty": 0.5})
    yield Control("alternatives", shared={"alternatives": 3})


def _ways(engine: Engine, control: Control) -> Iterator[tuple[str, dict[str, Any], Sequence[str]]]:
    """Yield the ways to run the lines: a name, the arguments of the call, and the orders to try."""
    if control is not NONE:
        yield f"{BATCH_TOKENS[1]:,} tokens, {control.name}", {"max_batch_tokens": BATCH_TOKENS[1]}, ["random"]
        return
    for tokens in BATCH_TOKENS:
        for workers, order in ((1, "file"), (2, "random")):
            settings = {"max_batch_tokens": tokens, "workers": workers}
            yield f"{tokens:,} tokens, {workers} worker{'s' if workers > 1 else ''}", settings, [order]
    if engine.manifest.can(REFILLS):
        for slots in SLOTS:
            yield f"{slots} slots", {"slots": slots}, ["file", "random"]
    if engine.manifest.task == "language_model":
        yield "drafts by look-up", {"draft": "lookup"}, ["file"]


def _translating(engine: Engine, n_best: int) -> Callable[[Mapping[str, Any]], Call]:
    def way(settings: Mapping[str, Any]) -> Call:
        best = {} if "alternatives" in settings else {"n_best": n_best}
        return lambda lines, own: engine.translate(lines, each=own, truncate=True, **best, **settings)

    return way


def _continuing(engine: Engine) -> Callable[[Mapping[str, Any]], Call]:
    def way(settings: Mapping[str, Any]) -> Call:
        def run(lines: Sequence[str], own: Sequence[Options]) -> list[list[Continuation]]:
            return [[one] for one in engine.generate(lines, each=own, truncate=True, **settings)]

        return run

    return way


def _plain(engine: Engine, number: int) -> Options:
    return {"seed": number} if engine.manifest.task == "language_model" else {}


def _drawn_search(random: np.random.Generator, _: int) -> Options:
    """Options of a search, each of which is there for about half of the lines."""
    every = {
        "length_penalty": float(random.uniform(0, 1.5)),
        "min_length": int(random.integers(0, 6)),
        "max_length_offset": int(random.integers(2, 30)),
        "stop_rule": str(random.choice(["first", "best", "shrink"])),
        "patience": float(random.uniform(1, 2)),
        **_drawn_edits(random),
    }
    return {name: value for name, value in every.items() if random.random() < 0.5}


def _drawn_sampling(random: np.random.Generator, number: int) -> Options:
    every = {
        "temperature": float(random.uniform(0, 1.5)),
        "top_k": int(random.integers(0, 20)),
        "top_p": float(random.uniform(0.5, 1)),
        "max_new_tokens": int(random.integers(1, 40)),
        **_drawn_edits(random),
    }
    return {"seed": number, **{name: value for name, value in every.items() if random.random() < 0.5}}


def _drawn_edits(random: np.random.Generator) -> dict[str, Any]:
    return {
        "no_repeat_ngram_size": int(random.integers(1, 4)),
        "repetition_penalty": float(random.uniform(1, 1.5)),
        "presence_penalty": float(random.uniform(0, 1)),
        "frequency_penalty": float(random.uniform(0, 1)),
        "suppress_tokens": random.integers(4, 60, 5).tolist(),
    }


def _tokens(texts: Sequence[Text]) -> list[tuple[int, ...]]:
    return [one.tokens for one in texts]


def _bits(texts: Sequence[Text]) -> bytes:
    return np.array([one.score for one in texts], np.float32).tobytes()


if __name__ == "__main__":
    main()
