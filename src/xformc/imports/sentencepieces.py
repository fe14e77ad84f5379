"""Imports the SentencePiece models of T5, mBART-50, M2M-100, NLLB and Speech2Text; family and languages say the ids."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

from xformc.compiler.spec.tree import Scalar
from xformc.errors import UserError
from xformc.format.manifest import TOKENIZER_BYTES
from xformc.format.names import TOKENIZER
from xformc.imports.json_file import read_json
from xformc.imports.tokenizers import (
    DICTIONARY,
    MOST_PIECES,
    ForeignTokenizer,
    parsed_model,
    read_file,
    read_ids,
    renumbered,
    unknown_of,
)

PIECES, SPIECE = "sentencepiece.bpe.model", "spiece.model"
SETTINGS, SPECIAL_TOKENS = "tokenizer_config.json", "special_tokens_map.json"
FIRST = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}
"""The first ids of fairseq's dictionaries; the other pieces of the model follow in its order."""

MOST_TAGS = 10_000


def find_spiece(folder: Path, kind: str) -> ForeignTokenizer | None:
    """The tokenizer of a T5, whose ids are those of its model; None if the folder has none."""
    path = folder / SPIECE
    if kind not in ("t5", "mt5") or not path.is_file():
        return None
    model = read_file(path)
    unknown = unknown_of(model)
    if unknown is None:
        raise UserError("not a SentencePiece model", place=str(path))
    return ForeignTokenizer({TOKENIZER: model}, unknown)


def find_tagged(folder: Path, values: Mapping[str, Scalar]) -> ForeignTokenizer | None:
    """The tokenizer of an mBART-50, M2M-100, NLLB or Speech2Text, where the tag of a language stands before a text.

    None if the folder has none, or where tags follow texts. Raises: UserError for one that is broken.
    """
    kind, path = values["model_type"], folder / PIECES
    if kind not in ("mbart", "m2m_100", "speech_to_text") or not path.is_file():
        return None
    settings = _settings(folder, SETTINGS)
    named = f"{settings.get('tokenizer_class')} {values.get('tokenizer_class')}"
    if settings.get("legacy_behaviour") is True or (kind == "mbart" and "MBart50" not in named):
        return None
    ids = read_ids(folder / DICTIONARY) if (folder / DICTIONARY).is_file() else _aligned(path)
    tags = _tags(folder)
    free = (number for number in range(max(ids.values()) + 1, MOST_PIECES))
    ids |= {tag: next(free) for tag in tags if tag not in ids}
    model, lost = renumbered(path, ids, set(tags))
    return ForeignTokenizer({TOKENIZER: model}, ids["<unk>"], lost)


def _aligned(path: Path) -> dict[str, int]:
    """The ids of the pieces of a model in fairseq's order."""
    names = [str(piece.piece) for piece in parsed_model(path).pieces[:MOST_PIECES]]
    rest = [name for name in names if name not in FIRST]
    return {**FIRST, **{name: len(FIRST) + place for place, name in enumerate(rest)}}


def _tags(folder: Path) -> list[str]:
    """The tags of languages, in the order of their ids; none if no file names them."""
    for file in (SPECIAL_TOKENS, SETTINGS):
        settings = _settings(folder, file)
        for key in ("additional_special_tokens", "extra_special_tokens"):
            names = [name for name in _names(settings.get(key)) if name not in (*FIRST, "<mask>")]
            if len(names) > MOST_TAGS or not all(name.isprintable() and not {" ", "▁"} & {*name} for name in names):
                message = f"{key} must name at most {MOST_TAGS:,} tags of languages, without spaces"
                raise UserError(message, place=str(folder / file))
            if names:
                return list(dict.fromkeys(names))
    return []


def _names(items: object) -> Iterator[str]:
    """The names of tokens, which are texts or mappings with their content."""
    for item in cast(list[object], items) if isinstance(items, list) else []:
        name = cast(Mapping[str, object], item).get("content") if isinstance(item, dict) else item
        if isinstance(name, str) and name:
            yield name


def _settings(folder: Path, file: str) -> Mapping[str, object]:
    if not (folder / file).is_file():
        return {}
    content: object = read_json(folder / file, TOKENIZER_BYTES, "settings of a tokenizer", lambda found: found)
    return cast(Mapping[str, object], content) if isinstance(content, dict) else {}
