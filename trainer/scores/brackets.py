"""Labelled bracket F1 of constituency trees (PARSEVAL, Black et al. 1991), counted as evalb does.

A tree is written as `(S (NP the dog) (VP barks))`; a closing bracket may repeat its label: `(NP the dog )NP`. A
bracket is a constituent's label and the words that it spans:

- labels lose their functions (`NP-SBJ` and `NP=2` are NP), and PRT counts as ADVP;
- the root labels TOP, ROOT, S1 and the empty label do not count;
- punctuation and traces are removed first, with the constituents that are then empty.

Precision is the share of the found brackets that are in the reference. Recall is the share of the reference brackets
that were found. F1 is 2 P R / (P + R), over all sentences together. A bracket that occurs twice must be found twice.

In treebanks each word has a tag, `(NN dog)`, and tags are not brackets. If every word of the references is alone in its
constituent, these constituents are tags. Otherwise words have no tags, and punctuation is recognized by the words.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from xformc.errors import UserError
from xformc.trainer.scores.metrics import Measure

ROOTS = frozenset({"", "TOP", "ROOT", "S1"})
PUNCTUATION = frozenset({",", ":", "``", "''", ".", "-NONE-"})
SAME = {"PRT": "ADVP"}
MOST_DEPTH = 200
"""Maximum nesting of brackets; a deeper text does not parse."""

Bracket = tuple[str, int, int]
"""Label, index of the first word, and index after the last word, not counting punctuation."""


@dataclass(frozen=True)
class Constituent:
    """A label over constituents and words."""

    label: str
    children: "tuple[Constituent | str, ...]"

    @property
    def is_tag(self) -> bool:
        """Whether its only child is one word."""
        return len(self.children) == 1 and isinstance(self.children[0], str)


@dataclass(frozen=True)
class BracketScore:
    """The number of brackets found, in the references, and in both; `unparsed` counts outputs that are not trees."""

    found: int
    wanted: int
    matched: int
    unparsed: int

    @property
    def precision(self) -> float:
        """The share of the found brackets that are correct; 0 if none was found."""
        return self.matched / self.found if self.found else 0.0

    @property
    def recall(self) -> float:
        """The share of the reference brackets that were found; 0 if there are none."""
        return self.matched / self.wanted if self.wanted else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall."""
        return 2 * self.matched / (self.found + self.wanted) if self.matched else 0.0


def parse_tree(text: str) -> Constituent | None:
    """Parse a text as one tree; return None if it is not exactly one."""
    labels: list[str] = []
    children: list[list[Constituent | str]] = [[]]
    for part in _PARTS.findall(text):
        if part.startswith("("):
            labels.append(part[1:].strip())
            children.append([])
        elif not part.startswith(")"):
            children[-1].append(part)
        elif labels and part in (")", f"){labels[-1]}"):
            constituent = Constituent(labels.pop(), tuple(children.pop()))
            children[-1].append(constituent)
        else:
            return None
        if len(labels) > MOST_DEPTH:
            return None
    tops = children[0]
    return tops[0] if len(children) == len(tops) == 1 and isinstance(tops[0], Constituent) else None


def brackets(tree: Constituent, *, tagged: bool) -> Counter[Bracket]:
    """Return the brackets of a tree that count, with their numbers; with `tagged`, each word has a tag."""
    found: Counter[Bracket] = Counter()
    _span(tree, 0, tagged, found)
    return found


def score_brackets(outputs: Sequence[str], references: Sequence[str], place: str = "references") -> BracketScore:
    """Compare each output with its reference; an output that is not a tree has no brackets.

    Raises: UserError for a reference that is not a tree, with its line in `place`.
    """
    wanted_trees = [_reference(text, f"{place}:{line}") for line, text in enumerate(references, start=1)]
    tagged = all(node.is_tag for tree in wanted_trees for node in _constituents(tree) if _has_words(node))
    found_trees = [parse_tree(text) for text in outputs]
    found = [Counter[Bracket]() if tree is None else brackets(tree, tagged=tagged) for tree in found_trees]
    wanted = [brackets(tree, tagged=tagged) for tree in wanted_trees]
    matched = sum((one & other).total() for one, other in zip(found, wanted, strict=True))
    found_count, wanted_count = (sum(counter.total() for counter in side) for side in (found, wanted))
    return BracketScore(found_count, wanted_count, matched, found_trees.count(None))


def bracket_measures(outputs: Sequence[str], references: Sequence[str], place: str = "references") -> list[Measure]:
    """Return F1, precision and recall. Raises: UserError as `score_brackets`."""
    score = score_brackets(outputs, references, place)
    unparsed = f"; {score.unparsed:,} of {len(outputs):,} outputs are not trees" if score.unparsed else ""
    return [
        Measure("bracket_f1", "bracket F1", score.f1, f"labelled, counted as evalb does{unparsed}", share=True),
        Measure(
            "bracket_precision", "precision", score.precision, f"{score.matched:,} of {score.found:,} found", share=True
        ),
        Measure("bracket_recall", "recall", score.recall, f"{score.matched:,} of {score.wanted:,} wanted", share=True),
    ]


_PARTS = re.compile(r"\(\s*[^\s()]*|\)[^\s()]*|[^\s()]+")
_FUNCTION = re.compile(r"(?<=.)[-=].*")


def _reference(text: str, place: str) -> Constituent:
    tree = parse_tree(text)
    if tree is None:
        raise UserError(
            f"the reference is not a tree: {text:.80}",
            place=place,
            hint="a tree is written as (S (NP the dog) (VP barks))",
        )
    return tree


def _constituents(tree: Constituent) -> Iterator[Constituent]:
    yield tree
    for child in tree.children:
        if isinstance(child, Constituent):
            yield from _constituents(child)


def _has_words(node: Constituent) -> bool:
    return any(isinstance(child, str) for child in node.children)


def _span(node: Constituent, start: int, tagged: bool, found: Counter[Bracket]) -> int:
    """Add the brackets of a node that begins at the word `start` to `found`, and return the index after its words."""
    if tagged and node.is_tag:
        return start + (node.label not in PUNCTUATION)
    end = start
    for child in node.children:
        end = end + (child not in PUNCTUATION) if isinstance(child, str) else _span(child, end, tagged, found)
    label = _FUNCTION.sub("", node.label)
    if end > start and label not in ROOTS:
        found[SAME.get(label, label), start, end] += 1
    return end
