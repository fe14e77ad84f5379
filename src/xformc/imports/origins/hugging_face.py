"""Reads folders of Hugging Face: config.json, safetensors and the tokenizer's files."""

from functools import partial
from pathlib import Path

from xformc.imports.checkpoint import stored_tensors
from xformc.imports.config import CONFIG, read_config
from xformc.imports.family import find_family, load_family
from xformc.imports.origin import Origin, Reader
from xformc.imports.sentencepieces import find_spiece, find_tagged
from xformc.imports.tokenizers import find_tokenizer


def _read(folder: Path, table: Path | None) -> Origin:
    values = read_config(folder)
    family = find_family(str(values["model_type"])) if table is None else load_family(table)
    tensors = partial(stored_tensors, folder)
    tokenizer = find_spiece(folder, str(values["model_type"])) or find_tokenizer(folder) or find_tagged(folder, values)
    return Origin(str(folder / CONFIG), values, family, tensors, tokenizer, replayed=True)


READER = Reader(lambda path: (path / CONFIG).is_file(), _read)
