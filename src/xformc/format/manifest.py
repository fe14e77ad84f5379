"""engine.json: what an engine is, what it needs, and the size and hash of each of its files."""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from xformc.errors import UserError
from xformc.format.plans import Plan
from xformc.format.precision import Precision
from xformc.format.targets import Target

FORMAT = 3
MANIFEST_BYTES = 1 << 20
FILE_BYTES = 1 << 40
TOKENIZER_BYTES = 1 << 28
MAX_PENALTY, MAX_FACTOR, MAX_OFFSET = 100.0, 100.0, 100_000


@dataclass(frozen=True)
class SearchOptions:
    """What the search does, complete and checked; the fields are those of `options.SearchArguments`."""

    beam_size: int
    n_best: int
    length_penalty: float
    max_length_factor: float
    max_length_offset: int


@dataclass(frozen=True)
class SampleOptions:
    """How a language model goes on, complete and checked; the fields are those of `sampling.SampleArguments`."""

    temperature: float
    top_k: int
    top_p: float
    max_new_tokens: int


@dataclass(frozen=True)
class Input:
    """An input of the model.

    kind: tokens, vectors, values or edges. vocabulary: how many pieces there are; for tokens, else None.
    axes: the sizes of vectors (one) and values, by name. of: the input whose positions edges join, else None.
    longest: the most positions that the model takes, or None where it has no bound.
    tokenizer: the file of the SentencePiece model, or None where text cannot be read.
    """

    kind: str
    vocabulary: int | None = None
    axes: Mapping[str, int] = field(default_factory=dict[str, int])
    of: str | None = None
    longest: int | None = None
    tokenizer: str | None = None

    @property
    def pieces(self) -> int:
        """The size of the vocabulary; for tokens only."""
        assert self.vocabulary is not None, f"an input of {self.kind} has no vocabulary"
        return self.vocabulary


@dataclass(frozen=True)
class FileRecord:
    """A file of the engine as it was written."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Calibration:
    """How it was found in which steps products round what they are given: by which rule, from how many examples."""

    rule: str
    examples: int


@dataclass(frozen=True)
class Manifest:
    """The checked content of engine.json.

    `labels` are the names of the labels by id, and `positions` is the input whose positions have one each; both are
    None where the task has none. `files` has every file but engine.json; `plans` those that are TensorRT's plans, and
    `refused` says of plans that were to be there why TensorRT did not build them.
    `calibration` is None where no product rounds what it is given in steps that were found so.
    `operators` is the version of xformc's own operators in the model; None without such, or where it was not recorded.
    """

    format: int
    xformc: str
    name: str
    task: str
    target: Target
    precision: Precision
    inputs: Mapping[str, Input]
    labels: tuple[str, ...] | None
    positions: str | None
    defaults: SearchOptions | SampleOptions | None
    parameters: int
    weights: str
    files: Mapping[str, FileRecord]
    plans: Mapping[str, Plan] = field(default_factory=dict[str, Plan])
    refused: Mapping[str, str] = field(default_factory=dict[str, str])
    calibration: Calibration | None = None
    operators: int | None = None

    @property
    def search(self) -> SearchOptions:
        """The defaults of the search; for translation only."""
        assert isinstance(self.defaults, SearchOptions), f"{self.task} is not searched"
        return self.defaults

    @property
    def sampling(self) -> SampleOptions:
        """The defaults of sampling; for language_model only."""
        assert isinstance(self.defaults, SampleOptions), f"{self.task} is not sampled"
        return self.defaults

    @property
    def tokenizers(self) -> Mapping[str, str]:
        """The tokenizer's file for each input of tokens that has one."""
        return {name: item.tokenizer for name, item in self.inputs.items() if item.tokenizer is not None}


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
            raise UserError("this file of the engine is missing", place=str(path), hint=COPY)
        found = path.stat().st_size
        if found != record.bytes:
            raise UserError(f"has {found:,} bytes where {record.bytes:,} were written", place=str(path), hint=COPY)
        if verify_hashes and record_file(path) != record:
            raise UserError(CHANGED, place=str(path), hint=COPY)


def manifest_checksum(fields: Mapping[str, object]) -> str:
    """The sha256 that engine.json carries as `checksum`: of its other keys, as sorted compact JSON."""
    rest = {key: value for key, value in fields.items() if key != "checksum"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def record_file(path: Path) -> FileRecord:
    """What engine.json has of a file."""
    with path.open("rb") as handle:
        return FileRecord(path.stat().st_size, hashlib.file_digest(handle, "sha256").hexdigest())


CHANGED = "the content is not what was built: its sha256 differs"
COPY = "copy the engine's folder again, or rebuild it with `xformc build`"
