"""Reads fairseq's dictionaries: a token and its count on each line, after four special tokens."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from xformc.errors import UserError
from xformc.format.manifest import TOKENIZER_BYTES

SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
OVERWRITE = "#fairseq:overwrite"


def find_dictionaries(folders: Sequence[Path], given: Mapping[str, object], place: str) -> dict[str, dict[str, int]]:
    """The ids of the tokens of `source` and `target`, by the languages that the options or the file names say.

    Raises: UserError if a dictionary is missing or damaged.
    """
    files = {path.name[5:-4]: path for folder in reversed(folders) for path in folder.glob("dict.*.txt")}
    source, target = _languages(given, files)
    if source not in files or target not in files:
        there = f"there are {', '.join(sorted(path.name for path in files.values())[:8])}" if files else "there is none"
        wanted = f"dict.{source or 'SOURCE'}.txt and dict.{target or 'TARGET'}.txt"
        hint = "put them beside the checkpoint, or into a folder data next to its folder, and name them as its data was"
        raise UserError(f"needs its dictionaries {wanted}; {there}", place=place, hint=hint)
    return {"source": read_dictionary(files[source]), "target": read_dictionary(files[target])}


def _languages(given: Mapping[str, object], files: Mapping[str, Path]) -> tuple[str, str]:
    """The names of the source and the target language: the options', those in the name of the data, or src and tgt."""
    of_data, _, other = str(given.get("data") or "").rstrip("/").rpartition(".")[2].partition("-")
    said = (str(given.get("source_lang") or ""), str(given.get("target_lang") or ""))
    pairs = [pair for pair in (said, (of_data, other), ("src", "tgt")) if all(pair)]
    return next((pair for pair in pairs if pair[0] in files and pair[1] in files), pairs[0])


def read_dictionary(path: Path) -> dict[str, int]:
    """The ids of the tokens, the special ones first. Raises: UserError for a line that is no token with its count."""
    if path.stat().st_size > TOKENIZER_BYTES:
        raise UserError(f"larger than {TOKENIZER_BYTES:,} bytes", place=str(path))
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise UserError(f"not UTF-8: {error.reason}", place=str(path)) from None
    ids = {token: number for number, token in enumerate(SPECIAL)}
    for number, line in enumerate(lines, 1):
        text, over = line.rstrip(), line.rstrip().endswith(OVERWRITE)
        token, space, count = text.removesuffix(OVERWRITE).rstrip().rpartition(" ")
        if not text and number == len(lines):
            break
        if not space or not count.isdecimal() or (token in ids and not over):
            raise UserError(f"must have a new token and its count, found {text[:60]!r}", place=f"{path}:{number}")
        ids[token] = len(SPECIAL) + number - 1
    return ids
