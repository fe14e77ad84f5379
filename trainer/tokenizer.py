"""SentencePiece vocabularies: trained on the corpus, kept in the run, and used to make text token ids."""

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import sentencepiece

from xformc.errors import UserError
from xformc.files import atomic_write
from xformc.tokens import BEGIN, END, PAD, UNKNOWN

Kind = Literal["bpe", "unigram"]


@dataclass(frozen=True)
class Vocabulary:
    """A trained SentencePiece model: `model` is the file's bytes."""

    model: bytes

    def __len__(self) -> int:
        """How many pieces, the four special ones included."""
        return self.processor().get_piece_size()

    def encode(self, sentences: Sequence[str]) -> list[list[int]]:
        """The pieces of each sentence, without begin and end."""
        pieces: list[list[int]] = self.processor().encode(list(sentences), out_type=int)
        return pieces

    def processor(self) -> sentencepiece.SentencePieceProcessor:
        """SentencePiece's own object."""
        return sentencepiece.SentencePieceProcessor.from_proto(self.model)


@dataclass(frozen=True)
class Tokenizer:
    """The vocabularies of both languages; the same object twice where they share one."""

    source: Vocabulary
    target: Vocabulary

    @property
    def shared(self) -> bool:
        """Whether one vocabulary serves both languages."""
        return self.source is self.target

    def files(self) -> dict[str, str]:
        """Language side -> file name in the run."""
        return tokenizer_files(shared=self.shared)


def tokenizer_files(*, shared: bool) -> dict[str, str]:
    """Language side -> file name in a run."""
    if shared:
        return {"source": "tokenizer.model", "target": "tokenizer.model"}
    return {"source": "source.model", "target": "target.model"}


def train_tokenizer(
    sources: Sequence[str], targets: Sequence[str], sizes: tuple[int, int], *, kind: Kind, shared: bool
) -> Tokenizer:
    """Train the vocabularies: the same text gives the same bytes.

    `sizes` are the numbers of pieces of source and target, the four special ones included.

    Raises: UserError if the text has too few or too many distinct pieces for a size, or if a shared
    vocabulary is asked to have two sizes.
    """
    if not shared:
        return Tokenizer(
            train_vocabulary(sources, sizes[0], kind=kind, side="source"),
            train_vocabulary(targets, sizes[1], kind=kind, side="target"),
        )
    if sizes[0] != sizes[1]:
        raise UserError(
            f"a shared tokenizer has one size, but the inputs' vocabularies have {sizes[0]} and {sizes[1]}",
            hint="make them equal, or say train.tokenizer.shared: false",
        )
    vocabulary = train_vocabulary([*sources, *targets], sizes[0], kind=kind, side="shared")
    return Tokenizer(vocabulary, vocabulary)


def train_vocabulary(sentences: Sequence[str], size: int, *, kind: Kind, side: str) -> Vocabulary:
    """Train one SentencePiece model of exactly `size` pieces; see `train_tokenizer`."""
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sentences),
            model_writer=model,
            model_type=kind,
            vocab_size=size,
            character_coverage=1.0,
            pad_id=PAD,
            unk_id=UNKNOWN,
            bos_id=BEGIN,
            eos_id=END,
            num_threads=1,  # more would make unigram's sums, and so its pieces, depend on the machine
            minloglevel=2,
        )
    except RuntimeError as error:
        raise _explain(str(error), size, side) from error
    return Vocabulary(model.getvalue())


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Write the models under the names that a run gives them."""
    for side, name in tokenizer.files().items():
        with atomic_write(folder / name) as temporary:
            temporary.write_bytes((tokenizer.source if side == "source" else tokenizer.target).model)


def load_tokenizer(folder: Path, sizes: tuple[int, int], *, shared: bool) -> Tokenizer:
    """Read back what `save_tokenizer` wrote. Raises: UserError for a missing, broken or foreign model."""
    files = tokenizer_files(shared=shared)
    source = _load_vocabulary(folder / files["source"], sizes[0])
    return Tokenizer(source, source if shared else _load_vocabulary(folder / files["target"], sizes[1]))


def _load_vocabulary(path: Path, size: int) -> Vocabulary:
    try:
        vocabulary = Vocabulary(path.read_bytes())
        found = len(vocabulary)
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror or error}", place=str(path)) from error
    except RuntimeError as error:
        raise UserError("not a SentencePiece model", place=str(path)) from error
    if found != size:
        raise UserError(f"has {found} pieces, where the spec's vocabulary is {size}", place=str(path))
    return vocabulary


def _explain(reason: str, size: int, side: str) -> UserError:
    too_few = re.search(r"set it to a value <= (\d+)", reason)
    if too_few:
        return UserError(
            f"the text is too small for a {side} vocabulary of {size} pieces: it gives at most {too_few[1]}",
            hint=f"set vocabulary to {too_few[1]} or less, or train on more text",
        )
    too_many = re.search(r"required_chars\. \d+ vs (\d+)", reason)
    if too_many:
        return UserError(
            f"the {side} vocabulary has {size} pieces, but the text's characters alone are {too_many[1]}",
            hint=f"set vocabulary to more than {too_many[1]}, or clean rare characters out of the text",
        )
    return UserError(f"SentencePiece cannot train a {side} vocabulary of {size} pieces: {reason}")
