"""Parallel text: which files of a folder hold it, and the pairs of sentences read from them."""

import gzip
import hashlib
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from xformc.errors import UserError

TRAIN_NAMES = ("train",)
VALID_NAMES = ("valid", "val", "dev")
PLAIN_LANGUAGES = (("source", "target"), ("src", "tgt"))


@dataclass(frozen=True)
class ParallelFiles:
    """One split on disk: a TSV file (`target` is None) or two files with a sentence a line."""

    source: Path
    target: Path | None = None


@dataclass(frozen=True)
class CorpusFiles:
    """The two splits that training reads."""

    train: ParallelFiles
    valid: ParallelFiles


@dataclass(frozen=True)
class Pairs:
    """Sentences and their translations, in the order of the file.

    `empty` counts the pairs left out because a side had no text; `sha256` names the content.
    """

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    empty: int
    sha256: str

    def __len__(self) -> int:
        """How many pairs."""
        return len(self.sources)


def find_corpus(folder: Path, languages: str | None = None) -> CorpusFiles:
    """The files of `folder` to train on: `train.*` and `valid.*` (or `val.*`, `dev.*`), plain or `.gz`.

    A split is `SPLIT.tsv`, or two files whose last suffixes are the languages, such as `train.en` and
    `train.lc.tok.de.gz`. `languages` is `source-target`, for example `en-de`.

    Raises: UserError if a split is missing or its files leave open which is the source.
    """
    if not folder.is_dir():
        raise UserError("not a folder", place=str(folder), hint="--data is a folder with train.* and valid.*")
    pair = None if languages is None else _parse_languages(languages)
    splits = [_find_split(folder, names, pair) for names in (TRAIN_NAMES, VALID_NAMES)]
    if pair is not None and all(split.target is None for split in splits):
        raise UserError(
            f"--languages {languages} has nothing to choose: the .tsv files hold source and target already",
            place=str(folder),
            hint="leave --languages out",
        )
    return CorpusFiles(*splits)


def read_pairs(files: ParallelFiles) -> Pairs:
    """Read one split whole. Lines end at a line feed; spaces around a sentence are dropped.

    Raises: UserError for a missing or broken file, invalid UTF-8, a NUL byte, a line of a TSV file without
    exactly two columns, unequal line counts, or no pair left; each with the file, and the line if it has one.
    """
    digest = hashlib.sha256()
    sources: list[str] = []
    targets: list[str] = []
    empty = 0
    for source, target in _tsv_pairs(files.source) if files.target is None else _line_pairs(files):
        if not source or not target:
            empty += 1
            continue
        sources.append(source)
        targets.append(target)
        digest.update(f"{source}\t{target}\n".encode())
    if not sources:
        raise UserError("holds no pair of sentences", place=str(files.source))
    return Pairs(tuple(sources), tuple(targets), empty, digest.hexdigest())


def _parse_languages(languages: str) -> tuple[str, str]:
    source, _, target = languages.partition("-")
    if not source or not target or "-" in target or source == target:
        raise UserError(f"--languages {languages}: two different names are required", hint="such as en-de")
    return source, target


def _find_split(folder: Path, names: tuple[str, ...], languages: tuple[str, str] | None) -> ParallelFiles:
    found = _by_language(folder, names)
    tsv = found.pop("tsv", None)
    if languages is not None and all(language in found for language in languages):
        return ParallelFiles(found[languages[0]], found[languages[1]])
    if tsv is not None:
        return ParallelFiles(tsv)
    if languages is None:
        languages = _guess_languages(folder, names, found)
    missing = [language for language in languages if language not in found]
    if missing:
        raise UserError(
            f"no file {' and no file '.join(f'{names[0]}.*{language}' for language in missing)}"
            + (f"; there are: {', '.join(sorted(path.name for path in found.values()))}" if found else ""),
            place=str(folder),
            hint=f"give {names[0]}.tsv (source, tab, target), or {names[0]}.en and {names[0]}.de "
            "with --languages en-de; each may end in .gz",
        )
    return ParallelFiles(found[languages[0]], found[languages[1]])


def _by_language(folder: Path, names: tuple[str, ...]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        parts = path.name.removesuffix(".gz").split(".")
        if parts[0] not in names or len(parts) < 2 or not path.is_file():
            continue
        language = parts[-1]
        if language in found:
            raise UserError(
                f"{found[language].name} and {path.name} could both be the {language} side",
                place=str(folder),
                hint="keep one of them in the folder",
            )
        found[language] = path
    return found


def _guess_languages(folder: Path, names: tuple[str, ...], found: dict[str, Path]) -> tuple[str, str]:
    for plain in PLAIN_LANGUAGES:
        if all(language in found for language in plain) or not found:
            return plain
    first, *others = sorted(found)
    if not others:
        raise UserError(
            f"{found[first].name} is alone; a source and a target are required",
            place=str(folder),
            hint=f"put its translation beside it, such as {names[0]}.de",
        )
    second = others[0]
    raise UserError(
        f"cannot tell which language is the source: {', '.join(path.name for path in found.values())}",
        place=str(folder),
        hint=f"give --languages {first}-{second} or --languages {second}-{first}",
    )


def _line_pairs(files: ParallelFiles) -> Iterator[tuple[str, str]]:
    assert files.target is not None
    sources, targets = read_lines(files.source), read_lines(files.target)
    count = 0
    for source in sources:
        target = next(targets, None)
        if target is None:
            _raise_unequal(files, count + 1 + sum(1 for _ in sources), count)
        else:
            count += 1
            yield source, target
    rest = sum(1 for _ in targets)
    if rest:
        _raise_unequal(files, count, count + rest)


def _raise_unequal(files: ParallelFiles, source_lines: int, target_lines: int) -> None:
    raise UserError(
        f"has {source_lines} lines and {files.target} has {target_lines}",
        place=str(files.source),
        hint="line n of one file must translate line n of the other",
    )


def _tsv_pairs(path: Path) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(read_lines(path, strip=False), start=1):
        columns = line.split("\t")
        if len(columns) != 2 and line.strip():
            raise UserError(
                f"{len(columns)} column{'s' * (len(columns) > 1)}, where 2 are required",
                place=f"{path}:{number}",
                hint="a line is a source sentence, one tab, and its translation",
            )
        yield columns[0].strip(), columns[-1].strip() if len(columns) == 2 else ""


def read_lines(path: Path, *, strip: bool = True) -> Iterator[str]:
    """The lines of a UTF-8 text file, which is unpacked if its name ends in `.gz`.

    Raises: UserError with the place for a file that cannot be read, is not UTF-8, or holds a NUL byte.
    """
    try:
        with _open(path) as handle:
            for number, line in enumerate(handle, start=1):
                text = _decode(line, f"{path}:{number}", first=number == 1)
                yield text.strip() if strip else text
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(
            f"not a whole gzip file ({error})",
            place=str(path),
            hint="copy it again; if it is plain text, take .gz off its name",
        ) from error
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror or error}", place=str(path)) from error


def _open(path: Path) -> IO[bytes] | gzip.GzipFile:
    return gzip.open(path, "rb") if path.name.endswith(".gz") else path.open("rb")


def _decode(line: bytes, place: str, *, first: bool) -> str:
    if b"\0" in line:
        raise UserError(f"NUL byte at column {line.index(0) + 1}", place=place, hint="is this a text file?")
    try:
        return line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8-sig" if first else "utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"not UTF-8: byte 0x{error.object[error.start]:02x} at byte column {error.start + 1}",
            place=place,
            hint="convert the file first: iconv -f latin1 -t utf-8",
        ) from error
