"""Draws the tokens of each text anew in each epoch: BPE dropout, and sampled segmentations of unigram models."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import sentencepiece

from xformc.errors import UserError
from xformc.trainer.data.vocabulary import SUFFIXES, Tokenizer, Vocabulary

LINES = 1024
"""The lines that are drawn from one seed."""


@dataclass(frozen=True)
class SampledVocabulary(Vocabulary):
    """A vocabulary whose segmentations are drawn, in the same way from the same `seed`.

    rate: of a bpe model, the probability that a merge is left out (Provilkov et al. 2020); of a unigram model, the
    exponent of the segmentations' probabilities (Kudo 2018, section 3.2).
    """

    rate: float = 0.0
    seed: tuple[int, ...] = ()

    def encode(self, sentences: Sequence[str]) -> list[list[int]]:
        """Return drawn ids of each sentence, without begin and end tokens.

        SentencePiece draws from a generator of the thread, which is seeded when the thread begins; each call begins
        one.
        """
        processor, found = self.processor(), list[list[int]]()
        for start in range(0, len(sentences), LINES):
            drawn = int(np.random.SeedSequence([*self.seed, start]).generate_state(1)[0])
            sentencepiece.set_random_generator_seed(drawn)  # pyright: ignore[reportUnknownMemberType]
            lines = list(sentences[start : start + LINES])
            found += processor.encode(
                lines, out_type=int, enable_sampling=True, alpha=self.rate, nbest_size=-1, num_threads=1
            )
        return found


def sampled(known: Vocabulary, rate: float, seed: tuple[int, ...]) -> SampledVocabulary:
    """The vocabulary with drawn segmentations."""
    return SampledVocabulary(known.model, known.special, known.suffix, rate, seed)


def check_sampled(tokenizer: Tokenizer, place: str) -> None:
    """Raises: UserError if a vocabulary has one segmentation of a text only."""
    if any(known.suffix != SUFFIXES[0] for known in tokenizer.vocabularies.values()):
        setting = "train.tokenizer.sampling"
        raise UserError(f"{setting} needs SentencePiece models", place=place, hint=f"remove {setting} from the spec")
