"""Vocabularies of SentencePiece, whose models also apply Unicode's NFKC."""

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, cast

import sentencepiece

from xformc.errors import UserError
from xformc.format.tokens import SpecialTokens
from xformc.runtime.text.words import NO_WORDS, Words, words_at

REBUILD = "train the vocabulary with `xformc train`, and build the engine from that run"


class SentencePieceVocabulary:
    """One SentencePiece model, checked, with types that the library lacks."""

    def __init__(self, path: Path, size: int, special: SpecialTokens) -> None:
        """Open the model. Raises: UserError if it is none, or does not fit `size` tokens and these special ones."""
        self._processor = cast(Any, sentencepiece.SentencePieceProcessor())
        try:
            self._processor.LoadFromSerializedProto(path.read_bytes())
        except RuntimeError as error:
            raise UserError("not a SentencePiece model", place=str(path), hint=REBUILD) from error
        found = int(self._processor.GetPieceSize())
        if found > size:
            raise UserError(f"has {found:,} pieces; the engine's vocabulary {size:,}", place=str(path), hint=REBUILD)
        self._size, self.special = found, special
        self._trails = str(self._processor.EncodeAsPieces("a")[-1:]).endswith("▁']")  # spaces end words
        self._check_special(str(path))

    def _check_special(self, place: str) -> None:
        """Check that the model's special tokens are those of the engine. A foreign model may lack padding and the end
        token, and what it begins texts with does not matter: the engine's begin token is what its decoder reads first.
        """
        found = [getattr(self._processor, name)() for name in ("pad_id", "unk_id", "bos_id", "eos_id")]
        special, pad, unknown, end = self.special, *(found[place] for place in (0, 1, 3))
        wanted = [-1 if one is None else one for one in (special.pad, special.unknown, special.begin)] + [*special.end]
        foreign = pad in (-1, special.pad) and unknown == special.unknown and end in (-1, *special.end)
        if found != wanted and (special.usual or not foreign):
            raise UserError(
                f"has the special tokens {found} (pad, unknown, begin, end), not {wanted}", place=place, hint=REBUILD
            )

    def encode(self, text: str) -> list[int]:
        """See `Vocabulary`."""
        text.encode()  # raises UnicodeError for a lone surrogate; SentencePiece would not
        tag, rest = self._tagged(text)
        return [*tag, *cast(list[int], self._processor.EncodeAsIds(rest))]

    def _tagged(self, text: str) -> tuple[list[int], str]:
        """The id of the tag that is a text's first word, if there is one, and what follows it.

        Tags are control pieces that begin with a space, such as those of languages; other control pieces are never
        found in a text.
        """
        word, _, rest = text.partition(" ")
        one = int(self._processor.PieceToId(f"▁{word}"))
        if not self._processor.IsControl(one) or self._processor.IdToPiece(one) != f"▁{word}":
            return [], text
        return [one], rest

    def surround(self, ids: list[int]) -> list[int]:
        """See `Vocabulary`: the end token comes after them, if there is one."""
        return [*ids, *self.special.after]

    def words(self, text: str) -> list[Words]:
        """See `Vocabulary`; the text is as the model's normalization has it."""
        tag, rest = self._tagged(text)
        pieces = [*self.pieces(tag), *map(str, self._processor.EncodeAsPieces(rest))]
        pieces = [piece.replace("▁", " ") for piece in pieces]
        ends = list(accumulate(map(len, pieces)))
        found = words_at("".join(pieces), zip([0, *ends], ends, strict=False))
        return [*found, *[NO_WORDS] * len(self.special.after)]

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """See `Vocabulary`: ▁ is a space; <unk>, <s> and </s> are special."""
        return [str(self._processor.IdToPiece(one)) if one < self._size else "" for one in ids]

    @property
    def strips(self) -> bool:
        """See `Vocabulary`."""
        return True

    def spelling(self) -> list[bytes]:
        """See `Vocabulary`."""
        if self._trails:
            raise UserError("pieces whose spaces end words cannot follow a constraint")
        return [self._spelled(one) for one in range(self._size)]

    def _spelled(self, one: int) -> bytes:
        processor, piece = self._processor, str(self._processor.IdToPiece(one))
        if processor.IsByte(one):
            return bytes([int(piece[3:5], 16)])
        silent = processor.IsControl(one) or processor.IsUnknown(one) or processor.IsUnused(one)
        return b"" if silent else piece.replace("\u2581", " ").encode()

    def decode(self, ids: list[int]) -> str:
        """See `Vocabulary`."""
        known = [identifier for identifier in ids if identifier < self._size]
        text = cast(str, self._processor.DecodeIds(known))
        return text.removesuffix(" ") if self._trails else text
