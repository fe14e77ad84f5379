"""Trains, saves and loads SentencePiece vocabularies, and encodes text with them."""

import hashlib
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import sentencepiece

from xformc.errors import UserError
from xformc.files import atomic_write
from xformc.format.names import TOKENIZER
from xformc.format.tokens import BEGIN, END, PAD, SPECIAL, UNKNOWN, SpecialTokens
from xformc.runtime.text.lines import LINE_BYTES
from xformc.trainer.data.byte_vocabulary import byte_model

Kind = Literal["bpe", "unigram", "word", "char", "byte"]
SUFFIXES = (".model", ".json")
"""The files of vocabularies: SentencePiece models, or those of the library tokenizers."""

WHOLE_VOCABULARY = ("word", "char", "byte")
"""The kinds whose pieces follow from the text or are the same for all, so that they may be fewer than the spec says."""


@dataclass(frozen=True)
class Vocabulary:
    """A trained SentencePiece model: `model` is the file's bytes, `special` its special tokens."""

    model: bytes
    special: SpecialTokens = SPECIAL
    suffix: str = ".model"

    def __len__(self) -> int:
        """The number of pieces, the four special ones included."""
        return self.processor().get_piece_size()

    @property
    def around(self) -> tuple[Sequence[int], Sequence[int]]:
        """The tokens before and after a text that a model reads."""
        return (), (self.special.last,)

    def encode(self, sentences: Sequence[str]) -> list[list[int]]:
        """Return the ids of each sentence, without begin and end tokens."""
        pieces: list[list[int]] = self.processor().encode(list(sentences), out_type=int)
        return pieces

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Return the text of each row of ids, which has no begin and end tokens."""
        texts: list[str] = self.processor().decode([list(ids) for ids in rows])
        return texts

    def encode_words(self, sentences: Sequence[str]) -> list[list[int]]:
        """Return one id for each word between spaces; a word that is not one piece of the vocabulary is unknown.

        SentencePiece itself would merge neighbouring unknown words into one piece.
        """
        words = sorted({word for sentence in sentences for word in sentence.split()})
        unknown = self.special.fill if self.special.unknown is None else self.special.unknown
        known = {
            word: ids[0] if len(ids) == 1 else unknown for word, ids in zip(words, self.encode(words), strict=True)
        }
        return [[known[word] for word in sentence.split()] for sentence in sentences]

    def processor(self) -> sentencepiece.SentencePieceProcessor:
        """Return SentencePiece's own object."""
        return sentencepiece.SentencePieceProcessor.from_proto(self.model)


@dataclass(frozen=True)
class Tokenizer:
    """The vocabulary of each input of tokens; the same object for all if they share one."""

    vocabularies: Mapping[str, Vocabulary]

    def files(self) -> dict[str, str]:
        """Return the file name in the run of each input."""
        shared = len({id(vocabulary) for vocabulary in self.vocabularies.values()}) == 1
        names = tokenizer_files(tuple(self.vocabularies), shared=shared)
        return {name: str(Path(file).with_suffix(self.vocabularies[name].suffix)) for name, file in names.items()}


def tokenizer_files(inputs: Sequence[str], *, shared: bool) -> dict[str, str]:
    """Return the file name of each input of tokens: `tokenizer.model` for one vocabulary, else `INPUT.model`."""
    one = shared or len(inputs) == 1
    return {name: TOKENIZER if one else f"{name}.model" for name in inputs}


def train_tokenizer(
    texts: Mapping[str, Sequence[str]],
    sizes: Mapping[str, int],
    *,
    kind: Kind,
    shared: bool,
    symbols: Sequence[str] = (),
) -> Tokenizer:
    """Train the vocabularies on the texts of each input; the same text gives the same bytes.

    `sizes` is the number of pieces of each input's vocabulary, the four special ones included. `symbols` are pieces of
    their own, wherever they stand in a text.

    Raises: UserError if the text has too few or too many distinct pieces for a size, or if the sizes of a shared
    vocabulary differ.
    """
    if not shared or len(texts) == 1:
        return Tokenizer(
            {
                name: train_vocabulary(text, sizes[name], kind=kind, of=name, symbols=symbols)
                for name, text in texts.items()
            }
        )
    size, found = sizes[next(iter(texts))], " and ".join(str(sizes[name]) for name in texts)
    if any(sizes[name] != size for name in texts):
        raise UserError(
            f"a shared tokenizer has one size, but the inputs' vocabularies have {found}",
            hint="make them equal, or set train.tokenizer.shared: false",
        )
    sentences = [sentence for text in texts.values() for sentence in text]
    return Tokenizer(dict.fromkeys(texts, train_vocabulary(sentences, size, kind=kind, of="shared", symbols=symbols)))


