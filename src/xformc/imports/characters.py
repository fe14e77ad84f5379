"""Vocabularies of CTC models of Hugging Face, whose tokens are mostly characters, as SentencePiece models.

The special tokens of xformc's vocabularies come first: the blank, which is padding, the unknown token, and those that
begin and end a text. The others keep their order.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from sentencepiece import sentencepiece_model_pb2

from xformc.compiler.spec.tree import Scalar
from xformc.errors import UserError
from xformc.format.names import TOKENIZER
from xformc.imports.json_file import read_json
from xformc.imports.tokenizers import DICTIONARY, ForeignTokenizer, unused_name

CTC = "ctc."
ADDED, SETTINGS, SPECIAL = "added_tokens.json", "tokenizer_config.json", "special_tokens_map.json"
MAX_BYTES = 8 << 20
MOST_TOKENS = 1 << 16
USUAL = {"pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
KEYS = {"pad_token": f"{CTC}blank", "unk_token": f"{CTC}unknown", "bos_token": f"{CTC}begin", "eos_token": f"{CTC}end"}
SPACE = "▁"
_CHARACTERS, _NORMAL, _UNKNOWN, _CONTROL, _UNUSED = 4, 1, 2, 3, 5


@dataclass(frozen=True)
class Characters:
    """The tokens of a model by id; the ids of the special ones in the order of KEYS; the token between words."""

    names: Mapping[int, str]
    special: tuple[int, ...]
    delimiter: str

    def values(self) -> dict[str, Scalar]:
        """The special tokens as values of a config."""
        return dict(zip(KEYS.values(), self.special, strict=True))

    def tokenizer(self) -> ForeignTokenizer:
        """The SentencePiece model of the run."""
        size = max(self.names) + 1
        order = [*self.special, *(number for number in range(size) if number not in self.special)]
        model = character_model([self._piece(number) for number in order])
        return ForeignTokenizer({TOKENIZER: model})

    def _piece(self, number: int) -> str:
        name = self.names.get(number, "") or unused_name(number)
        return SPACE if name == self.delimiter else name


def read_characters(folder: Path) -> Characters | None:
    """The vocabulary in a folder; None without a vocab.json, or if its tokens are no characters (phonemes).

    Raises: UserError for one that is damaged, or without a special token.
    """
    path = folder / DICTIONARY
    settings = {**_named(folder / SPECIAL), **_named(folder / SETTINGS)}
    if not path.is_file() or settings.get("tokenizer_class", "Wav2Vec2CTCTokenizer") != "Wav2Vec2CTCTokenizer":
        return None
    ids = {**_ids(path), **(_ids(folder / ADDED) if (folder / ADDED).is_file() else {})}
    names = {number: name for name, number in ids.items()}
    if not ids or len(names) < len(ids) or max(names) >= MOST_TOKENS:
        raise UserError(f"must map tokens to ids below {MOST_TOKENS:,}, each to one of its own", place=str(path))
    wanted = {key: settings.get(key, usual) for key, usual in USUAL.items()}
    lost = [f"{name} ({key})" for key, name in wanted.items() if name not in ids]
    if lost:
        raise UserError(f"lacks {', '.join(lost)}", place=str(path))
    special = tuple(ids[name] for name in wanted.values())
    if len(set(special)) < len(special):
        raise UserError(f"has one token as several of {', '.join(wanted)}", place=str(path))
    return Characters(names, special, settings.get("word_delimiter_token", "|"))


def character_model(pieces: Sequence[str]) -> bytes:
    """A SentencePiece model of these tokens, of which the first are the special ones of xformc."""
    model: Any = cast(Any, sentencepiece_model_pb2).ModelProto()
    for number, piece in enumerate(pieces):
        kind = _UNKNOWN if number == 1 else _CONTROL if number < len(KEYS) else _NORMAL
        unused = piece == unused_name(number)
        model.pieces.add(piece=piece, score=0.0, type=_UNUSED if unused and kind == _NORMAL else kind)
    trained, normal = model.trainer_spec, model.normalizer_spec
    trained.model_type, trained.vocab_size = _CHARACTERS, len(pieces)
    trained.pad_id, trained.unk_id, trained.bos_id, trained.eos_id = range(len(KEYS))
    trained.pad_piece, trained.unk_piece, trained.bos_piece, trained.eos_piece = pieces[: len(KEYS)]
    normal.name, normal.add_dummy_prefix = "identity", False
    return cast(bytes, model.SerializeToString())


def _ids(path: Path) -> dict[str, int]:
    found = read_json(path, MAX_BYTES, "a vocabulary", lambda content: content)
    content = cast(dict[str, object], found) if isinstance(found, dict) else {}
    if not all(type(one) is int and one >= 0 for one in content.values()):
        raise UserError("must map tokens to ids", place=str(path))
    return cast(dict[str, int], content)


def _named(path: Path) -> dict[str, str]:
    """The texts of a file of settings; a token may be a mapping with its `content`."""
    if not path.is_file():
        return {}
    found = read_json(path, MAX_BYTES, "settings", lambda content: content)
    content = cast(dict[str, object], found) if isinstance(found, dict) else {}
    inner = {
        key: cast(dict[str, object], one).get("content") if isinstance(one, dict) else one
        for key, one in content.items()
    }
    return {key: one for key, one in inner.items() if isinstance(one, str)}


def dictionary_of(model: bytes) -> dict[str, str]:
    """The contents of vocab.json and tokenizer_config.json by name, of a model of characters, in the usual order."""
    pieces = [str(one.piece) for one in cast(Any, sentencepiece_model_pb2).ModelProto.FromString(model).pieces]
    pad, unknown, begin, end, *others = pieces
    order = [pad, begin, end, unknown, *("|" if piece == SPACE else piece for piece in others)]
    settings = {
        "tokenizer_class": "Wav2Vec2CTCTokenizer",
        "word_delimiter_token": "|",
        **dict(zip(USUAL, (pad, unknown, begin, end), strict=True)),
    }
    files = {DICTIONARY: {piece: number for number, piece in enumerate(order)}, SETTINGS: settings}
    return {name: json.dumps(content, indent=2, ensure_ascii=False) + "\n" for name, content in files.items()}
