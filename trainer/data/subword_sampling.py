"""Draws the tokens of each text anew in each epoch: BPE dropout, and sampled segmentations of unigram models.

SentencePiece draws from a generator that differs from process to process, whatever its seed. Here a seed is enough.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import chain, pairwise
from random import Random
from typing import Any

import numpy as np
from sentencepiece import sentencepiece_model_pb2

from xformc.errors import UserError
from xformc.trainer.data.vocabulary import SUFFIXES, Tokenizer, Vocabulary

VARIANTS = 64
"""The segmentations of a word that are drawn at once, at most; each of its occurrences takes one of them."""

SPACE = "\u2581"
"""What a piece at the beginning of a word begins with."""

Ids = list[int]
Split = Callable[[str, int, Random], list[list[str]]]
"""Draws so many segmentations of a word."""


class Subwords:
    """The segmentations of words by a SentencePiece model.

    rate: of a bpe model, the probability that a merge is left out (Provilkov et al. 2020); of a unigram model, the
    exponent of the segmentations' probabilities (Kudo 2018, section 3.2).
    """

    def __init__(self, model: bytes, rate: float) -> None:
        format: Any = sentencepiece_model_pb2
        parsed: Any = format.ModelProto.FromString(model)
        normal: list[bool] = [piece.type == format.ModelProto.SentencePiece.NORMAL for piece in parsed.pieces]
        self._pieces: list[str] = [piece.piece for piece in parsed.pieces]
        self._ids = {piece: number for number, piece in enumerate(self._pieces) if normal[number]}
        self._scores: dict[str, float] = {piece: parsed.pieces[number].score for piece, number in self._ids.items()}
        self._longest = max(map(len, self._pieces))
        self._whole = ~np.array(normal)
        self._begins = self._whole | np.array([piece.startswith(SPACE) for piece in self._pieces])
        kinds: dict[Any, Split] = {format.TrainerSpec.BPE: self._merged, format.TrainerSpec.UNIGRAM: self._weighted}
        self._split = kinds.get(parsed.trainer_spec.model_type)
        self._rate = rate

    def redraw(self, rows: Sequence[Sequence[int]], seed: Sequence[int]) -> list[Ids]:
        """The rows with drawn segmentations of their words; the same rows and seed give the same ones.

        A word is what stands between spaces, and tokens that are no ordinary pieces, such as symbols.
        """
        ids, ends = np.fromiter(chain.from_iterable(rows), np.int64), np.cumsum(list(map(len, rows)))
        if self._split is None or not len(ids):
            return [list(row) for row in rows]
        begins = np.append(self._begins[ids], True)
        begins[1:] |= self._whole[ids]
        begins[[0, *ends]] = True
        edges = np.flatnonzero(begins)
        words = [ids[first:last].tobytes() for first, last in pairwise(edges.tolist())]
        known = {word: number for number, word in enumerate(dict.fromkeys(words))}
        which = np.fromiter(map(known.__getitem__, words), np.int64, len(words))
        counts = np.bincount(which).clip(max=VARIANTS)
        random = np.random.default_rng(list(seed))
        draw = Random(int(random.integers(1 << 62)))
        variants: list[list[Ids]] = [
            self._drawn(np.frombuffer(word, np.int64).tolist(), count, draw)
            for word, count in zip(known, counts.tolist(), strict=True)
        ]
        chosen = (random.random(len(words)) * counts[which]).astype(np.int64)
        drawn: list[Ids] = [
            variants[word][choice] for word, choice in zip(which.tolist(), chosen.tolist(), strict=True)
        ]
        bounds = [0, *np.searchsorted(edges, ends).tolist()]
        return [list(chain.from_iterable(drawn[first:last])) for first, last in pairwise(bounds)]

    def _drawn(self, ids: Ids, count: int, draw: Random) -> list[Ids]:
        """So many segmentations of a word; its own if that is not made of ordinary pieces."""
        if self._whole[ids].any() or self._split is None:
            return [ids] * count
        found = self._split("".join(self._pieces[number] for number in ids), count, draw)
        return [
            ids if any(part not in self._ids for part in one) else [self._ids[part] for part in one] for one in found
        ]

    def _merged(self, word: str, count: int, draw: Random) -> list[list[str]]:
        """Merges of the best scores first, each of which is left out at the rate."""
        first = [(-self._scores[a + b], at, a + b) for at, (a, b) in enumerate(pairwise(word)) if a + b in self._scores]
        heapify(first)
        return [self._merged_once(word, list(first), draw) for _ in range(count)]

    def _merged_once(self, word: str, merges: list[tuple[float, int, str]], draw: Random) -> list[str]:
        parts, end = list(word), len(word)
        following, before = list(range(1, end + 1)), list(range(-1, end))
        while merges:
            _, at, merged = heappop(merges)
            other = following[at]
            if other == end or not parts[at] or parts[at] + parts[other] != merged or draw.random() < self._rate:
                continue
            parts[at], parts[other] = merged, ""
            following[at] = after = following[other]
            before[after] = at
            for left, right in ((before[at], at), (at, after)):
                if left >= 0 and right < end and (score := self._scores.get(parts[left] + parts[right])) is not None:
                    heappush(merges, (-score, left, parts[left] + parts[right]))
        return [part for part in parts if part]

    def _weighted(self, word: str, count: int, draw: Random) -> list[list[str]]:
        """Segmentations by their probabilities to the power of the rate: forward sums, and draws from the end on."""
        sums, edges = [0.0], list[list[tuple[int, float]]]([[]])
        for end in range(1, len(word) + 1):
            starts = range(max(0, end - self._longest), end)
            scores = ((start, self._scores.get(word[start:end])) for start in starts)
            edges.append([(start, sums[start] + self._rate * score) for start, score in scores if score is not None])
            best = max((weight for _, weight in edges[end]), default=-math.inf)
            rest = sum(math.exp(weight - best) for _, weight in edges[end]) if best > -math.inf else 1.0
            sums.append(best + math.log(rest))
        if sums[-1] == -math.inf:
            return [[word]] * count
        return [_from_the_end(word, edges, draw) for _ in range(count)]


def _from_the_end(word: str, edges: Sequence[Sequence[tuple[int, float]]], draw: Random) -> list[str]:
    """A segmentation whose pieces are drawn by the weights of the edges that end where the last one began."""
    parts, end = list[str](), len(word)
    while end:
        best = max(weight for _, weight in edges[end])
        weights = [math.exp(weight - best) for _, weight in edges[end]]
        ((start, _),) = draw.choices(edges[end], weights)
        parts.append(word[start:end])
        end = start
    return parts[::-1]


@dataclass(frozen=True)
class SampledVocabulary(Vocabulary):
    """A vocabulary whose segmentations are drawn at the `rate` of `Subwords`, in the same way from the same `seed`."""

    rate: float = 0.0
    seed: tuple[int, ...] = ()

    def encode(self, sentences: Sequence[str]) -> list[list[int]]:
        """Return drawn ids of each sentence, without begin and end tokens."""
        return Subwords(self.model, self.rate).redraw(super().encode(sentences), self.seed)


def sampled(known: Vocabulary, rate: float, seed: tuple[int, ...]) -> SampledVocabulary:
    """The vocabulary with drawn segmentations."""
    return SampledVocabulary(known.model, known.special, known.suffix, rate, seed)


def check_sampled(tokenizer: Tokenizer, place: str) -> None:
    """Raises: UserError if a vocabulary has one segmentation of a text only."""
    if any(known.suffix != SUFFIXES[0] for known in tokenizer.vocabularies.values()):
        setting = "train.tokenizer.sampling"
        raise UserError(f"{setting} needs SentencePiece models", place=place, hint=f"remove {setting} from the spec")
