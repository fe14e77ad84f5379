"""Draws the tokens of each text anew in each epoch: BPE dropout, and sampled segmentations of unigram models."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import sentencepiece

from xformc.errors import UserError
from xformc.trainer.data.batches import Batch, Examples
from xformc.trainer.data.data_schema import DataSchema
from xformc.trainer.data.text_examples import encode_texts
from xformc.trainer.data.text_files import Texts
from xformc.trainer.data.vocabulary import Tokenizer, Vocabulary

LINES = 1024
"""The lines that are drawn from one seed."""


@dataclass(frozen=True)
class SampledTexts:
    """The texts of a split; each epoch is one window, with segmentations of its own.

    rate: of a bpe model, the probability that a merge is left out (Provilkov et al. 2020); of a unigram model, the
    exponent of the segmentations' probabilities (Kudo 2018, section 3.2). usual: the texts as engines read them.
    """

    texts: Texts
    schema: DataSchema
    tokenizer: Tokenizer
    rate: float
    usual: Examples

    def __len__(self) -> int:
        """The number of examples, as engines read them."""
        return len(self.usual)

    def sample(self) -> Batch:
        """A batch of one example."""
        return self.usual.sample()

    def windows(self, seed: int, epoch: int, first: int = 0) -> Iterator[tuple[int, Examples]]:
        """Yield the only window of an epoch. Raises: UserError if all its examples are too long."""
        if first:
            return
        vocabularies = {
            name: SampledVocabulary(known.model, known.special, known.suffix, self.rate, (seed, epoch, index))
            for index, (name, known) in enumerate(self.tokenizer.vocabularies.items())
        }
        examples = encode_texts(self.texts, self.schema, replace(self.tokenizer, vocabularies=vocabularies), ())
        if not len(examples):
            hint = "lower train.tokenizer.sampling, or raise train.max_length"
            raise UserError(f"every example of epoch {epoch + 1} is too long", place=str(self.texts.path), hint=hint)
        yield 0, examples


@dataclass(frozen=True)
class SampledVocabulary(Vocabulary):
    """A vocabulary whose segmentations are drawn, in the same way from the same `seed`."""

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
