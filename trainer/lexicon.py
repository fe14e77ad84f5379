"""Which target tokens translate each source token, by IBM Model 1 (Brown et al. 1993, "The Mathematics of Statistical
Machine Translation", section 4.2), and a shortlist of the likeliest ones."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from xformc.compiler.shortlist import Shortlist, padded
from xformc.compiler.spec import Spec
from xformc.compiler.spec.alignment import SOURCE, TARGET
from xformc.errors import UserError
from xformc.trainer.data.data_schema import data_schema
from xformc.trainer.data.splits import find_pairs
from xformc.trainer.data.text_examples import load_for
from xformc.trainer.data.text_files import read_texts

Ids = NDArray[np.int64]
Pair = tuple[Ids, Ids]

ITERATIONS = 5
CELLS = 2**23
"""The pairs of tokens, one of each side of a sentence, that are in memory at once."""

MOST_TOKENS = 512
"""Longer texts are cut: all pairs of their tokens are counted."""

LEAST = 1e-4
"""A translation that is less probable is not in a list."""


@dataclass(frozen=True)
class Coverage:
    """How many target tokens of some sentences their lists have, and how long these are."""

    listed: int
    tokens: int
    mean: float


@dataclass(frozen=True)
class Sizes:
    """The number of common tokens, of translations of each source token, and the most pairs that are read."""

    common: int = 100
    best: int = 100
    pairs: int = 200_000


def make_shortlist(
    spec: Spec,
    run: Path,
    data: Path,
    languages: str | None,
    sizes: Sizes = Sizes(),
    report: Callable[[str], None] = lambda _: None,
) -> tuple[Shortlist, Coverage]:
    """The shortlist of the training text in the folder `data`, by the tokenizers of a run; and its coverage of the
    validation text.

    Raises: UserError for a spec that translates no text, and as `find_pairs` and `read_texts`.
    """
    if spec.task != "translation" or any(item.kind != "tokens" for item in spec.inputs.values()):
        raise UserError("a shortlist is for models that translate one text", place=str(run))
    schema = data_schema(spec)
    tokenizer, files = load_for(schema, spec.train.tokenizer, run), find_pairs(data, languages)
    given, written = (tokenizer.vocabularies[name] for name in (SOURCE, TARGET))

    def encoded(files: Sequence[Path], most: int) -> list[Pair]:
        texts = read_texts(tuple(files), schema.columns)
        kept = np.unique(np.linspace(0, len(texts) - 1, min(len(texts), most)).astype(np.int64))
        columns: list[list[str]] = [[str(texts.columns[name][row]) for row in kept] for name in (SOURCE, TARGET)]
        sides = [known.encode([*lines]) for known, lines in zip((given, written), columns, strict=True)]
        cut = [[np.array(ids[:MOST_TOKENS], np.int64) for ids in side] for side in sides]
        return list(zip(*cut, strict=True))

    report("reading")
    pairs = encoded(files.train, sizes.pairs)
    if not any(len(one) and len(other) for one, other in pairs):
        raise UserError("the training text has no tokens", place=str(files.train[0]))
    report("counting")
    source, target = (schema.vocabularies[name] for name in (SOURCE, TARGET))
    likely = translations(pairs, source, target, sizes.best, report)
    if given is written or given.model == written.model:  # names and numbers are their own translations
        likely = [np.concatenate([[token], row[row != token]]).astype(np.int32) for token, row in enumerate(likely)]
    counts = np.bincount(np.concatenate([other for _, other in pairs]), minlength=target)
    frequent = np.argsort(-counts, kind="stable")[: sizes.common]
    common = np.union1d(frequent[counts[frequent] > 0], written.special.end).astype(np.int32)
    found = Shortlist(common, padded(likely, sizes.best + 1))
    return found, coverage_of(found, encoded(files.valid, sizes.pairs), target)


def coverage_of(shortlist: Shortlist, pairs: Sequence[Pair], vocabulary: int) -> Coverage:
    """The coverage of sentences by their lists."""
    listed, tokens, sizes = 0, 0, list[int]()
    for source, target in pairs:
        allowed = shortlist.allowed(source, (), vocabulary)
        listed, tokens = listed + int(allowed[target].sum()), tokens + len(target)
        sizes.append(int(allowed.sum()))
    return Coverage(listed, tokens, float(np.mean(sizes)))


def translations(
    pairs: Sequence[Pair], source: int, target: int, best: int, report: Callable[[str], None] = lambda _: None
) -> list[NDArray[np.int32]]:
    """The `best` likeliest target tokens of each source token, likeliest first, from sentence pairs of token ids.

    `source` and `target` are the sizes of the vocabularies. Target tokens may also come from no source token.
    """
    keys = np.zeros(0, np.int64)
    for part in _parts(pairs, source):
        keys = np.union1d(keys, part.keys(target))
    given = keys // target
    table = np.full(len(keys), 1.0 / target)
    for iteration in range(ITERATIONS):
        report(f"counting, {iteration + 1} of {ITERATIONS}")
        counts = np.zeros(len(keys))
        for part in _parts(pairs, source):
            place = np.searchsorted(keys, part.keys(target))
            chance = table[place]
            starts = np.cumsum(part.sizes) - part.sizes
            chance /= np.repeat(np.add.reduceat(chance, starts), part.sizes)
            counts += np.bincount(place, weights=chance, minlength=len(keys))
        table = counts / np.bincount(given, weights=counts, minlength=source + 1)[given]
    order = np.lexsort((-table, given))
    kept = order[table[order] >= LEAST]
    bounds = np.searchsorted(given[kept], np.arange(source + 1))
    written = (keys % target)[kept]
    return [written[first : min(last, first + best)].astype(np.int32) for first, last in pairwise(bounds)]


@dataclass(frozen=True)
class _Part:
    """Some target tokens, each with all source tokens of its sentence, `sizes` of them, and that of none."""

    sources: Ids
    targets: Ids
    sizes: Ids

    def keys(self, target: int) -> Ids:
        """A number for each pair of tokens."""
        return self.sources * target + self.targets


def _parts(pairs: Sequence[Pair], source: int) -> Iterator[_Part]:
    """The pairs of tokens, at most about CELLS at once."""
    held: list[list[Ids]] = [[], [], []]
    cells = 0
    for given, written in pairs:
        own = np.append(given, source)
        held[0].append(np.tile(own, len(written)))
        held[1].append(np.repeat(written, len(own)))
        held[2].append(np.full(len(written), len(own)))
        cells += len(own) * len(written)
        if cells >= CELLS:
            yield _Part(*map(np.concatenate, held))
            held = [[], [], []]
            cells = 0
    if cells:
        yield _Part(*map(np.concatenate, held))
