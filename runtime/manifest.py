"""engine.json: what an engine is, what it needs, and the size and hash of each of its files."""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from xformc.errors import UserError
from xformc.runtime.document import Document, read_document

MANIFEST_NAME = "engine.json"
MODEL_NAME = "model.onnx"
FORMAT = 1
MANIFEST_BYTES = 1 << 20
FILE_BYTES = 1 << 40
TOKENIZER_BYTES = 1 << 28
MAX_PENALTY, MAX_FACTOR, MAX_OFFSET = 100.0, 100.0, 100_000


@dataclass(frozen=True)
class Tokens:
    """The ids with a meaning of their own."""

    pad: int
    unknown: int
    begin: int
    end: int


@dataclass(frozen=True)
class SearchDefaults:
    """What the search does unless a call says otherwise; the meanings are in `options.SearchArguments`."""

    beam_width: int
    n_best: int
    length_penalty: float
    max_length_factor: float
    max_length_offset: int


@dataclass(frozen=True)
class FileRecord:
    """A file of the engine as it was written."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """The checked content of engine.json.

    The tokenizer names are None where the engine has no vocabulary to read text with. The maximum lengths
    count tokens, with the end token, and are None where the model has no bound. `files` has every file but
    engine.json.
    """

    format: int
    xformc: str
    name: str
    task: str
    target: str
    precision: str
    tokens: Tokens
    source_vocabulary: int
    target_vocabulary: int
    source_tokenizer: str | None
    target_tokenizer: str | None
    defaults: SearchDefaults
    max_source_length: int | None
    max_target_length: int | None
    parameters: int
    weights: str
    files: Mapping[str, FileRecord]


def read_manifest(directory: Path | str) -> Manifest:
    """Read and check `directory`/engine.json, without touching the other files.

    Raises: UserError if the folder is no engine, is of a newer format, or says what cannot be.
    """
    folder = Path(directory)
    if not folder.is_dir():
        raise UserError("no such folder" if not folder.exists() else "not a folder", place=str(folder), hint=_BUILD)
    path = folder / MANIFEST_NAME
    if not path.is_file():
        raise UserError(f"not an engine: it has no {MANIFEST_NAME}", place=str(folder), hint=_BUILD)
    document = read_document(path, limit=MANIFEST_BYTES)
    version = document.integer("format", 1)
    if version > FORMAT:
        raise UserError(
            f"engine format {version} is newer than this xformc, which reads up to {FORMAT}",
            place=str(path),
            hint="upgrade: pip install --upgrade xformc",
        )
    _check_checksum(document)
    return _READERS[version](document)


def check_files(directory: Path | str, manifest: Manifest, *, verify_hashes: bool = True) -> None:
    """Check that each file is there, inside the folder, of its size and, with `verify_hashes`, of its sha256.

    Raises: UserError at the first file that is not as it was written.
    """
    folder = Path(directory).resolve()
    for name, record in manifest.files.items():
        path = folder / name
        if not Path(os.path.realpath(path)).is_relative_to(folder):
            raise UserError("a link out of the engine's folder", place=str(path), hint="copy the file itself in")
        if not path.is_file():
            raise UserError("this file of the engine is missing", place=str(path), hint=_COPY)
        found = path.stat().st_size
        if found != record.bytes:
            raise UserError(f"has {found:,} bytes where {record.bytes:,} were written", place=str(path), hint=_COPY)
        if verify_hashes and _sha256(path) != record.sha256:
            raise UserError(_CHANGED, place=str(path), hint=_COPY)


def manifest_checksum(fields: Mapping[str, object]) -> str:
    """The sha256 that engine.json carries as `checksum`: of its other keys, as sorted compact JSON."""
    rest = {key: value for key, value in fields.items() if key != "checksum"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _check_checksum(document: Document) -> None:
    if document.text("checksum") != manifest_checksum(document.fields):
        raise UserError(_CHANGED, place=document.place, hint=_COPY)


def _read_format_1(document: Document) -> Manifest:
    vocabulary = document.section("vocabulary")
    tokenizer = document.optional_section("tokenizer")
    files = _read_files(document.section("files"))
    manifest = Manifest(
        format=document.integer("format", 1),
        xformc=document.text("xformc"),
        name=document.text("name"),
        task=document.text("task"),
        target=document.text("target"),
        precision=document.text("precision"),
        tokens=_read_tokens(document.section("tokens")),
        source_vocabulary=vocabulary.integer("source", 4, 2**31),
        target_vocabulary=vocabulary.integer("target", 4, 2**31),
        source_tokenizer=None if tokenizer is None else tokenizer.text("source"),
        target_tokenizer=None if tokenizer is None else tokenizer.text("target"),
        defaults=_read_defaults(document.section("defaults")),
        max_source_length=document.optional_integer("max_source_length", 1),
        max_target_length=document.optional_integer("max_target_length", 1),
        parameters=document.integer("parameters", 0),
        weights=document.text("weights"),
        files=files,
    )
    for name in {MODEL_NAME, manifest.source_tokenizer, manifest.target_tokenizer} - {None}:
        if name not in files:
            raise UserError(f"{name} is not among its files", place=document.place, hint=_COPY)
    return manifest


_READERS = {1: _read_format_1}


def _read_tokens(document: Document) -> Tokens:
    ids = Tokens(*(document.integer(key, 0, 2**31) for key in ("pad", "unknown", "begin", "end")))
    if ids != Tokens(0, 1, 2, 3):
        raise UserError("the tokens must be pad 0, unknown 1, begin 2, end 3", place=document.place, hint=_COPY)
    return ids


def _read_defaults(document: Document) -> SearchDefaults:
    beam_width = document.integer("beam_width", 1)
    return SearchDefaults(
        beam_width=beam_width,
        n_best=document.integer("n_best", 1, beam_width),
        length_penalty=document.number("length_penalty", -MAX_PENALTY, MAX_PENALTY),
        max_length_factor=document.number("max_length_factor", 0, MAX_FACTOR),
        max_length_offset=document.integer("max_length_offset", 0, MAX_OFFSET),
    )


def _read_files(document: Document) -> dict[str, FileRecord]:
    files: dict[str, FileRecord] = {}
    for name in document.fields:
        parts = PurePosixPath(name).parts
        if not parts or name.startswith("/") or ".." in parts or "\\" in name or not name.isprintable():
            raise UserError(f"{name!r} is not a path inside the engine", place=document.place, hint=_COPY)
        record = document.section(name)
        files[name] = FileRecord(record.integer("bytes", 0, FILE_BYTES), record.text("sha256"))
    return files


def _sha256(path: Path) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


_BUILD = "an engine is a folder made by `xformc build SPEC --out DIR`"
_CHANGED = "the content is not what was built: its sha256 differs"
_COPY = "copy the engine's folder again, or rebuild it with `xformc build`"
