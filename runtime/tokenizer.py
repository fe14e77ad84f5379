"""Converts text to token ids and back with the engine's SentencePiece models, which also apply Unicode's NFKC."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from xformc.errors import UserError
from xformc.format.manifest import TOKENIZER_BYTES, Manifest
from xformc.format.tokens import SPECIAL, SpecialTokens


@dataclass(frozen=True)
class Tokenizer:
    """The vocabulary of each input of tokens, and of each result that has its own.

    A character outside a vocabulary becomes the unknown token. An unknown token in an output is left out of the text,
    but not of the tokens.
    """

    vocabularies: "Mapping[str, _Vocabulary]"

    def encode(self, name: str, text: str) -> list[int]:
        """Return the ids of a text of the input `name`, with the end token; an empty text has only the end token.

        Raises: UnicodeError if the text has a lone surrogate.
        """
        return [*self.encode_open(name, text), *self.after(name)]

    def encode_open(self, name: str, text: str) -> list[int]:
        """Return the ids of a text that may go on: without the end token. Raises: UnicodeError as `encode`."""
        return self.vocabularies[name].encode(text)

    def after(self, name: str) -> list[int]:
        """Return the special tokens after a text of the input `name`."""
        return [self.vocabularies[name].special.last]

    def encode_words(self, name: str, text: str) -> list[int]:
        """Return one id for each word between spaces, without an end token; a word of several pieces is unknown.

        Raises: UnicodeError if the text has a lone surrogate.
        """
        vocabulary = self.vocabularies[name]
        pieces = [vocabulary.encode(word) for word in text.split()]
        return [ids[0] if len(ids) == 1 else cast(int, vocabulary.special.unknown) for ids in pieces]

    def pieces(self, name: str, ids: Sequence[int]) -> list[str]:
        """Return the piece of each id in the vocabulary of `name`: ▁ is a space; <unk>, <s> and </s> are special."""
        return self.vocabularies[name].pieces(ids)

    def decode(self, name: str, ids: Sequence[int]) -> str:
        """Return the text of ids without special tokens; an unknown token leaves no double space."""
        vocabulary = self.vocabularies[name]
        special = set(vocabulary.special.ids)
        text = vocabulary.decode([one for one in ids if one not in special])
        return " ".join(text.split()) if vocabulary.special.unknown in ids else text


def load_tokenizer(directory: Path, manifest: Manifest) -> Tokenizer | None:
    """Return the engine's tokenizer, or None if no input or result has one.

    Raises: UserError for a model that SentencePiece cannot read or that has more pieces than the engine's vocabulary.
    """
    if not manifest.tokenizers:
        return None
    loaded: dict[tuple[str, int, SpecialTokens], _Vocabulary] = {}
    vocabularies: dict[str, _Vocabulary] = {}
    for name, file in manifest.tokenizers.items():
        key = (file, manifest.results[name].width if name in manifest.results else 0, SPECIAL)
        if name in manifest.inputs:
            key = (file, manifest.inputs[name].pieces, manifest.inputs[name].special)
        if key not in loaded:
            loaded[key] = _Vocabulary(directory / file, *key[1:])
        vocabularies[name] = loaded[key]
    return Tokenizer(vocabularies)


def check_tokenizer(path: Path, size: int, special: SpecialTokens) -> None:
    """Open the tokenizer of a vocabulary of this size. Raises: UserError as `load_tokenizer`."""
    _Vocabulary(path, size, special)


class _Vocabulary:
    """One SentencePiece model, checked, with types that the library lacks."""

    def __init__(self, path: Path, size: int, special: SpecialTokens) -> None:
        if path.stat().st_size > TOKENIZER_BYTES:
            raise UserError(f"larger than {TOKENIZER_BYTES:,} bytes", place=str(path))
        import sentencepiece  # noqa: PLC0415 (it takes 4 MB, and many engines do not need it)

        self._processor = cast(Any, sentencepiece.SentencePieceProcessor())
        try:
            self._processor.LoadFromSerializedProto(path.read_bytes())
        except RuntimeError as error:
            raise UserError("not a SentencePiece model", place=str(path), hint=_REBUILD) from error
        found = int(self._processor.GetPieceSize())
        if found > size:
            raise UserError(f"has {found:,} pieces; the engine's vocabulary {size:,}", place=str(path), hint=_REBUILD)
        self._size, self.special = found, special
        self._check_special(str(path))

    def _check_special(self, place: str) -> None:
        """Check that the model's special tokens are those of the engine. A foreign model may lack padding and the end
        token, and what it begins texts with does not matter: the engine's begin token is what its decoder reads first.
        """
        found = [getattr(self._processor, name)() for name in ("pad_id", "unk_id", "bos_id", "eos_id")]
        special, pad, unknown, end = self.special, *(found[place] for place in (0, 1, 3))
        wanted = [-1 if one is None else one for one in (special.pad, special.unknown, special.begin)] + [*special.end]
        foreign = pad in (-1, special.pad) and unknown == special.unknown and end in (-1, *special.end)
        if found != wanted and (special == SPECIAL or not foreign):
            raise UserError(
                f"has the special tokens {found} (pad, unknown, begin, end), not {wanted}", place=place, hint=_REBUILD
            )

    def encode(self, text: str) -> list[int]:
        text.encode()  # raises UnicodeError for a lone surrogate; SentencePiece would not
        return cast(list[int], self._processor.EncodeAsIds(text))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [str(self._processor.IdToPiece(one)) if one < self._size else "" for one in ids]

    def decode(self, ids: list[int]) -> str:
        known = [identifier for identifier in ids if identifier < self._size]
        return cast(str, self._processor.DecodeIds(known))


_REBUILD = "train the vocabulary with `xformc train`, and build the engine from that run"
