"""Objectives that make examples of plain text: masked tokens, spans, denoising, and prefixes.

An objective draws its noise once for each of `copies` of the training data, from the seed, the copy and the place of
the text, so that a run resumes to the bit.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from xformc.compiler.spec.sections import Denoise, Masked, Objective, Prefix, Section, Spans
from xformc.format.tokens import END, IGNORE

Ids = list[int]
Random = np.random.Generator
MASK = "<mask>"
"""The token that stands for a hidden one."""

MASKED_SHARE, RANDOM_SHARE = 0.8, 0.1
"""Of the chosen tokens, so many become the mask, and so many a random token; the rest stay (Devlin et al., 2019)."""


@dataclass(frozen=True)
class Noise:
    """What an objective may write: the ids of the mask and of the sentinels, and the first and last ordinary id."""

    mask: int
    sentinels: Sequence[int]
    ordinary: range


@dataclass(frozen=True)
class Draws:
    """How often each text is used, each time with noise of its own, and the seed of all."""

    copies: int
    seed: int


ONCE = Draws(1, 0)
"""The noise of validation data."""


@dataclass(frozen=True)
class Example:
    """One example: what the model reads, and what it writes or, of masked tokens, the label of each position."""

    given: Ids
    wanted: Ids


def symbols(objective: Objective) -> list[str]:
    """The tokens that the vocabulary needs for an objective."""
    if objective.spans is not None:
        return [sentinel(index) for index in range(objective.spans.sentinels)]
    return [] if objective.prefix is not None else [MASK]


def sentinel(index: int) -> str:
    """The token that stands for a span (Raffel et al., 2020)."""
    return f"<extra_id_{index}>"


def copies_of(objective: Objective) -> int:
    """How often each training text is used, each time with noise of its own."""
    section = objective.chosen
    assert isinstance(section, Masked | Spans | Denoise | Prefix)
    return section.copies


def corrupt(objective: Objective, ids: Ids, noise: Noise, random: Random) -> Example | None:
    """Make an example of a text; None if it is too short."""
    section = objective.chosen
    assert section is not None
    return _MAKERS[type(section)](section, ids, noise, random)


def _masked(section: Masked, ids: Ids, noise: Noise, random: Random) -> Example:
    """BERT's masked tokens (Devlin et al., 2019, section 3.1); at least one token of a text is chosen."""
    given, wanted = [*ids, END], [IGNORE] * (len(ids) + 1)
    count = max(1, round(section.rate * len(ids)))
    for index in random.permutation(len(ids))[:count]:
        wanted[index] = ids[index]
        draw = random.random()
        if draw < MASKED_SHARE:
            given[index] = noise.mask
        elif draw < MASKED_SHARE + RANDOM_SHARE:
            given[index] = int(random.integers(noise.ordinary.start, noise.ordinary.stop))
    return Example(given, wanted)


def _spans(section: Spans, ids: Ids, noise: Noise, random: Random) -> Example:
    """T5's span corruption (Raffel et al., 2020, section 3.3): sentinels replace the spans that are written."""
    given, wanted, start = list[int](), list[int](), 0
    for index, (first, last) in enumerate(_chosen_spans(section, ids, random, len(noise.sentinels))):
        given += [*ids[start:first], noise.sentinels[index]]
        wanted += [noise.sentinels[index], *ids[first:last]]
        start = last
    return Example([*given, *ids[start:]], wanted)


def _denoise(section: Denoise, ids: Ids, noise: Noise, random: Random) -> Example:
    """BART's text infilling (Lewis et al., 2020, section 2.2): a mask replaces each span; the whole text is written."""
    given, start = list[int](), 0
    for first, last in _chosen_spans(section, ids, random):
        given += [*ids[start:first], noise.mask]
        start = last
    return Example([*given, *ids[start:]], ids)


def _prefix(section: Prefix, ids: Ids, noise: Noise, random: Random) -> Example | None:
    """A text cut at a random place: the first part is read, the rest is written (prefix language model)."""
    if len(ids) < 2:
        return None
    cut = int(random.integers(1, len(ids)))
    return Example(ids[:cut], ids[cut:])


def _chosen_spans(section: Spans | Denoise, ids: Ids, random: Random, most: int | None = None) -> list[tuple[int, int]]:
    """Spans of random lengths and places that do not touch, in order; at least one. Where there would be more than
    `most`, they are longer."""
    hidden = min(len(ids), max(1, round(section.rate * len(ids))))
    count = min(round(hidden / section.mean_length), len(ids) - hidden + 1)
    count = max(1, count if most is None else min(count, most))
    lengths = _parts(hidden, count, random, least=1)
    gaps = _parts(len(ids) - hidden, count + 1, random, least=0)
    for index in range(1, count):  # spans that touch would be one
        if gaps[index] == 0:
            donor = max(range(count + 1), key=lambda place: gaps[place])
            if gaps[donor] > (donor not in (0, count)):
                gaps[donor], gaps[index] = gaps[donor] - 1, 1
    spans: list[tuple[int, int]] = []
    start = 0
    for gap, length in zip(gaps, lengths, strict=False):
        spans.append((start + gap, start + gap + length))
        start += gap + length
    return spans


def _parts(total: int, count: int, random: Random, *, least: int) -> list[int]:
    """A random division of `total` into `count` parts of at least `least`, all divisions equally likely."""
    free = total - least * count
    cuts = np.sort(random.permutation(free + count - 1)[: count - 1])
    edges = np.concatenate([[-1], cuts, [free + count - 1]])
    return [int(part) - 1 + least for part in np.diff(edges)]


_MAKERS: Mapping[type[Section], Callable[..., Example | None]] = {
    Masked: _masked,
    Spans: _spans,
    Denoise: _denoise,
    Prefix: _prefix,
}
"""How each objective makes an example."""
