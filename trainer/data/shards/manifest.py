"""The manifest of a prepared corpus: what its files hold, with their hashes."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

from xformc.errors import UserError
from xformc.files import atomic_write

MANIFEST, BLOCKS, PROGRESS, LOCK = "manifest.json", "blocks.bin", "progress.json", ".prepare.lock"
FORMAT = 1
SHARD = "shard-"
AGAIN = "prepare it again with xformc data"


@dataclass(frozen=True)
class Stored:
    """A column: the tokens before and after each of its texts, and its vocabulary's number of tokens and SHA-256."""

    before: Sequence[int]
    after: Sequence[int]
    size: int
    vocabulary: str


@dataclass(frozen=True)
class Part:
    """One of the corpora: the rows and blocks that are kept, the tokens of each column, the number of rows dropped for
    each reason, how often an epoch has each row, and the SHA-256 of the text."""

    name: str
    rows: int
    blocks: int
    tokens: Mapping[str, int]
    dropped: Mapping[str, int]
    repeat: float
    sha256: str


@dataclass(frozen=True)
class File:
    """The bytes of a file, and their SHA-256."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """A prepared corpus. longest: the positions of its longest example; texts of language models are cut later.
    request: a hash of the settings and files that it was prepared from; empty if it is not known."""

    task: str
    columns: Mapping[str, Stored]
    longest: int
    parts: Sequence[Part]
    files: Mapping[str, File]
    request: str = ""

    @property
    def rows(self) -> int:
        """The number of rows of all corpora."""
        return sum(part.rows for part in self.parts)

    @property
    def sha256(self) -> str:
        """A hash of all that an epoch depends on."""
        content = asdict(replace(self, parts=[replace(part, name="") for part in self.parts]))
        del content["request"]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def shard_name(index: int) -> str:
    """The name of a file of blocks."""
    return f"{SHARD}{index:05d}.bin"


def write_manifest(manifest: Manifest, folder: Path) -> None:
    """Write the manifest, which makes the folder a prepared corpus."""
    content = {"format": FORMAT, **asdict(manifest)}
    with atomic_write(folder / MANIFEST) as part:
        part.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a prepared corpus, and check its files: of the shards only the size.

    Raises: UserError if it is missing or damaged, or if a file is not what was written.
    """
    path = folder / MANIFEST
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content.pop("format") != FORMAT:
            raise UserError("was prepared by another version of xformc", place=str(path), hint=AGAIN)
        manifest = _parsed(content)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"not the manifest of a prepared corpus: {error}", place=str(path), hint=AGAIN) from error
    for name, file in manifest.files.items():
        _require(folder, name, file)
    return manifest


def hash_file(path: Path) -> File:
    """The size and hash of a file."""
    with path.open("rb") as handle:
        return File(path.stat().st_size, hashlib.file_digest(handle, "sha256").hexdigest())


def _require(folder: Path, name: str, file: File) -> None:
    path = folder / name
    if Path(name).name != name:
        raise UserError(f"not the manifest of a prepared corpus: {name!r}", place=str(folder / MANIFEST), hint=AGAIN)
    found = path.stat().st_size if path.is_file() else None
    if found != file.bytes:
        what = "is missing" if found is None else f"has {found:,} bytes; {MANIFEST} says {file.bytes:,}"
        raise damaged(path, what)
    if not name.startswith(SHARD) and hash_file(path) != file:  # the blocks of shards are checked when they are read
        raise damaged(path, "is not what was written")


def damaged(path: Path, what: str) -> UserError:
    """The error of a file that was changed."""
    return UserError(what, place=str(path), hint=f"copy the folder again, or {AGAIN}")


def _parsed(content: Any) -> Manifest:
    columns = {name: Stored(**one) for name, one in content["columns"].items()}
    parts = [Part(**one) for one in content["parts"]]
    files = {name: File(**one) for name, one in content["files"].items()}
    numbers = [content["longest"], *(one.size for one in columns.values()), *(one.bytes for one in files.values())]
    numbers += [number for part in parts for number in (part.rows, part.blocks)]
    if not all(isinstance(number, int) and number >= 0 for number in cast(list[object], numbers)):
        raise ValueError("a number is not a whole number")
    if not all(isinstance(part.repeat, int | float) and 0 <= part.repeat < 1e6 for part in parts):  # pyright: ignore
        raise ValueError("'repeat' is not a number of at least 0")
    return Manifest(content["task"], columns, content["longest"], parts, files, str(content.get("request", "")))
