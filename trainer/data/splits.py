"""Finds the files of each split in a folder."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from xformc.errors import UserError
from xformc.runtime.text.lines import plain_name

TRAIN_NAMES = ("train",)
VALID_NAMES = ("valid", "val", "dev")
PLAIN_LANGUAGES = (("source", "target"), ("src", "tgt"))
JSON_LINES, PARQUET = "jsonl", "parquet"
TABLES = (JSON_LINES, PARQUET)
"""Files whose columns have names."""
Files = tuple[Path, ...]
"""The files of one split: one file with every column, or one file per column."""


@dataclass(frozen=True)
class CorpusFiles:
    """The files of the two splits that training reads."""

    train: Files
    valid: Files


def find_files(folder: Path, suffixes: Sequence[str]) -> CorpusFiles:
    """Find `train.SUFFIX` and `valid.SUFFIX` (or `val`, `dev`), plain or `.gz` or `.zst`, for one of the suffixes.

    Raises: UserError unless there is exactly one such file for each split, with the same suffix.
    """
    _require_folder(folder)
    train, valid = (_find_file(folder, names, suffixes) for names in (TRAIN_NAMES, VALID_NAMES))
    if suffix_of(train) != suffix_of(valid):
        raise UserError(
            f"{train.name} and {valid.name} differ in format", place=str(folder), hint=f"make both .{suffixes[0]}"
        )
    return CorpusFiles((train,), (valid,))


def find_pairs(folder: Path, languages: str | None = None) -> CorpusFiles:
    """Find the parallel text in `folder`: `train.*` and `valid.*` (or `val.*`, `dev.*`), plain, `.gz` or `.zst`.

    A split is `SPLIT.tsv`, `SPLIT.jsonl`, `SPLIT.parquet`, or two files whose last suffixes are the languages, such as
    `train.en` and `train.lc.tok.de.gz`. `languages` is `source-target`, for example `en-de`.

    Raises: UserError if a split is missing, or if it is unclear which of its files is the source.
    """
    _require_folder(folder)
    pair = None if languages is None else _parse_languages(languages)
    splits = [_find_pair(folder, names, pair) for names in (TRAIN_NAMES, VALID_NAMES)]
    if pair is not None and all(len(split) == 1 for split in splits):
        raise UserError(
            f"--languages {languages} has no effect: the files hold source and target",
            place=str(folder),
            hint="leave --languages out",
        )
    return CorpusFiles(*splits)


def find_training(folder: Path, suffixes: Sequence[str], languages: str | None = None, *, paired: bool) -> Files:
    """Find the files of the training data only, as `find_pairs` if it is `paired`, else as `find_files`."""
    return _find_split(folder, TRAIN_NAMES, suffixes, languages, paired=paired)


def find_validation(folder: Path, suffixes: Sequence[str], languages: str | None = None, *, paired: bool) -> Files:
    """Find the files of the validation data only, as `find_training`."""
    return _find_split(folder, VALID_NAMES, suffixes, languages, paired=paired)


def suffix_of(path: Path) -> str:
    """Return the suffix of a file without that of its compression: `tsv` for `train.tsv.gz`."""
    return plain_name(path).rpartition(".")[2]


def _find_split(
    folder: Path, names: tuple[str, ...], suffixes: Sequence[str], languages: str | None, *, paired: bool
) -> Files:
    _require_folder(folder)
    if not paired:
        return (_find_file(folder, names, suffixes),)
    return _find_pair(folder, names, None if languages is None else _parse_languages(languages))


def _require_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise UserError("not a folder", place=str(folder), hint="--data is a folder with train.* and valid.*")


def _find_file(folder: Path, names: tuple[str, ...], suffixes: Sequence[str]) -> Path:
    found = _by_suffix(folder, names)
    chosen = [found[suffix] for suffix in suffixes if suffix in found]
    if len(chosen) == 1:
        return chosen[0]
    wanted = " or ".join(f"{names[0]}.{suffix}" for suffix in suffixes)
    if chosen:
        raise _several(folder, chosen)
    there = f"; there are: {', '.join(sorted(path.name for path in found.values()))}" if found else ""
    raise UserError(f"no file {wanted}{there}", place=str(folder), hint="the spec's task and inputs need this file")


def _several(folder: Path, files: Sequence[Path]) -> UserError:
    listed = " and ".join(path.name for path in files)
    return UserError(f"{listed} could both be the data", place=str(folder), hint="keep one of them in the folder")


def _parse_languages(languages: str) -> tuple[str, str]:
    source, _, target = languages.partition("-")
    if not source or not target or "-" in target or source == target:
        raise UserError(f"--languages {languages} must be two different names", hint="for example en-de")
    return source, target


def _find_pair(folder: Path, names: tuple[str, ...], languages: tuple[str, str] | None) -> Files:
    found = _by_suffix(folder, names)
    both = [found.pop(suffix) for suffix in ("tsv", *TABLES) if suffix in found]
    if languages is not None and all(language in found for language in languages):
        return (found[languages[0]], found[languages[1]])
    if len(both) > 1:
        raise _several(folder, both)
    if both:
        return (both[0],)
    if languages is None:
        languages = _guess_languages(folder, names, found)
    missing = [language for language in languages if language not in found]
    if missing:
        raise UserError(
            f"no file {' and no file '.join(f'{names[0]}.*{language}' for language in missing)}"
            + (f"; there are: {', '.join(sorted(path.name for path in found.values()))}" if found else ""),
            place=str(folder),
            hint=f"add {names[0]}.tsv (source, tab, target), or {names[0]}.en and {names[0]}.de "
            "with --languages en-de; each may end in .gz or .zst",
        )
    return (found[languages[0]], found[languages[1]])


def _by_suffix(folder: Path, names: tuple[str, ...]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        parts = plain_name(path).split(".")
        if parts[0] not in names or len(parts) < 2 or not path.is_file():
            continue
        suffix = parts[-1]
        if suffix in found:
            raise UserError(
                f"{found[suffix].name} and {path.name} could both be the {suffix} side",
                place=str(folder),
                hint="keep one of them in the folder",
            )
        found[suffix] = path
    return found


def _guess_languages(folder: Path, names: tuple[str, ...], found: dict[str, Path]) -> tuple[str, str]:
    for plain in PLAIN_LANGUAGES:
        if all(language in found for language in plain) or not found:
            return plain
    first, *others = sorted(found)
    if not others:
        raise UserError(
            f"only one side, {found[first].name}; a source and a target are required",
            place=str(folder),
            hint=f"put its translation beside it, for example {names[0]}.de",
        )
    second = others[0]
    raise UserError(
        f"cannot tell which language is the source: {', '.join(path.name for path in found.values())}",
        place=str(folder),
        hint=f"give --languages {first}-{second} or --languages {second}-{first}",
    )
