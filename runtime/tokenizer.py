"""Text to token ids and back, by the engine's SentencePiece models (which also do Unicode's NFKC)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import sentencepiece

from xformc.errors import UserError
from xformc.runtime.manifest import TOKENIZER_BYTES, Manifest, Tokens


@dataclass(frozen=True)
class Tokenizer:
    """The vocabularies of an engine's two sides.

    A character that the source vocabulary lacks becomes the unknown token. An unknown token in a translation
    stands for nothing that could be written, so it leaves no trace in the text; it is still among the tokens.
    """

    tokens: Tokens
    source: "_Vocabulary"
    target: "_Vocabulary"

    def encode(self, text: str) -> list[int]:
        """The source ids of one sentence, with the end token; only the end token if it has no text.

        Raises: UnicodeError if the text has a lone surrogate.
        """
        return [*self.source.encode(text), self.tokens.end]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of target ids; special tokens leave no trace, not even two spaces around an unknown."""
        special = (self.tokens.pad, self.tokens.unknown, self.tokens.begin, self.tokens.end)
        text = self.target.decode([identifier for identifier in ids if identifier not in special])
        return " ".join(text.split()) if self.tokens.unknown in ids else text


def load_tokenizer(directory: Path, manifest: Manifest) -> Tokenizer | None:
    """The engine's tokenizer, or None if it was built without one.

    Raises: UserError for a model that SentencePiece cannot read, or of more pieces than the engine knows.
    """
    if manifest.source_tokenizer is None or manifest.target_tokenizer is None:
        return None
    source = _Vocabulary(directory / manifest.source_tokenizer, manifest.source_vocabulary, manifest.tokens)
    if manifest.source_tokenizer == manifest.target_tokenizer:
        return Tokenizer(manifest.tokens, source, source)
    target = _Vocabulary(directory / manifest.target_tokenizer, manifest.target_vocabulary, manifest.tokens)
    return Tokenizer(manifest.tokens, source, target)


class _Vocabulary:
    """One SentencePiece model with checked sizes; a typed face for an untyped library."""

    def __init__(self, path: Path, size: int, tokens: Tokens) -> None:
        if path.stat().st_size > TOKENIZER_BYTES:
            raise UserError(f"larger than {TOKENIZER_BYTES:,} bytes", place=str(path))
        self._processor = cast(Any, sentencepiece.SentencePieceProcessor())
        try:
            self._processor.LoadFromSerializedProto(path.read_bytes())
        except RuntimeError as error:
            raise UserError("not a SentencePiece model", place=str(path), hint=_REBUILD) from error
        found = int(self._processor.GetPieceSize())
        if found > size:
            raise UserError(f"has {found:,} pieces, the engine's vocabulary {size:,}", place=str(path), hint=_REBUILD)
        ids = [getattr(self._processor, name)() for name in ("pad_id", "unk_id", "bos_id", "eos_id")]
        if ids != [tokens.pad, tokens.unknown, tokens.begin, tokens.end]:
            raise UserError(
                f"has the special tokens {ids} (pad, unknown, begin, end), not [0, 1, 2, 3]",
                place=str(path),
                hint=_REBUILD,
            )
        self._size = found

    def encode(self, text: str) -> list[int]:
        text.encode()  # raises what a caller expects for a lone surrogate; SentencePiece would not
        return cast(list[int], self._processor.EncodeAsIds(text))

    def decode(self, ids: list[int]) -> str:
        known = [identifier for identifier in ids if identifier < self._size]
        return cast(str, self._processor.DecodeIds(known))


_REBUILD = "train the vocabulary with `xformc train`, and build the engine from that run"
