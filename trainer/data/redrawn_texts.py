"""Texts whose tokens are drawn anew in each epoch: by noise, and by sampled segmentations."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from xformc.compiler.spec import Spec
from xformc.compiler.spec.model import read_texts
from xformc.compiler.spec.sections import Noise
from xformc.errors import UserError
from xformc.trainer.data.batches import Batch, Examples
from xformc.trainer.data.data_schema import SIMILAR, DataSchema
from xformc.trainer.data.subword_sampling import sampled
from xformc.trainer.data.text_files import Texts
from xformc.trainer.data.text_noise import TextNoise
from xformc.trainer.data.vocabulary import Tokenizer


@dataclass(frozen=True)
class Redraw:
    """What is drawn anew in each epoch: noise in the columns, and segmentations at the rate `sampling`."""

    sampling: float | None = None
    noise: Noise | None = None
    columns: Sequence[str] = ()


KEPT = Redraw()
"""Nothing is drawn anew."""


def redraw_of(spec: Spec, schema: DataSchema) -> Redraw:
    """What the recipe of a spec draws anew."""
    train, read = spec.train, read_texts(spec.inputs, spec.written)
    noisy = tuple(name for name in schema.columns if name.removesuffix(SIMILAR) in read)
    return Redraw(train.tokenizer.sampling, train.noise, noisy if train.noise else ())


@dataclass(frozen=True)
class RedrawnTexts:
    """The texts of a split; each epoch is one window, with noise and segmentations of its own.

    encode: makes examples of texts. usual: the texts as engines read them.
    """

    texts: Texts
    tokenizer: Tokenizer
    redraw: Redraw
    encode: Callable[[Texts, Tokenizer], Examples]
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
        examples = self.encode(self._noisy(seed, epoch), self._sampled(seed, epoch))
        if not len(examples):
            hint = "lower train.tokenizer.sampling or train.noise, or raise train.max_length"
            raise UserError(f"every example of epoch {epoch + 1} is too long", place=str(self.texts.path), hint=hint)
        yield 0, examples

    def _noisy(self, seed: int, epoch: int) -> Texts:
        noise, columns = self.redraw.noise, dict(self.texts.columns)
        if noise is None:
            return self.texts
        for index, name in enumerate(self.redraw.columns):
            columns[name] = TextNoise(noise, seed, epoch, index).lines(columns[name])
        return replace(self.texts, columns=columns)

    def _sampled(self, seed: int, epoch: int) -> Tokenizer:
        rate = self.redraw.sampling
        if rate is None:
            return self.tokenizer
        vocabularies = {
            name: sampled(known, rate, (seed, epoch, index))
            for index, (name, known) in enumerate(self.tokenizer.vocabularies.items())
        }
        return replace(self.tokenizer, vocabularies=vocabularies)
