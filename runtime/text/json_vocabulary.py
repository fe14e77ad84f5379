"""Vocabularies of a tokenizer.json, by the library tokenizers: byte-level byte pairs, WordPiece, Unigram and others."""

import importlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from xformc.errors import UserError
from xformc.format.tokens import SpecialTokens
from xformc.runtime.text.words import NO_WORDS, Words, words_at


class JsonVocabulary:
    """One tokenizer.json. Its template, if it has one, says which special tokens surround a text."""

    def __init__(self, path: Path, size: int, special: SpecialTokens) -> None:
        """Open the file. Raises: UserError if the library does not read it, or if it has ids beyond `size`."""
        try:
            tokenizers: Any = importlib.import_module("tokenizers")  # an extra
        except ModuleNotFoundError as error:
            hint = "pip install 'xformc[tokenizers]'"
            raise UserError(
                "needs the package tokenizers, which is not installed", place=str(path), hint=hint
            ) from error
        try:
            self._tokenizer: Any = tokenizers.Tokenizer.from_str(path.read_text(encoding="utf-8"))
        except Exception as error:  # the library raises Exception itself
            message = " ".join(str(error).split())[:200]
            raise UserError(f"not a tokenizer.json: {message}", place=str(path)) from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self.special = special
        most = max(self._tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
        self._beyond = size if most >= size and self._passes_through() else None
        self._before, self._after = self._template(str(path))
        most = max([*self._before, *self._after, most if self._beyond is None else -1])
        if most >= size:
            raise UserError(f"has the id {most:,}; the engine's vocabulary has {size:,} tokens", place=str(path))
        if self._after and not special.ends:
            hint = "leave out `ends: false`, or remove the template"
            raise UserError(
                "its template puts tokens after a text, but the input has no end", place=str(path), hint=hint
            )

    def encode(self, text: str) -> list[int]:
        """See `Vocabulary`."""
        text.encode()
        ids: list[int] = list(self._tokenizer.encode(text, add_special_tokens=False).ids)
        if self._beyond is None:
            return ids
        unknown = cast(int, self.special.unknown)
        return [one if one < self._beyond else unknown for one in ids]

    def surround(self, ids: list[int]) -> list[int]:
        """See `Vocabulary`: as the template says, or with the end token after them, if there is one."""
        return [*self._before, *ids, *self._after]

    def words(self, text: str) -> list[Words]:
        """See `Vocabulary`."""
        spans = self._tokenizer.encode(text, add_special_tokens=False).offsets
        return [NO_WORDS] * len(self._before) + words_at(text, spans) + [NO_WORDS] * len(self._after)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """See `Vocabulary`."""
        return [self._tokenizer.id_to_token(int(one)) or "" for one in ids]

    @property
    def strips(self) -> bool:
        """See `Vocabulary`."""
        return False

    def spelling(self) -> list[bytes]:
        """See `Vocabulary`: pieces of bytes, whose characters stand for one byte each."""
        found: dict[str, Any] = json.loads(self._tokenizer.to_str())
        if found["decoder"] is None or found["decoder"]["type"] != "ByteLevel":
            raise UserError("only byte-level and SentencePiece vocabularies can follow a constraint")
        added = {one["id"] for one in found["added_tokens"]}
        size = max(self._tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1
        return [b"" if one in added else _bytes_of(piece) for one, piece in enumerate(self.pieces(range(size)))]

    def decode(self, ids: list[int]) -> str:
        """See `Vocabulary`."""
        return str(self._tokenizer.decode(ids, skip_special_tokens=True))

    def _passes_through(self) -> bool:
        """Whether pieces beyond the vocabulary are unknown tokens: only the merges of subword-nmt pass through them."""
        model = self._tokenizer.model
        unknown = getattr(model, "unk_token", None)
        known = unknown is not None and self._tokenizer.token_to_id(unknown) == self.special.unknown
        return known and bool(getattr(model, "end_of_word_suffix", None))

    def _template(self, place: str) -> tuple[list[int], list[int]]:
        """The special tokens before and after a text. Raises: UserError if the file contradicts itself."""
        try:
            bare = self._tokenizer.encode("a", add_special_tokens=False).ids
            whole = self._tokenizer.encode("a", add_special_tokens=True).ids
        except BaseException as error:  # the library panics, which is no Exception
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            raise UserError(f"not a tokenizer.json: {' '.join(str(error).split())[:200]}", place=place) from error
        for start in range(len(whole) - len(bare) + 1):
            if len(whole) > len(bare) and whole[start : start + len(bare)] == bare:
                return whole[:start], whole[start + len(bare) :]
        return [], [*self.special.after]


_SHOWN = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_HIDDEN = [one for one in range(256) if one not in _SHOWN]
_BYTES = {chr(one): one for one in _SHOWN} | {chr(256 + place): one for place, one in enumerate(_HIDDEN)}
"""The byte of each character of a byte-level piece (Radford et al. 2019): itself, or one from 256 on if not shown."""


def _bytes_of(piece: str) -> bytes:
    return bytes(_BYTES[one] for one in piece) if all(one in _BYTES for one in piece) else b""