def train_vocabulary(
    sentences: Sequence[str], size: int, *, kind: Kind, of: str, symbols: Sequence[str] = ()
) -> Vocabulary:
    """Train one SentencePiece model of `size` pieces, or at most `size` for WHOLE_VOCABULARY; see `train_tokenizer`."""
    if kind == "byte":
        return Vocabulary(byte_model(size, symbols))
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sentences),
            model_writer=model,
            model_type=kind,
            vocab_size=size,
            hard_vocab_limit=kind not in WHOLE_VOCABULARY,
            max_sentence_length=LINE_BYTES,  # SentencePiece would silently drop longer ones
            character_coverage=1.0,
            user_defined_symbols=list(symbols),
            pad_id=PAD,
            unk_id=UNKNOWN,
            bos_id=BEGIN,
            eos_id=END,
            num_threads=1,  # with more, unigram's sums and pieces depend on the machine
            minloglevel=2,
        )
    except RuntimeError as error:
        raise _explain(str(error), size, of) from error
    return Vocabulary(model.getvalue())


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Write the models under their file names in a run."""
    for name, file in tokenizer.files().items():
        with atomic_write(folder / file) as temporary:
            temporary.write_bytes(tokenizer.vocabularies[name].model)


def load_tokenizer(
    folder: Path, sizes: Mapping[str, int], *, kind: Kind, shared: bool, exact: bool = True
) -> Tokenizer:
    """Read the tokenizer that `save_tokenizer` wrote for the inputs in `sizes`; if not `exact`, it may be smaller.

    Raises: UserError for a missing or damaged model, or one of another size.
    """
    files = tokenizer_files(tuple(sizes), shared=shared)
    exact = exact and kind not in WHOLE_VOCABULARY
    loaded = {file: _load_vocabulary(folder / file, sizes[name], exact=exact) for name, file in files.items()}
    return Tokenizer({name: loaded[file] for name, file in files.items()})


def hash_vocabulary(vocabulary: Vocabulary) -> str:
    """The SHA-256 of a vocabulary's file."""
    return hashlib.sha256(vocabulary.model).hexdigest()


def vocabulary_at(path: Path, size: int) -> Vocabulary:
    """Read a model of at most `size` pieces. Raises: UserError as `load_tokenizer`."""
    return _load_vocabulary(path, size, exact=False)


def _load_vocabulary(path: Path, size: int, *, exact: bool) -> Vocabulary:
    try:
        vocabulary = Vocabulary(path.read_bytes())
        found = len(vocabulary)
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror or error}", place=str(path)) from error
    except RuntimeError as error:
        raise UserError("not a SentencePiece model", place=str(path)) from error
    if found > size or (exact and found != size):
        raise UserError(f"has {found} pieces; the spec's vocabulary is {size}", place=str(path))
    return vocabulary


def _explain(reason: str, size: int, of: str) -> UserError:
    too_few = re.search(r"set it to a value <= (\d+)", reason)
    if too_few:
        return UserError(
            f"the text is too small for a {of} vocabulary of {size} pieces: it allows at most {too_few[1]}",
            hint=f"set vocabulary to {too_few[1]} or less, or train on more text",
        )
    too_many = re.search(r"required_chars\. \d+ vs (\d+)", reason)
    if too_many:
        return UserError(
            f"the {of} vocabulary has {size} pieces, but the text's characters alone need {too_many[1]}",
            hint=f"set vocabulary to more than {too_many[1]}, or remove rare characters from the text",
        )
    return UserError(f"SentencePiece cannot train a {of} vocabulary of {size} pieces: {reason}")
