"""Writes the tokenizer of a model under the names that transformers reads."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from sentencepiece import sentencepiece_model_pb2

from xformc.compiler.spec import Spec
from xformc.compiler.spec.model import Input
from xformc.errors import UserError
from xformc.exports.sentencepiece_json import SPACE, tokenizer_json
from xformc.exports.source import Source
from xformc.format.names import TOKENIZER
from xformc.imports.characters import dictionary_of
from xformc.imports.tokenizers import DICTIONARY, JSON, LANGUAGE, SIDES, unused_name
from xformc.runtime.text.tokenizer import open_vocabulary

SETTINGS = "tokenizer_config.json"

Notes = tuple[str, ...]


def write_tokenizer(source: Source, folder: Path, family: str) -> tuple[tuple[str, ...], Notes]:
    """Write the tokenizer into the folder. Return the names of its files, and notes on what was not written.

    One tokenizer of all inputs becomes a tokenizer.json; a SentencePiece model is kept beside it. Two of a Marian model
    become its dictionary and models.
    """
    files = source.tokenizers
    if not files:
        texts = any(item.kind == "tokens" for item in source.spec.inputs.values())
        return (), ("there is no tokenizer",) if texts else ()
    if len(set(files.values())) == 1:
        path = next(iter(files.values()))
        if not any(item.kind == "tokens" for item in source.spec.inputs.values()):
            return _characters(path, folder)
        if path.suffix == ".json":
            content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            whole = _surrounded({"added_tokens": [], **content}, source, path)
            if whole == content:
                shutil.copyfile(path, folder / JSON)
            else:
                _write(folder / JSON, whole)
            return _with_settings(source, path, folder, (JSON,)), ()
        return _piece_model(source, path, folder)
    if family == "marian" and files.keys() == SIDES.keys() and all(path.suffix == ".model" for path in files.values()):
        return _marian(files, folder), ()
    return (), ("several tokenizers, of which only those of Marian are written: take that of the origin",)


def _characters(path: Path, folder: Path) -> tuple[tuple[str, ...], Notes]:
    """Write the vocabulary of a result by CTC as that of a CTC model."""
    if path.suffix == ".json":
        return (), ("a tokenizer.json of tokens that positions write has no vocab.json: it is not written",)
    for name, content in (files := dictionary_of(path.read_bytes())).items():
        (folder / name).write_text(content, encoding="utf-8")
    return tuple(files), ()


def _piece_model(source: Source, path: Path, folder: Path) -> tuple[tuple[str, ...], Notes]:
    """Write the model, and the tokenizer.json that gives its ids."""
    shutil.copyfile(path, folder / TOKENIZER)
    before, after = _around(source.spec)
    try:
        (folder / JSON).write_text(tokenizer_json(path, before, after), encoding="utf-8")
    except UserError as error:
        return (TOKENIZER,), (f"{TOKENIZER} is not written as {JSON}: it {error.message}",)
    return _with_settings(source, path, folder, (TOKENIZER, JSON)), ()


def _around(spec: Spec) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The special tokens before and after a text that a model is given."""
    special = _text(spec).special
    return (special.begun, ()) if spec.task == "language_model" else ((), special.after)


def _surrounded(content: dict[str, Any], source: Source, path: Path) -> dict[str, Any]:
    """The content of a tokenizer.json with a template, if it has none, for what the model's texts have around them."""
    before, after = _around(source.spec)
    own, item = content.get("post_processor"), _text(source.spec)
    if not (before or after) or (own is not None and own.get("type") != "ByteLevel"):
        return content
    vocabulary = open_vocabulary(path, item.vocabulary, item.special)
    names = {one: vocabulary.pieces([one])[0] for one in (*before, *after)}
    if not all(names.values()):
        return content
    steps = [[{"SpecialToken": {"id": names[one], "type_id": 0}} for one in side] for side in (before, after)]
    single = [*steps[0], {"Sequence": {"id": "A", "type_id": 0}}, *steps[1]]
    template = {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {name: {"id": name, "ids": [one], "tokens": [name]} for one, name in names.items()},
    }
    steps_of = [template] if own is None else [own, template]
    return {**content, "post_processor": template if own is None else {"type": "Sequence", "processors": steps_of}}


def _with_settings(source: Source, path: Path, folder: Path, names: tuple[str, ...]) -> tuple[str, ...]:
    """Write tokenizer_config.json: the class, and the special tokens."""
    item = _text(source.spec)
    special, vocabulary = item.special, open_vocabulary(path, item.vocabulary, item.special)
    ids = {"bos": special.begin, "eos": special.last, "pad": special.pad, "unk": special.unknown}
    pieces = {key: vocabulary.pieces([one])[0] for key, one in ids.items() if one is not None}
    settings: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    settings |= {f"{key}_token": piece for key, piece in pieces.items() if piece}
    settings["model_input_names"] = ["input_ids", "attention_mask"]
    _write(folder / SETTINGS, settings)
    return (*names, SETTINGS)


def _text(spec: Spec) -> Input:
    return next(item for item in spec.inputs.values() if item.kind == "tokens")


def _marian(files: Mapping[str, Path], folder: Path) -> tuple[str, ...]:
    """Write Marian's dictionary, which both models share, and the models."""
    ids: dict[str, int] = {}
    for side, path in files.items():
        shutil.copyfile(path, folder / SIDES[side])
        model: Any = cast(Any, sentencepiece_model_pb2).ModelProto.FromString(path.read_bytes())
        for number, piece in enumerate(model.pieces):
            name, tag = str(piece.piece), str(piece.piece).removeprefix(SPACE)
            if name != unused_name(number):
                ids[tag if LANGUAGE.fullmatch(tag) else name] = number
    _write(folder / DICTIONARY, dict(sorted(ids.items(), key=lambda item: item[1])))
    settings = {"tokenizer_class": "MarianTokenizer", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    _write(folder / SETTINGS, settings)
    return (DICTIONARY, *SIDES.values(), SETTINGS)


def _write(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
