"""Reads Marian's vocabularies: SentencePiece models, or dictionaries in YAML of their pieces or of words."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from xformc.errors import UserError
from xformc.format.manifest import TOKENIZER_BYTES
from xformc.imports.origins.marian_files import read_words
from xformc.imports.origins.subwords import json_files, words
from xformc.imports.tokenizers import MOST_PIECES, SIDES, ForeignTokenizer, renumbered

UNKNOWN, ID = 1, re.compile("[0-9]{1,9}")


def marian_tokenizer(named: object, folder: Path, place: str) -> ForeignTokenizer | None:
    """The tokenizer of both sides from the files that the options name, or the ones in the folder; None without any.

    Raises: UserError for a file that is missing or damaged, or a pair of other kinds.
    """
    names = [str(one) for one in cast(list[object], named)] if isinstance(named, list) else []
    files = [folder / Path(name).name for name in names] or sorted(
        (*folder.glob("vocab*.spm"), *folder.glob("vocab*.yml"))
    )
    if not files:
        return None
    files = files * 2 if len(files) == 1 else files
    missing = [file.name for file in files if not file.is_file()]
    if len(files) != 2 or missing:
        found = f"{missing[0]} is not there" if missing else f"there are {len(files)}"
        raise UserError(f"needs the vocabularies of both sides; {found}", place=place)
    large = [file for file in files if file.stat().st_size > TOKENIZER_BYTES]
    if large:
        raise UserError(f"larger than {TOKENIZER_BYTES:,} bytes", place=str(large[0]))
    if all(file.suffix == ".yml" for file in files):
        pieces = {side: folder / name for side, name in SIDES.items()}
        if all(path.is_file() for path in pieces.values()):
            return _renumbered(pieces, files)
        return json_files({side: words(_ids(file)) for side, file in zip(SIDES, files, strict=True)}, UNKNOWN)
    if all(file.suffix == ".spm" for file in files):
        models = {f"{side}.model": file.read_bytes() for side, file in zip(SIDES, files, strict=True)}
        same = len(set(models.values())) == 1
        return ForeignTokenizer({"tokenizer.model": next(iter(models.values()))} if same else models, UNKNOWN)
    raise UserError("its vocabularies are not both .spm or both .yml", place=place)


def _renumbered(pieces: Mapping[str, Path], files: list[Path]) -> ForeignTokenizer:
    """The SentencePiece models that texts are cut by before Marian reads them, with the ids of its dictionaries."""
    pairs = zip(pieces.items(), files, strict=True)
    models = {f"{side}.model": renumbered(path, _ids(file)) for (side, path), file in pairs}
    lost = sum(count for _, count in models.values())
    return ForeignTokenizer({name: model for name, (model, _) in models.items()}, UNKNOWN, lost)


def _ids(file: Path) -> Mapping[str, int]:
    found = read_words(file.read_bytes(), str(file))
    ids = {word: int(number) for word, number in found if ID.fullmatch(number)}
    if len(ids) < len(found) or len(set(ids.values())) < len(ids) or max(ids.values()) >= MOST_PIECES:
        raise UserError("must map words to ids, each to one of its own", place=str(file))
    if (ids.get("</s>"), ids.get("<unk>")) != (0, UNKNOWN):
        raise UserError("must give </s> the id 0 and <unk> the id 1; other ids are not imported", place=str(file))
    return ids
