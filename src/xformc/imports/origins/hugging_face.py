"""Reads folders of Hugging Face: config.json, safetensors and the tokenizer's files."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from xformc.compiler.spec.tree import Scalar
from xformc.imports.characters import read_characters
from xformc.imports.checkpoint import stored_tensors
from xformc.imports.config import ARCHITECTURE, CONFIG, WRITES_CHARACTERS, read_config, unread_options
from xformc.imports.family import find_family, load_family
from xformc.imports.origin import Origin, Reader
from xformc.imports.sentencepieces import find_spiece, find_tagged
from xformc.imports.tokenizers import ForeignTokenizer, find_tokenizer


def _read(folder: Path, table: Path | None) -> Origin:
    values = read_config(folder)
    family = find_family(str(values["model_type"])) if table is None else load_family(table)
    tensors = partial(stored_tensors, folder)
    tokenizer = _tokenizer(folder, values)
    return Origin(
        str(folder / CONFIG),
        values,
        family,
        tensors,
        tokenizer,
        replayed=True,
        unread=unread_options(folder),
        templated=tokenizer is not None and tokenizer.templated,
    )


def _tokenizer(folder: Path, values: Mapping[str, Scalar]) -> ForeignTokenizer | None:
    if str(values.get(ARCHITECTURE)).endswith(WRITES_CHARACTERS):
        characters = read_characters(folder)
        return None if characters is None else characters.tokenizer()
    return find_spiece(folder, str(values["model_type"])) or find_tokenizer(folder) or find_tagged(folder, values)


READER = Reader(lambda path: (path / CONFIG).is_file(), _read)
