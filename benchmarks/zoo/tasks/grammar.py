"""A small probabilistic grammar of English: sentences with their trees, tags, probabilities and entropy.

A symbol of the rules is a label and, after a dot, its number (`s`, `p`) or its complement (`i` none, `t` an object, `c`
a clause). A symbol that begins with `_` makes no bracket. Words may have several tags (`light`, `that`, `fast`), but
each sentence has one tree, so its probability is that of its derivation.
"""

import math
import random
from dataclasses import dataclass
from functools import cache

import numpy as np

RULES = """\
S -> NP.s VP.s 1 | NP.p VP.p 1
_NP -> NP.s 1 | NP.p 1
NP.s -> DT.s NN 6 | DT.s JJ NN 3 | DT.s NN PP.of 1 | DT.s NN SBAR.s 1
NP.p -> DT.p NNS 6 | DT.p JJ NNS 3 | DT.p NNS PP.of 1 | DT.p NNS SBAR.p 1
VP.s -> VBZ.i 2 | VBZ.i RB 2 | VBZ.i PP 2 | VBZ.t _NP 4 | VBZ.t _NP PP 1 | VBZ.c SBAR 1
VP.p -> VBP.i 2 | VBP.i RB 2 | VBP.i PP 2 | VBP.t _NP 4 | VBP.t _NP PP 1 | VBP.c SBAR 1
VP.rs -> VBZ.i 1 | VBZ.t _NP 1
VP.rp -> VBP.i 1 | VBP.t _NP 1
PP -> IN _NP 1
PP.of -> IN.of _NP 1
SBAR -> IN.that S 1
SBAR.s -> WDT VP.rs 1
SBAR.p -> WDT VP.rp 1
"""
WORDS = """\
DT.s: the a this that every
DT.p: the some these those many
NN: dog cat girl boy teacher farmer river house walk play light cold fish watch
NNS: dogs cats girls boys teachers farmers rivers houses walks plays lights colds watches
JJ: old small tall kind light cold fast hard
VBZ.i: sleeps walks sings plays waits works
VBP.i: sleep walk sing play wait work
VBZ.t: sees helps follows likes walks lights watches
VBP.t: see help follow like walk light watch
VBZ.c: says thinks knows
VBP.c: say think know
RB: fast hard often soon
IN: near with under behind
IN.of: of
IN.that: that
WDT: that
"""


@dataclass(frozen=True)
class Node:
    """A constituent with its parts, or a tag with its word; `symbol` is its symbol in the rules."""

    symbol: str
    parts: "tuple[Node, ...]" = ()
    word: str = ""

    @property
    def label(self) -> str:
        """The symbol as written in a tree: NP for `NP.s`."""
        return self.symbol.partition(".")[0]


@dataclass(frozen=True)
class Grammar:
    """The rules of each symbol, with their probabilities, and the words of each tag."""

    rules: dict[str, list[tuple[tuple[str, ...], float]]]
    words: dict[str, list[str]]

    def draw(self, source: random.Random, symbol: str = "S") -> Node:
        """Draw a tree with its probability in the grammar."""
        if symbol in self.words:
            return Node(symbol, word=source.choice(self.words[symbol]))
        bodies, weights = zip(*self.rules[symbol], strict=True)
        [body] = source.choices(bodies, weights)
        return Node(symbol, tuple(self.draw(source, part) for part in body))

    def parses(self, text: list[str]) -> tuple[int, float]:
        """Return the number of trees of the sentence, and its probability (the inside algorithm, Baker, 1979)."""

        @cache
        def inside(symbol: str, first: int, last: int) -> tuple[int, float]:
            if symbol in self.words:
                known = last == first + 1 and text[first] in self.words[symbol]
                return (1, 1 / len(self.words[symbol])) if known else (0, 0.0)
            found = [(sequence(body, first, last), weight) for body, weight in self.rules[symbol]]
            return sum(item[0] for item, _ in found), sum(item[1] * weight for item, weight in found)

        @cache
        def sequence(body: tuple[str, ...], first: int, last: int) -> tuple[int, float]:
            if len(body) == 1:
                return inside(body[0], first, last)
            count, probability = 0, 0.0
            for middle in range(first + 1, last - len(body) + 2):
                left = inside(body[0], first, middle)
                if left[0]:
                    right = sequence(body[1:], middle, last)
                    count, probability = count + left[0] * right[0], probability + left[1] * right[1]
            return count, probability

        return inside("S", 0, len(text))

    def entropy_and_length(self) -> tuple[float, float]:
        """Return the entropy of a sentence in nats, and its expected number of words (Grenander, 1976).

        Both solve x = own + uses x over the symbols: `own` is the contribution of a symbol's choice of a rule or word,
        and `uses` the expected number of each symbol in its rules.
        """
        names = [*self.rules, *self.words]
        uses, own = np.zeros((len(names), len(names))), np.zeros((len(names), 2))
        for row, name in enumerate(names):
            if name in self.words:
                own[row] = math.log(len(self.words[name])), 1
                continue
            for body, weight in self.rules[name]:
                own[row, 0] -= weight * math.log(weight)
                for part in body:
                    uses[row, names.index(part)] += weight
        entropy, length = np.linalg.solve(np.eye(len(names)) - uses, own)[names.index("S")]
        return float(entropy), float(length)


def leaves(node: Node) -> list[Node]:
    """Return the tags with their words, from left to right."""
    return [node] if node.word else [leaf for part in node.parts for leaf in leaves(part)]


def sentence(node: Node) -> list[str]:
    """Return the words of a tree."""
    return [leaf.word for leaf in leaves(node)]


def read_grammar(rules: str = RULES, words: str = WORDS) -> Grammar:
    """Parse the two tables into a grammar."""
    lexicon = {name: known.split() for name, known in (line.split(":") for line in words.splitlines())}
    table: dict[str, list[tuple[tuple[str, ...], float]]] = {}
    for line in rules.splitlines():
        symbol, bodies = line.split(" -> ")
        split = [body.split() for body in bodies.split(" | ")]
        total = sum(float(body[-1]) for body in split)
        table[symbol] = [(tuple(body[:-1]), float(body[-1]) / total) for body in split]
    return Grammar(table, lexicon)


ENGLISH = read_grammar()
