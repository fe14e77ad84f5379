"""Converts text to token ids and back with the files of the engine's vocabularies."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Protocol, cast

from xformc.errors import UserError
from xformc.format.manifest import TOKENIZER_BYTES, Manifest
from xformc.format.tokens import SPECIAL, SpecialTokens
from xformc.runtime.text.words import Words


class Vocabulary(Protocol):
    """The pieces of text that have ids."""

    @property
    def special(self) -> SpecialTokens:
        """The special tokens of the engine."""
        ...

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without special tokens. Raises: UnicodeError if it has a lone surrogate."""
        ...

    def surround(self, ids: list[int]) -> list[int]:
        """Return the ids of a text as a model reads them: with the special tokens around them."""
        ...

    def words(self, text: str) -> list[Words]:
        """Return the words of the text that each of the ids of `surround(encode(text))` is part of."""
        ...

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return the piece of each id, "" for one that has none."""
        ...

    def decode(self, ids: list[int]) -> str:
        """Return the text of ids that are not special."""
        ...

    def spelling(self) -> list[bytes]:
        """Return the bytes of each id, b"" for one without text. Raises: UserError if a text is not their sequence."""
        ...

    @property
    def strips(self) -> bool:
        """Whether a text loses the space that its first piece begins with."""
        ...


@dataclass(frozen=True)
class Tokenizer:
    """The vocabulary of each input of tokens, and of each result that has its own.

    A character outside a vocabulary becomes the unknown token. An unknown token in an output is left out of the text,
    but not of the tokens.
    """

    vocabularies: Mapping[str, Vocabulary]

    def encode(self, name: str, text: str) -> list[int]:
        """Return the ids of a text of the input `name`, with its special tokens; an empty text has only these.

        Raises: UnicodeError if the text has a lone surrogate.
        """
        vocabulary = self.vocabularies[name]
        return vocabulary.surround(vocabulary.encode(text))

    def encode_alone(self, name: str, text: str) -> list[int]:
        """Return the ids of a text that a language model writes, with its end token, and nothing before it.

        The begin token, which a template may put there, is what a model reads first. Raises: UnicodeError as `encode`.
        """
        vocabulary = self.vocabularies[name]
        return [*vocabulary.encode(text), vocabulary.special.last]

    def encode_open(self, name: str, text: str) -> list[int]:
        """Return the ids of a text that may go on: without special tokens. Raises: UnicodeError as `encode`."""
        return self.vocabularies[name].encode(text)

    def after(self, name: str) -> list[int]:
        """Return the special tokens after a text of the input `name`."""
        return [*self.vocabularies[name].special.after]

    def encode_words(self, name: str, text: str) -> list[int]:
        """Return one id for each word between spaces, without an end token; a word of several pieces is unknown.

        Raises: UnicodeError if the text has a lone surrogate.
        """
        vocabulary = self.vocabularies[name]
        pieces = [vocabulary.encode(word) for word in text.split()]
        return [ids[0] if len(ids) == 1 else cast(int, vocabulary.special.unknown) for ids in pieces]

    def words(self, name: str, text: str) -> list[Words]:
        """Return the words of a text of the input `name` that each of its ids is part of, as `encode` returns them."""
        return self.vocabularies[name].words(text)

    def pieces(self, name: str, ids: Sequence[int]) -> list[str]:
        """Return the piece of each id in the vocabulary of `name`, as its file has them."""
        return self.vocabularies[name].pieces(ids)

    def decode(self, name: str, ids: Sequence[int]) -> str:
        """Return the text of ids without special tokens; an unknown token leaves one of the spaces around it.

        So the text of more ids begins with that of these, but for a space at its end.
        """
        vocabulary, special = self.vocabularies[name], self.vocabularies[name].special
        hidden = frozenset(special.ids)
        known = [one for one in ids if one not in hidden]
        text = vocabulary.decode(known)
        if special.unknown in ids:
            before = accumulate((one not in hidden for one in ids), initial=0)
            places = {count for count, one in zip(before, ids, strict=False) if one == special.unknown}
            for count in sorted(places, reverse=True):
                at = len(vocabulary.decode(known[:count]))
                if text[at - 1 : at] == " " and text[at : at + 1] in ("", " "):
                    text = text[: at - 1] + text[at:]
        return text


def load_tokenizer(directory: Path, manifest: Manifest) -> Tokenizer | None:
    """Return the engine's tokenizer, or None if no input or result has one.

    Raises: UserError for a file that cannot be read, or that does not fit the engine's vocabulary.
    """
    if not manifest.tokenizers:
        return None
    loaded: dict[tuple[str, int, SpecialTokens], Vocabulary] = {}
    vocabularies: dict[str, Vocabulary] = {}
    for name, file in manifest.tokenizers.items():
        key = (file, manifest.results[name].width if name in manifest.results else 0, SPECIAL)
        if name in manifest.inputs:
            key = (file, manifest.inputs[name].pieces, manifest.inputs[name].special)
        if key not in loaded:
            loaded[key] = open_vocabulary(directory / file, *key[1:])
        vocabularies[name] = loaded[key]
    return Tokenizer(vocabularies)


def open_vocabulary(path: Path, size: int, special: SpecialTokens) -> Vocabulary:
    """Open the file of a vocabulary of this size: a SentencePiece model, or a tokenizer.json.

    Raises: UserError for a file that cannot be read, or that does not fit.
    """
    if path.stat().st_size > TOKENIZER_BYTES:
        raise UserError(f"larger than {TOKENIZER_BYTES:,} bytes", place=str(path))
    if path.suffix == ".json":
        from xformc.runtime.text.json_vocabulary import JsonVocabulary  # noqa: PLC0415 (many engines do not need it)

        return JsonVocabulary(path, size, special)
    from xformc.runtime.text.sentencepiece_vocabulary import SentencePieceVocabulary  # noqa: PLC0415 (it takes 4 MB)

    return SentencePieceVocabulary(path, size, special)
