"""Reads folders of Hugging Face: config.json, safetensors and the tokenizer's files."""

from functools import partial
from pathlib import Path

from xformc.imports.checkpoint import stored_tensors
from xformc.imports.config import CONFIG, read_config
from xformc.imports.family import find_family, load_family
from xformc.imports.origin import Origin, Reader
from xformc.imports.tokenizers import find_tokenizer


def _read(folder: Path, table: Path | None) -> Origin:
    values = read_config(folder)
    family = find_family(str(values["model_type"])) if table is None else load_family(table)
    tensors = partial(stored_tensors, folder)
    return Origin(str(folder / CONFIG), values, family, tensors, find_tokenizer(folder), replayed=True)


READER = Reader(lambda path: (path / CONFIG).is_file(), _read)
