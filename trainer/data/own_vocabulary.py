"""A vocabulary of one's own: a SentencePiece model or a tokenizer.json that a training is given."""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import sentencepiece

from xformc.compiler.spec.model import Input
from xformc.errors import UserError
from xformc.format.manifest import TOKENIZER_BYTES
from xformc.runtime.text.tokenizer import open_vocabulary
from xformc.trainer.data.data_schema import DataSchema
from xformc.trainer.data.foreign_vocabulary import opened_vocabulary
from xformc.trainer.data.vocabulary import Tokenizer, Vocabulary


def own_tokenizer(path: Path, schema: DataSchema) -> Tokenizer:
    """The tokenizer of all inputs of tokens: the vocabulary in a file.

    Raises: UserError if it cannot be read, or if the spec has other special tokens or fewer tokens.
    """
    items = {name: schema.inputs[name] for name in schema.texts}
    for item in items.values():
        try:
            open_vocabulary(path, item.vocabulary, item.special)
        except OSError as error:
            raise UserError(f"cannot be read: {error.strerror or error}", place=str(path)) from error
        except UserError as error:
            raise UserError(error.message, place=str(path), hint=_hint(path)) from error
    return Tokenizer(_shared(path, items))


def file_hash(path: Path) -> str:
    """The SHA-256 of a file. Raises: UserError if it cannot be read."""
    try:
        if path.stat().st_size > TOKENIZER_BYTES:
            raise UserError(f"larger than {TOKENIZER_BYTES:,} bytes", place=str(path))
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror or error}", place=str(path)) from error


def _shared(path: Path, items: Mapping[str, Input]) -> dict[str, Vocabulary]:
    """The vocabulary of each input, one object for those with the same size and special tokens."""
    known: dict[object, Vocabulary] = {}
    keys = {name: (item.vocabulary, replace(item.special, ends=True)) for name, item in items.items()}
    for key in keys.values():
        known.setdefault(key, opened_vocabulary(path, *key))
    return {name: known[key] for name, key in keys.items()}


def _hint(path: Path) -> str | None:
    """What a spec says for a SentencePiece model; None for another file."""
    processor = cast(Any, sentencepiece.SentencePieceProcessor())
    try:
        processor.LoadFromSerializedProto(path.read_bytes())
    except RuntimeError:
        return "give a SentencePiece model, or a tokenizer.json"
    count = int(processor.GetPieceSize())
    found = {"pad": "pad_id", "unknown": "unk_id", "begin": "bos_id", "end": "eos_id"}
    ids = {name: int(getattr(processor, method)()) for name, method in found.items()}
    count, missing = count + sum(one < 0 for one in ids.values()), iter(range(count, count + len(ids)))
    ids = {name: next(missing) if one < 0 else one for name, one in ids.items()}
    special = ", ".join(f"{name}: {one}" for name, one in ids.items())
    return f"a spec for it has `special_tokens: {{{special}}}` and a vocabulary of at least {count:,}"
