"""Imports tokenizers: a SentencePiece model, a tokenizer.json, or Marian's models with their dictionary."""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from google.protobuf.message import DecodeError
from sentencepiece import sentencepiece_model_pb2

from xformc.compiler.spec import Spec
from xformc.compiler.spec.tree import Scalar
from xformc.errors import UserError
from xformc.format.manifest import TOKENIZER_BYTES
from xformc.format.names import TOKENIZER
from xformc.format.tokens import SPECIAL, SpecialTokens
from xformc.imports.json_file import read_json
from xformc.runtime.text.tokenizer import Vocabulary, open_vocabulary
from xformc.trainer.run_files import find_run_files

JSON = "tokenizer.json"
DICTIONARY, SIDES = "vocab.json", {"source": "source.spm", "target": "target.spm"}
"""Marian's files: the ids of the pieces of both languages, and a model of each."""

LANGUAGE = re.compile(">>.+<<")
"""The tag of a language."""

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED = 1, 2, 3, 4, 5
MOST_PIECES = 1 << 22


@dataclass(frozen=True)
class ForeignTokenizer:
    """The files of a run, by name, and the ids of the unknown token and of padding, if the files have them.

    lost: the number of pieces that the model cuts a text into and the dictionary lacks. beside: the tokenizer.json
    beside a SentencePiece model, whose template counts.
    """

    files: Mapping[str, bytes]
    unknown: int | None = None
    lost: int = 0
    pad: int | None = None
    beside: bytes | None = None

    def special(self, values: Mapping[str, Scalar]) -> dict[str, int]:
        """The special tokens of the spec that the files say and the config does not: the unknown one, and that after a
        text in a template."""
        found = {} if self.unknown is None else {"unknown": self.unknown}
        last = self._last() if "eos_token_id" not in values and "sep_token_id" not in values else None
        return found if last is None else {**found, "end": last}

    def pieces(self) -> dict[int, str]:
        """The names of the tokens of a tokenizer.json by id; none of other tokenizers."""
        model = self._json().get("model")
        vocabulary = cast(dict[str, object], model).get("vocab") if isinstance(model, dict) else None
        named = cast(dict[str, object], vocabulary) if isinstance(vocabulary, dict) else {}
        return {number: name for name, number in named.items() if isinstance(number, int)}

    def first(self) -> int | None:
        """The id of the special token before a text in the template of a tokenizer.json."""
        return self._around(0, "cls")

    def _last(self) -> int | None:
        """The id of the special token after a text in a template."""
        return self._around(-1, "sep")

    def _around(self, place: int, key: str) -> int | None:
        """The special token at a place of the template: of a list of pieces, or under a key."""
        template = self._json().get("post_processor")
        content = cast(dict[str, Any], template) if isinstance(template, dict) else {}
        steps: object = content.get("processors") if content.get("type") == "Sequence" else [content]
        for step in cast(list[Any], steps if isinstance(steps, list) else []):
            try:
                if step.get("type") == "TemplateProcessing":
                    name = step["single"][place]["SpecialToken"]["id"]
                    found: object = step["special_tokens"][name]["ids"][0]
                else:
                    found = step[key][1]
            except (AttributeError, KeyError, IndexError, TypeError):
                continue
            if type(found) is int and found >= 0:
                return found
        return None

    @property
    def templated(self) -> bool:
        """Whether there is a tokenizer.json."""
        return self._content is not None

    @property
    def _content(self) -> bytes | None:
        return self.files.get(JSON, self.beside)

    def _json(self) -> dict[str, object]:
        try:
            content: object = None if self._content is None else json.loads(self._content)
        except (ValueError, RecursionError):  # open_tokenizers says so
            content = None
        return cast(dict[str, object], content) if isinstance(content, dict) else {}

    def in_parts(self, begins: Mapping[str, bool]) -> "ForeignTokenizer":
        """The tokenizer of a prompt in parts: a tokenizer.json of each input by name, without the template unless the
        prompt begins there.

        Raises: UserError without a tokenizer.json.
        """
        whole = self._json()
        if not whole:
            hint = "save the tokenizer with transformers, which writes one"
            raise UserError(f"needs a {JSON}, whose template says how a prompt begins", hint=hint)
        parts = {name: whole if first else {**whole, "post_processor": None} for name, first in begins.items()}
        files = {f"{name}.json": json.dumps(part, ensure_ascii=False).encode() for name, part in parts.items()}
        return replace(self, files=files, beside=self._content)

    def write(self, folder: Path) -> None:
        """Write the files into a run."""
        for name, content in self.files.items():
            (folder / name).write_bytes(content)


def find_tokenizer(folder: Path) -> ForeignTokenizer | None:
    """The tokenizer in a folder; None if there is none that is known. Raises: UserError for one that is broken."""
    if all((folder / file).is_file() for file in (DICTIONARY, *SIDES.values())):
        return _marian(folder)
    model, whole = (read_file(folder / name) if (folder / name).is_file() else None for name in (TOKENIZER, JSON))
    if model is not None and (unknown := unknown_of(model)) is not None:
        return ForeignTokenizer({TOKENIZER: model}, unknown, pad=_padding_of(model), beside=whole)
    return None if whole is None else ForeignTokenizer({JSON: whole})


def _marian(folder: Path) -> ForeignTokenizer:
    ids = read_ids(folder / DICTIONARY)
    models = {side: renumbered(folder / file, ids) for side, file in SIDES.items()}
    lost = sum(count for _, count in models.values())
    return ForeignTokenizer({f"{side}.model": model for side, (model, _) in models.items()}, ids["<unk>"], lost)


def read_ids(path: Path) -> dict[str, int]:
    """The ids of the pieces of a dictionary. Raises: UserError."""
    return read_json(path, TOKENIZER_BYTES, "a dictionary", lambda content: _ids(content, path))


def _ids(content: object, path: Path) -> dict[str, int]:
    """The ids of the pieces. Raises: UserError unless each has one of its own, and the special ones are there."""
    ids = cast(dict[str, object], content) if isinstance(content, dict) else {}
    fits = all(type(one) is int and 0 <= one < MOST_PIECES for one in ids.values())
    if not fits or len(set(ids.values())) < len(ids) or not {"<unk>", "</s>", "<pad>"} <= ids.keys():
        message = "must map pieces to ids, each to one of its own, with <unk>, </s> and <pad> among them"
        raise UserError(message, place=str(path))
    return cast(dict[str, int], ids)


def renumbered(path: Path, ids: Mapping[str, int], tags: Collection[str] = ()) -> tuple[bytes, int]:
    """The model with these ids for its pieces, and the number of pieces that have none.

    Pieces that only the dictionary has, those of the other language, are never produced. Marian's tag of a language
    stands at the beginning of a text, where SentencePiece puts a space. The `tags` become control pieces with a space,
    which the vocabulary finds at the beginning of a text.
    """
    model = parsed_model(path)
    known = {piece.piece: piece for piece in model.pieces}
    lost = sum(piece.type == _NORMAL and piece.piece not in ids for piece in model.pieces)
    names = {number: piece for piece, number in ids.items()}
    del model.pieces[:]
    for number in range(max(names) + 1):
        name = names.get(number, unused_name(number))
        piece = model.pieces.add(piece=name, score=0.0, type=_UNUSED)
        if name in ("<unk>", "</s>", "<pad>"):
            piece.type = _UNKNOWN if name == "<unk>" else _CONTROL
        elif name in tags:
            piece.piece, piece.type = f"▁{name}", _CONTROL
        elif LANGUAGE.fullmatch(name):
            piece.piece, piece.type = f"▁{name}", _USER_DEFINED
        elif name in known:
            piece.CopyFrom(known[name])
    trained = model.trainer_spec
    trained.unk_piece, trained.eos_piece, trained.pad_piece = "<unk>", "</s>", "<pad>"
    trained.unk_id, trained.eos_id, trained.pad_id, trained.bos_id = ids["<unk>"], ids["</s>"], ids.get("<pad>", -1), -1
    trained.vocab_size = len(model.pieces)
    return cast(bytes, model.SerializeToString()), lost


def unused_name(number: int) -> str:
    """The name of a piece that a dictionary lacks."""
    return f"<unused {number}>"


def parsed_model(path: Path) -> Any:
    """The SentencePiece model of a file. Raises: UserError if it is none."""
    model = _parsed(read_file(path))
    if model is None or not len(model.pieces):
        raise UserError("not a SentencePiece model", place=str(path))
    return model


def unknown_of(model: bytes) -> int | None:
    """The id of the unknown token of a SentencePiece model; None if it is none."""
    parsed = _parsed(model)
    pieces: list[Any] = [] if parsed is None else list(parsed.pieces)
    return next((number for number, piece in enumerate(pieces) if piece.type == _UNKNOWN), None)


def _padding_of(model: bytes) -> int | None:
    """The id of padding of a SentencePiece model, as its library finds it; None if it has none."""
    parsed = _parsed(model)
    found = (_CONTROL, parsed.trainer_spec.pad_piece)
    return next((number for number, piece in enumerate(parsed.pieces) if (piece.type, piece.piece) == found), None)


def _parsed(model: bytes) -> Any:
    parsed: Any = cast(Any, sentencepiece_model_pb2).ModelProto()
    try:
        parsed.ParseFromString(model)
    except DecodeError:
        return None
    return parsed


def read_file(path: Path) -> bytes:
    """The bytes of a file of a tokenizer. Raises: UserError for one that is too large."""
    if path.stat().st_size > TOKENIZER_BYTES:
        raise UserError(f"larger than {TOKENIZER_BYTES:,} bytes", place=str(path))
    return path.read_bytes()


def open_tokenizers(folder: Path, spec: Spec) -> dict[str, Vocabulary]:
    """The vocabularies of a run, as its engines open them. Raises: UserError for one that does not fit the spec."""
    found: dict[str, Vocabulary] = {}
    for name, path in (find_run_files(folder, spec).tokenizers or {}).items():
        size, special = _vocabulary_of(spec, name)
        try:
            found[name] = open_vocabulary(path, size, special)
        except UserError as error:
            raise UserError(error.message, place=path.name, hint=error.hint) from error
    return found


def _vocabulary_of(spec: Spec, name: str) -> tuple[int, SpecialTokens]:
    """The size and the special tokens of the vocabulary of an input, or of a result that has its own."""
    if name in spec.inputs:
        return spec.inputs[name].vocabulary, spec.inputs[name].special
    index = [result.name for result in spec.results].index(name)
    return spec.graph().outputs[index].type.axes[-1].size or 0, SPECIAL
